"""Readers of the transcripts that OpenClaw keeps as events: the base class, and the reader of a database.

A transcript is a log of events, which form a tree. Only the active branch is read: the user has taken back the events
of an abandoned branch. The line of a message is the place of its event in the log, from 1, so it does not depend on
the branch. `SessionReader`, and `ArchiveReader` and `ColdReader` of `archive_reader`, have the methods of
`TranscriptReader`; in their positions, the offset is the number of the next event, and is equal to the number of lines.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from memoryd_server.errors import FileNotFound
from memoryd_server.foreign_text import MAX_BRACKETS
from memoryd_server.model import FileStat
from memoryd_server.sources.compression import DamagedFrame, decompress_frame
from memoryd_server.sources.session_database import Row, SessionDatabase
from memoryd_server.sources.session_list import has_events, session_stat
from memoryd_server.sources.transcript_text import TranscriptParser, turn_state
from memoryd_server.sources.transcripts import MOST_LINE_BYTES, ReadPosition, TranscriptLine

MOST_EVENT_BYTES = 4 << 20
"""The largest event that OpenClaw compresses, and the largest frame that is read: a frame is smaller than its event."""

# The ids that OpenClaw makes have 36 characters.
_MOST_ID_BYTES = 256
_USER = '"user"'


def decode_event(text: Any, frame: Any, size: Any) -> str | None:
    """Return the JSON of an event's columns `event_json` (as bytes), `event_zstd` and `event_utf8_bytes`.

    Return None if they are invalid. The JSON itself is not parsed. A frame is decompressed only up to `size`, which is
    at most 4 MiB.
    """
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    if not isinstance(frame, bytes) or not isinstance(size, int) or not 0 < size <= MOST_EVENT_BYTES:
        return None
    try:
        return decompress_frame(frame, size).decode("utf-8", "replace")
    except DamagedFrame:
        return None


def parse_event(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object in `text`; None for anything else, and for more lists and objects than are parsed."""
    if text.count("[") + text.count("{") > MAX_BRACKETS:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


class EventReader(ABC):
    """A transcript of `total` events. `identity` is equal for two transcripts if one has grown into the other.

    `skipped` is the number of events that `lines` has skipped because they cannot be decoded or are too large.
    """

    def __init__(self, stat: FileStat, total: int, identity: str) -> None:
        self.stat = stat
        self.skipped = 0
        self._total = total
        self._identity = identity
        self._position = ReadPosition(0, 0)
        self._last: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the file or the database."""

    @abstractmethod
    def _last_before(self, number: int) -> int | None:
        """Return the number of the last event of the active branch before the event `number`."""

    @abstractmethod
    def _active_events(self, first: int) -> Iterator[tuple[int, str | None]]:
        """Yield the numbers and the JSON of the active branch's events, from the turn of event `first` on or earlier.

        The JSON is None if it cannot be decoded.
        """

    def prefix_digest(self, position: ReadPosition) -> bytes:
        """Return a digest of the branch up to `position`. It differs after a rewrite, and after a rewind before it."""
        last = self._last if position == self._position else self._last_before(position.offset)
        return hashlib.sha256(f"{self._identity}\0{last}\0{position.offset}".encode()).digest()

    def ends_digest(self, position: ReadPosition) -> bytes:  # noqa: ARG002 -- the digest of an earlier memoryd
        """Return a digest that no row has: earlier versions of memoryd did not read these transcripts."""
        return b""

    def resume_position(self, position: ReadPosition) -> ReadPosition | None:
        """Return `position`: an event never grows."""
        return position

    def lines(self, start: ReadPosition) -> Iterator[TranscriptLine]:
        """Yield the events of the active branch from `start` on, and at last the end of the transcript."""
        self._position, self._last = start, self._last_before(start.offset)
        parser = TranscriptParser()
        for number, event in self._active_events(start.offset):
            if number < start.offset:
                state = None if event is None else turn_state(event)
                parser.in_left_out_turn = parser.in_left_out_turn if state is None else state
            # The events of a damaged cold file need not be in order.
            if number < self._position.offset:
                continue
            self.skipped += event is None
            message = None if event is None else parser.parse(number + 1, event)
            self._position, self._last = ReadPosition(number + 1, number + 1), number
            yield TranscriptLine(message, self._position)
        end = ReadPosition(self._total, self._total)
        if end.offset > self._position.offset:
            self._position = end
            yield TranscriptLine(None, end)

    def position_after(self, lines: int) -> ReadPosition:
        """Return the position after the first `lines` events, or the end."""
        number = min(lines, self._total)
        return ReadPosition(number, number)

    def count_lines_from(self, position: ReadPosition) -> int:
        """Return the number of events from `position` on."""
        return self._total - position.lines


_STATE = """
SELECT coalesce(w.transcript_updated_at, w.updated_at),
  (SELECT max(seq) FROM transcript_events e WHERE e.session_id = w.session_id),
  r.generation, s.needs_rebuild = 0, s.indexed_seq
