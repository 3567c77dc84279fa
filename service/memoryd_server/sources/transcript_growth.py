"""Whether a transcript has grown enough to be indexed: each message by itself is not worth a run, and a vector."""

from collections.abc import Callable
from dataclasses import dataclass

from memoryd_server.errors import MemorydError
from memoryd_server.model import FileStat, SourceFile
from memoryd_server.sources.transcript_reader import TranscriptReader
from memoryd_server.sources.transcripts import is_rotated


@dataclass(frozen=True, slots=True)
class GrowthLimits:
    """The growth at which a transcript is due; 0 means any.

    One that has not been written to for `quiet_seconds` is due in any case.
    """

    bytes: int = 100_000
    messages: int = 50
    quiet_seconds: float = 900.0


class Growth:
    """Judges transcripts by `limits`; `now_ns` is the wall clock in Unix nanoseconds."""

    def __init__(self, limits: GrowthLimits, now_ns: Callable[[], int]) -> None:
        self._limits = limits
        self._now_ns = now_ns

    def is_due(self, file: SourceFile, seen: FileStat | None) -> bool:
        """Whether `file`, which differs from what was `seen` of it (None: nothing), is to be indexed now.

        A rotated one is, since it grows no more, and one that was cut, since what is gone must not be found any more.
        Reads at most as many bytes as make it due.
        """
        before = 0 if seen is None else seen.size_bytes
        grown = file.stat.size_bytes - before
        # A size below zero is that of a transcript of which a part was read.
        if is_rotated(file.parts[-1]) or before < 0 or grown < 0:
            return True
        if grown >= max(1, self._limits.bytes) or self._is_quiet(file.stat):
            return True
        return grown > 0 and self._has_messages(file, before, grown)

    def _is_quiet(self, stat: FileStat) -> bool:
        return self._now_ns() - stat.mtime_ns > self._limits.quiet_seconds * 1e9

    def _has_messages(self, file: SourceFile, before: int, grown: int) -> bool:
        try:
            with TranscriptReader(file) as reader:
                enough = max(1, self._limits.messages)
                return reader.count_lines(before, grown, enough) >= enough
        except (MemorydError, OSError):
            # The run that it starts tells what is wrong with it.
            return True
