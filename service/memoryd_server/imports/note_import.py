"""NoteImport: writes conversations and documents as notes, and replaces the notes of those that have grown.

A note is kept if it was edited, if its conversation or document was forgotten, or if it has a newer state.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from memoryd_server.imports.conversation import Conversation, Document
from memoryd_server.imports.importer import Effect, Outcome
from memoryd_server.imports.note import (
    Note,
    StoredNote,
    identity,
    note_folder,
    note_key,
    note_stem,
    parse_stored,
    part_name,
    render,
    time_ns,
    time_text,
)
from memoryd_server.sources import (
    LONG_KEY_CHARS,
    SHORT_KEY_CHARS,
    imported_note_key,
    note_name_key,
    note_name_stem,
)

_EDITED = "was edited after its import, and was kept; --replace replaces it with the conversation of the export"
_TAKEN = "is the name of another file, which was kept; rename it, and repeat the import"


class NoteStore(Protocol):
    """Reads and writes the memory files of one agent. Blocks.

    Raises:
        PathNotAllowed, FileBusy, FileReplaced: a file cannot be used.
        FileNotFound, WorkspaceReadOnly, DiskFull, IndexUnavailable, IndexBusy, IndexReadOnly: none can be written.
    """

    def paths(self, folder: str) -> list[str]:
        """Return the display paths of the Markdown files in a folder, none if it does not exist."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""

    def create(self, path: str, data: bytes, mtime_ns: int | None) -> bool:
        """Write a new file, which is durable at the end of the import; return False if the path is taken.

        A `mtime_ns` of None is the current time.
        """

    def replace(self, path: str, data: bytes, expected: bytes, mtime_ns: int | None) -> bool:
        """Replace a file durably; return False if its SHA-256 is not `expected`."""

    def delete(self, path: str, expected: bytes) -> bool:
        """Delete a file durably; return False if its SHA-256 is not `expected`."""


@dataclass(frozen=True, slots=True)
class NoteOptions:
    """Without `replace`, edited notes are kept. `most_bytes` is the largest size of a note."""

    replace: bool = False
    dry_run: bool = False
    most_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class _Change:
    """The stored notes of an item by part, the notes to write by path, and the stored ones to delete."""

    stored: Mapping[int, StoredNote]
    written: Mapping[str, Note]
    surplus: Sequence[StoredNote]

    def replaced(self) -> list[StoredNote]:
        """Return the stored notes that are replaced or deleted."""
        return [*(self.stored[note.part] for note in self.written.values() if note.part in self.stored), *self.surplus]


class NoteImport:
    """Imports conversations and documents as notes. `forgotten` are the paths of forgotten memory files.

    A note is found by the key in its name, and recognized by the id in its front matter.
    """

    def __init__(self, store: NoteStore, forgotten: Iterable[str], options: NoteOptions) -> None:
        self._store = store
        self._options = options
        self._forgotten = frozenset(key for path in forgotten if (key := imported_note_key(path)) is not None)
        # The paths of the notes of each origin by their short keys.
        self._known: dict[str, dict[str, list[str]]] = {}
        # What a dry run would have written, or deleted.
        self._pretended: dict[str, StoredNote | None] = {}
        self._added: set[tuple[str, str]] = set()

    def add(self, item: Conversation | Document) -> Outcome:
        """Write the notes of an item if it is new or has changed. Raises as `NoteStore`."""
        keys = (note_key(item)[:chars] for chars in (SHORT_KEY_CHARS, LONG_KEY_CHARS))
        if any((item.origin, key) in self._forgotten for key in keys):
            return Outcome(Effect.FORGOTTEN)
        # An export can have two states of a conversation. Of equal ones the first counts: they must not alternate.
        is_repeated = (item.origin, note_key(item)) in self._added
        self._added.add((item.origin, note_key(item)))
        change = self._compare(item)
        if not change.written and not change.surplus:
            return Outcome(Effect.UNCHANGED)
        if change.stored and _is_newer(change.stored.values(), item, or_equal=is_repeated):
            return Outcome(Effect.OLDER)
        edited = tuple(note.path for note in change.replaced() if note.is_edited)
        if edited and not self._options.replace:
            return Outcome(Effect.CONFLICT, edited, reason=_EDITED)
        return self._apply(item, change)

    def _compare(self, item: Conversation | Document) -> _Change:
        """Return the difference between the notes of an item and the stored ones."""
        notes, paths = render(item, self._options.most_bytes), self._paths_of(item)
        read = [note for path in paths if (note := self._read(path)) is not None]
        # A note without a front matter was edited.
        stored = {note.part: note for note in read if note.identity in {identity(item), ""}}
        if stored:
            stem = note_name_stem(stored[min(stored)].path)
        else:
            # With stored paths, another item has the same short key.
            stem = f"{note_folder(item.origin)}/{note_stem(item, LONG_KEY_CHARS if paths else SHORT_KEY_CHARS)}"
        written = {
            stored[note.part].path if note.part in stored else part_name(stem, note.part): note
            for note in notes
            if note.part not in stored or stored[note.part].sha256 != note.sha256
        }
        return _Change(stored, written, [note for note in stored.values() if note.part > len(notes)])

    def _apply(self, item: Conversation | Document, change: _Change) -> Outcome:
        for path, note in change.written.items():
            if reason := self._write(item, path, note, change.stored.get(note.part)):
                return Outcome(Effect.CONFLICT, (path,), reason=reason)
        for left in change.surplus:
            if self._options.dry_run:
                self._pretended[left.path] = None
            elif not self._store.delete(left.path, left.content_sha256):
                return Outcome(Effect.CONFLICT, (left.path,), reason=_EDITED)
        effect = Effect.UPDATED if change.stored else Effect.NEW
        return Outcome(effect, tuple(change.written), sum(len(note.data) for note in change.written.values()))

    def _paths_of(self, item: Conversation | Document) -> list[str]:
        if item.origin not in self._known:
            known: dict[str, list[str]] = {}
            for path in self._store.paths(note_folder(item.origin)):
                if found := note_name_key(path.rpartition("/")[2]):
                    known.setdefault(found[0], []).append(path)
            self._known[item.origin] = known
        return self._known[item.origin].setdefault(note_key(item)[:SHORT_KEY_CHARS], [])

    def _read(self, path: str) -> StoredNote | None:
        if path in self._pretended:
            return self._pretended[path]
        data = self._store.read(path)
        return None if data is None else parse_stored(path, data)

    def _write(self, item: Conversation | Document, path: str, note: Note, before: StoredNote | None) -> str:
        """Write a note; return why it was not written, or "" if it was."""
        if self._options.dry_run:
            self._pretended[path] = parse_stored(path, note.data)
        elif before is not None:
            if not self._store.replace(path, note.data, before.content_sha256, time_ns(item.updated or item.created)):
                return _EDITED
        elif not self._store.create(path, note.data, time_ns(item.updated or item.created)):
            return _TAKEN
        if before is None:
            self._paths_of(item).append(path)
        return ""


def _is_newer(stored: Iterable[StoredNote], item: Conversation | Document, *, or_equal: bool) -> bool:
    """Return whether the notes have a newer state of an item: by its time, or else by its number of messages."""
    old = max((note.updated, note.messages) for note in stored)
    new = time_text(item.updated), len(item.messages) if isinstance(item, Conversation) else 0
    return old > new or (or_equal and old == new)
