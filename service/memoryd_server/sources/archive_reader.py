"""Readers of a whole log of events: a compressed archive, and a cold file.

Such a log has no table of its active branch, so it is read twice: for the tree of its events, and for its messages. It
is foreign, and a few hundred bytes of Zstandard can expand to gigabytes, so its bytes, lines and events are limited.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from memoryd_server.model import FileStat
from memoryd_server.sources.compression import BoundedLines, CompressedLines, DamagedArchive
from memoryd_server.sources.session_list import MOST_EVENTS
from memoryd_server.sources.session_reader import EventReader, parse_event
from memoryd_server.sources.transcripts import MOST_LINE_BYTES, ReadPosition

MOST_ARCHIVE_BYTES = 256 << 20
"""The most bytes of an archive, compressed and decompressed."""

MOST_ARCHIVE_EVENTS = 500_000
"""The most events of an archive. A larger one is not read."""

# A cold file has up to four lines per event, and some more.
_MOST_LINES = 5 * MOST_ARCHIVE_EVENTS
_MOST_INVALID_LINES = 10_000
# How often reading checks whether it has to stop.
_LINES_PER_CHECK = 64
_LONG_LINE_BYTES = 64 << 10
_EVENT_KIND = b'"event"'
# Places of parents.
_NONE, _UNKNOWN, _OUTSIDE = -1, -2, -3


class ReadStopped(Exception):
    """The caller has stopped the reading of a transcript."""


class _EventTree:
    """The tree of a log that has no table of its active branch. An event takes about 150 bytes, however long it is.

    Events are referred to by their place among the added ones. `numbers` has their numbers in the log.
    """

    def __init__(self) -> None:
        self.numbers = array("L")
        self._flags = bytearray()
        self._parents = array("l")
        # By the hash of the event's id.
        self._places: dict[int, int] = {}
        self._leaf = _NONE

    def add(self, number: int, event: Mapping[str, Any] | None) -> None:
        """Add the next event of the log, with its number; None if it is no event."""
        self.numbers.append(number)
        name = None if event is None else event.get("id")
        is_named = isinstance(name, str)
        self._flags.append(event is not None and not is_named)
        self._parents.append(_OUTSIDE)
        if event is None or not is_named:
            return
        if event.get("type") == "leaf":
            self._leaf = self._place(event.get("targetId"), _NONE)
        elif event.get("type") != "session":
            # A parent is always older than its child; anything else would be a circle.
            self._parents[-1] = self._place(event.get("parentId"), _UNKNOWN)
            self._leaf = self._places[hash(name)] = len(self.numbers) - 1

    def _place(self, name: Any, unknown: int) -> int:
        return self._places.get(hash(name), unknown) if isinstance(name, str) else _NONE

    def active(self) -> bytearray:
        """Return for each event whether it is active. Before an event with an unknown parent, every event counts."""
        flags = bytearray(self._flags)
        at = self._leaf
        while at >= 0:
            flags[at] = True
            if self._parents[at] == _UNKNOWN:
                for other in range(at):
                    flags[other] |= self._parents[other] != _OUTSIDE
            at = self._parents[at]
        return flags


class ArchiveReader(EventReader):
    """A complete log in `stream`, which is read twice. An archive does not change, so it is never resumed.

    An archive with too many bytes, lines, events or lines that are no events is refused. Both times, reading ends as
    soon as `should_stop` returns True.

    Raises:
        DamagedArchive: the archive is refused, or cannot be decompressed.
        ReadStopped: `should_stop` returned True.
    """

    def __init__(
        self,
        stream: IO[bytes],
        stat: FileStat,
        identity: str,
        *,
        compressed: bool = True,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stream = stream
        self._compressed = compressed
        self._should_stop = should_stop
        tree = _EventTree()
        invalid = 0
        for number, text in self._events():
            event = None if text is None else parse_event(text)
            invalid += event is None
            _require_at_most(_MOST_INVALID_LINES, invalid, "lines that are no events")
            tree.add(number, event)
            _require_at_most(MOST_ARCHIVE_EVENTS, len(tree.numbers), "events")
        super().__init__(stat, max(tree.numbers, default=-1) + 1, identity)
        self._numbers, self._active = tree.numbers, tree.active()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def resume_position(self, position: ReadPosition) -> ReadPosition | None:  # noqa: ARG002 -- the protocol's name
        """Return None: the part that was read is read again."""
        return None

    def _last_before(self, number: int) -> int | None:
        places = zip(self._numbers, self._active, strict=True)
        return max((each for each, is_active in places if is_active and each < number), default=None)

    def _active_events(self, first: int) -> Iterator[tuple[int, str | None]]:  # noqa: ARG002 -- read as a whole
        # A file that is replaced in place can have another number of events.
        for is_active, (number, event) in zip(self._active, self._events(), strict=False):
            if is_active:
                yield number, event

    def _events(self) -> Iterator[tuple[int, str | None]]:
        for number, line in enumerate(self._lines()):
            yield number, None if line is None else line.decode("utf-8", "replace")

    def _lines(self) -> Iterator[bytes | None]:
        self._stream.seek(0)
        read = CompressedLines if self._compressed else BoundedLines
        lines = read(self._stream, max_bytes=MOST_ARCHIVE_BYTES, max_line_bytes=MOST_LINE_BYTES)
        for count, line in enumerate(lines, 1):
            _require_at_most(_MOST_LINES, count, "lines")
            is_long = line is None or len(line) > _LONG_LINE_BYTES
            if (is_long or count % _LINES_PER_CHECK == 0) and self._should_stop():
                raise ReadStopped
            yield line


def _require_at_most(most: int, count: int, name: str) -> None:
    if count > most:
        raise DamagedArchive(f"the archive has more than {most:,} {name}")


class ColdReader(ArchiveReader):
    """The events of a session that OpenClaw has moved out of the database, with their numbers.

    Of the other lines of the file, only their number is limited.
    """

    def _events(self) -> Iterator[tuple[int, str | None]]:
        invalid = 0
        for line in self._lines():
            if line is not None and _EVENT_KIND not in line:
                continue
            record = None if line is None else parse_event(line.decode("utf-8", "replace"))
            if record is not None and record.get("kind") != "event":
                continue
            row = None if record is None else record.get("row")
            number = row.get("seq") if isinstance(row, dict) else None
            if isinstance(row, dict) and isinstance(number, int) and 0 <= number < MOST_EVENTS:
                event = row.get("event_json")
                yield number, event if isinstance(event, str) else None
            else:
                invalid += 1
                _require_at_most(_MOST_INVALID_LINES, invalid, "lines that are no events")
