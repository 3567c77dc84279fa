"""SessionImport: writes conversations as transcripts, and extends the transcripts of those that have grown."""

from collections.abc import Collection
from typing import Protocol

from memoryd_server.imports.conversation import Conversation, Document
from memoryd_server.imports.importer import Effect, Outcome
from memoryd_server.imports.note import time_ns
from memoryd_server.imports.session_record import TranscriptDigest, session_name, transcript
from memoryd_server.sources import SESSIONS_FOLDER

_CHANGED = "was changed during the import, and was kept; repeat the import"


class TranscriptStore(Protocol):
    """Reads and writes the transcripts of one agent. Blocks. Raises as `NoteStore`."""

    def read(self, session_id: str) -> bytes | None:
        """Return the bytes of a transcript; None if it does not exist."""

    def create(self, session_id: str, data: bytes, mtime_ns: int | None) -> bool:
        """Write a new transcript, which is durable at the end of the import; return False if it exists."""

    def replace(self, session_id: str, data: bytes, before: bytes, mtime_ns: int | None) -> bool:
        """Replace a transcript, or extend it; return False if its content is not `before`."""


class SessionImport:
    """Imports conversations as transcripts. `forgotten` are the ids of forgotten sessions.

    A transcript that differs from a conversation is replaced, unless its latest message is later, or of the same time
    and there are more of them. With `dry_run`, nothing is written.
    """

    def __init__(self, store: TranscriptStore, forgotten: Collection[str], *, dry_run: bool = False) -> None:
        self._store = store
        self._forgotten = forgotten
        self._dry_run = dry_run
        # What a dry run would have written.
        self._pretended: dict[str, TranscriptDigest] = {}
        self._added: set[str] = set()

    def add(self, item: Conversation | Document) -> Outcome:
        """Write the transcript of a conversation if it is new or has changed. Raises as `NoteStore`."""
        if isinstance(item, Document):
            return Outcome(Effect.UNSUITABLE)
        session = session_name(item)
        if session in self._forgotten:
            return Outcome(Effect.FORGOTTEN)
        data, before = transcript(item), self._store.read(session)
        # An export can have two states of a conversation. Of equal ones the first counts: they must not alternate.
        is_repeated = session in self._added
        self._added.add(session)
        old = self._pretended.get(session) or (None if before is None else TranscriptDigest.of(before))
        new = TranscriptDigest.of(data)
        if old == new:
            return Outcome(Effect.UNCHANGED)
        is_extended = old is not None and old.begins(data)
        if old is not None and not is_extended and old.is_newer(new, or_equal=is_repeated):
            return Outcome(Effect.OLDER)
        path = f"{SESSIONS_FOLDER}/{session}.jsonl"
        if self._dry_run:
            self._pretended[session] = new
        elif not self._write(session, data, before, time_ns(item.updated or item.created)):
            return Outcome(Effect.CONFLICT, (path,), reason=_CHANGED)
        # The rest of a transcript is appended; another one is replaced as a whole.
        written = new.size - old.size if old is not None and is_extended else new.size
        return Outcome(Effect.NEW if old is None else Effect.UPDATED, (path,), written)

    def _write(self, session: str, data: bytes, before: bytes | None, mtime_ns: int | None) -> bool:
        if before is None:
            return self._store.create(session, data, mtime_ns)
        return self._store.replace(session, data, before, mtime_ns)