FROM session_windows w
LEFT JOIN transcript_rewrite_watermarks r ON r.session_id = w.session_id
LEFT JOIN session_transcript_index_state s ON s.session_id = w.session_id
WHERE w.session_id = :session
  AND NOT EXISTS (SELECT 1 FROM memory_session_tombstones t WHERE t.session_id = w.session_id)"""

_GENERATION = "SELECT generation FROM transcript_rewrite_watermarks WHERE session_id = :session"

# As bytes: text of a damaged database need not be UTF-8.
_BODY = (
    "CASE WHEN octet_length(e.event_json) <= :most THEN CAST(e.event_json AS BLOB) END,"
    " CASE WHEN octet_length(e.event_zstd) <= :most_frame THEN e.event_zstd END, e.event_utf8_bytes"
)

_ACTIVE = f"""
SELECT e.seq, {_BODY}
FROM session_transcript_active_events a
JOIN transcript_events e ON e.session_id = a.session_id AND e.seq = a.event_seq
WHERE a.session_id = :session AND a.event_seq > :after AND a.event_seq <= :last ORDER BY a.event_seq"""  # noqa: S608 -- constants

_ALL = f"""
SELECT e.seq, {_BODY}
FROM transcript_events e
WHERE e.session_id = :session AND e.seq > :after AND e.seq <= :last ORDER BY e.seq"""  # noqa: S608 -- constants

_ACTIVE_BEFORE = f"""
SELECT e.seq, {_BODY}
FROM session_transcript_active_events a
JOIN transcript_events e ON e.session_id = a.session_id AND e.seq = a.event_seq
WHERE a.session_id = :session AND a.event_seq < :after AND a.event_seq <= :last ORDER BY a.event_seq DESC"""  # noqa: S608

_ALL_BEFORE = f"""
SELECT e.seq, {_BODY}
FROM transcript_events e
WHERE e.session_id = :session AND e.seq < :after AND e.seq <= :last ORDER BY e.seq DESC"""  # noqa: S608

_LAST_ACTIVE = """
SELECT max(event_seq) FROM session_transcript_active_events
WHERE session_id = :session AND event_seq < :before AND event_seq <= :last"""

_IS_ACTIVE = "SELECT 1 FROM session_transcript_active_events WHERE session_id = :session AND event_seq = :number"

_EVENT = f"SELECT {_BODY} FROM transcript_events e WHERE e.session_id = :session AND e.seq = :number"  # noqa: S608

_LEAF = """
SELECT CASE WHEN octet_length(event_id) <= :most_id THEN event_id END, event_type = 'leaf', seq
FROM transcript_event_identities
WHERE session_id = :session AND seq <= :last ORDER BY seq DESC LIMIT 1"""

_PARENT = """
SELECT CASE WHEN octet_length(parent_id) <= :most_id THEN parent_id END, seq, event_type = 'session'
FROM transcript_event_identities WHERE session_id = :session AND event_id = :event"""


class SessionReader(EventReader):
    """The events of a session in the database, as of the time of opening.

    If the session is rewritten, rewound or removed while it is read, reading ends with `FileNotFound`: the next sync
    finds another state, and reads that.
    """

    def __init__(self, database: SessionDatabase, session_id: str) -> None:
        state = database.row(_STATE, {"session": session_id})
        if state is None or not has_events(*state[:2]):
            raise FileNotFound(f"the session {session_id!r} has no events in {database.path}")
        updated_ms, last, self._generation, is_complete, indexed = state
        stat = session_stat(last + 1, updated_ms, f"{session_id}.jsonl", self._generation)
        super().__init__(stat, last + 1, f"{session_id}\0{self._generation}")
        self._database = database
        self._known_last: dict[int, int | None] = {}
        limits = {"most": MOST_LINE_BYTES, "most_frame": MOST_EVENT_BYTES, "most_id": _MOST_ID_BYTES}
        self._values = {"session": session_id, "last": last, **limits}
        # None if the database has the active branch; otherwise the numbers of its events.
        self._branch = None if is_complete and indexed == last else self._walk()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _last_before(self, number: int) -> int | None:
        if self._branch is not None:
            place = bisect_left(self._branch, number)
            return self._branch[place - 1] if place else None
        # The first answer is kept, so that a rewind between it and the end of reading is noticed.
        if number not in self._known_last:
            found = self._database.row(_LAST_ACTIVE, {**self._values, "before": number})
            self._known_last[number] = None if found is None else found[0]
        return self._known_last[number]

    def _active_events(self, first: int) -> Iterator[tuple[int, str | None]]:
        branch = None if self._branch is None else frozenset(self._branch)
        last = self._last_before(first)

        def check(database: SessionDatabase) -> None:
            rewound = last is not None and branch is None and not self._value(database, _IS_ACTIVE, number=last)
            if rewound or self._value(database, _GENERATION) != self._generation:
                raise FileNotFound(f"the session {self._values['session']!r} was changed while it was read")

        if first:
            yield from self._turn_before(first)
        sql = _ACTIVE if branch is None else _ALL
        for page in self._database.pages(sql, self._values, first - 1, check):
            for number, *body in page:
                last = number
                if isinstance(number, int) and (branch is None or number in branch):
                    yield number, decode_event(*body)

    def _turn_before(self, first: int) -> Iterator[tuple[int, str | None]]:
        """Yield the user's message that began the turn before event `first`, if any."""
        branch = None if self._branch is None else frozenset(self._branch)
        sql = _ACTIVE_BEFORE if branch is None else _ALL_BEFORE
        for page in self._database.pages(sql, self._values, first):
            for number, *body in page:
                event = decode_event(*body) if branch is None or number in branch else None
                if event is not None and _USER in event and turn_state(event) is not None:
                    yield number, event
                    return

    def _walk(self) -> Sequence[int]:
        """Return the numbers of the events from the newest leaf up to the first event, in order."""
        found: list[int] = []
        leaf = self._database.row(_LEAF, self._values)
        at: Any = None if leaf is None else leaf[0]
        if leaf is not None and leaf[1]:
            row = self._database.row(_EVENT, {**self._values, "number": leaf[2]})
            event = None if row is None else decode_event(*row)
            record = None if event is None else parse_event(event)
            at = None if record is None else record.get("targetId")

        def step(database: SessionDatabase) -> bool:
            nonlocal at
            row = self._parent(database, at)
            # A parent is always older than its child; anything else would be a circle.
            if row is None or row[2] or (found and row[1] >= found[-1]):
                return False
            found.append(row[1])
            at = row[0]
            return True

        self._database.repeat(step)
        found.reverse()
        return found

    def _parent(self, database: SessionDatabase, event: Any) -> Row | None:
        """Return the row of `_PARENT` of an event; None if there is none, or if its number is no integer."""
        row = database.row_within(_PARENT, {**self._values, "event": event}) if isinstance(event, str) else None
        return row if row is not None and isinstance(row[1], int) else None

    def _value(self, database: SessionDatabase, sql: str, **more: Any) -> Any:
        row = database.row_within(sql, {**self._values, **more})
        return None if row is None else row[0]
