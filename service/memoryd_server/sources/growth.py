"""The rule for when a transcript is due for indexing.

A transcript is indexed when it has grown enough, because one message is not worth a run and a vector.
"""

from collections.abc import Callable
from dataclasses import dataclass

from memoryd_server.errors import MemorydError
from memoryd_server.model import FileStat, SourceFile, stored
from memoryd_server.sources.session_source import Transcript
from memoryd_server.sources.transcripts import TranscriptReader, is_rotated

OpenTranscript = Callable[[SourceFile], Transcript]
"""Opens a transcript; see `Corpus.open_transcript`."""


@dataclass(frozen=True, slots=True)
class GrowthLimits:
    """The growth at which a transcript is due; 0 means any growth.

    A transcript that was not written to for `quiet_seconds` is due in any case. A session in a database, of which no
    bytes are counted, is due if its last indexed event is older than `database_seconds`.
    """

    bytes: int = 100_000
    messages: int = 50
    quiet_seconds: float = 900.0
    database_seconds: float = 30.0


class GrowthRule:
    """Decide by `limits` whether a transcript is due. `now_ns` is the wall clock in Unix nanoseconds."""

    def __init__(self, limits: GrowthLimits, now_ns: Callable[[], int]) -> None:
        self._limits = limits
        self._now_ns = now_ns

    def is_due(self, file: SourceFile, seen: FileStat | None, open_transcript: OpenTranscript) -> bool:
        """Return whether `file` is to be indexed now. It differs from the state `seen` before, None for a new file.

        A rotated transcript is due, because it no longer grows. A truncated or rewritten one is due, because removed
        text must not be found any more. Reads at most as many bytes as are needed to reach the limit.
        """
        before = 0 if seen is None else seen.size_bytes
        grown = file.stat.size_bytes - before
        # A negative size is that of a partly read transcript.
        rewritten = seen is not None and grown == 0 and stored(file.stat).mtime_ns != seen.mtime_ns
        if is_rotated(file.parts[-1]) or before < 0 or grown < 0 or rewritten:
            return True
        if file.database:
            return self._is_database_due(seen, grown)
        if grown >= max(1, self._limits.bytes) or self._is_quiet(file.stat):
            return True
        return grown > 0 and self._has_messages(lambda: open_transcript(file), before, grown)

    def _is_database_due(self, seen: FileStat | None, grown: int) -> bool:
        """Return whether a session has enough new events, or new events while the indexed ones are old."""
        if seen is None or grown >= max(1, self._limits.messages) or not self._limits.bytes:
            return True
        return self._now_ns() - seen.mtime_ns > self._limits.database_seconds * 1e9

    def _is_quiet(self, stat: FileStat) -> bool:
        return self._now_ns() - stat.mtime_ns > self._limits.quiet_seconds * 1e9

    def _has_messages(self, open_file: Callable[[], Transcript], before: int, grown: int) -> bool:
        enough = max(1, self._limits.messages)
        try:
            with open_file() as reader:
                # The other kinds of transcript have no growth in bytes.
                return isinstance(reader, TranscriptReader) and reader.count_lines(before, grown, enough) >= enough
        except (MemorydError, OSError):
            # The run reports the error.
            return True
