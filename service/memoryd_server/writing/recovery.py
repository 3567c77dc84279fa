"""Finds out what became of appends that a crash cut short, and finishes those of which a part was written."""

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

from memoryd_server.errors import FileBusy, MemorydError
from memoryd_server.sources.contained import stat_file
from memoryd_server.sources.roots import Roots, resolve_for_append
from memoryd_server.writing.block import blocks_with
from memoryd_server.writing.draft import Draft
from memoryd_server.writing.entries import Entry, State
from memoryd_server.writing.ledger import Ledger
from memoryd_server.writing.target import Target, opened


class Recovery:
    """The unfinished appends of one ledger, whose lock the caller of each method holds.

    `fragments` tells, by key, of parts of a text that stand in a file and cannot be completed without its sender.
    `locked` says, by path, which files could not be looked into because another program locks them.
    """

    def __init__(self, roots: Roots, ledger: Ledger, draft: Draft) -> None:
        self.fragments: dict[str, str] = {}
        self.locked: dict[str, str] = {}
        self._roots = roots
        self._ledger = ledger
        self._draft = draft

    def settle_all(self) -> None:
        """Settles every unfinished append whose file can be reached and written; others wait for their retry."""
        for path in {entry.path for entry in self._ledger.unfinished()}:
            with suppress(MemorydError, OSError):
                self._settle_file(path)
        if not self.locked:
            self._draft.drop()

    def _settle_file(self, path: str) -> None:
        location = resolve_for_append(self._roots, path)
        # Opening would make it, and a file that is away, as on an unmounted disk, tells nothing.
        if stat_file(location) is None:
            self.locked.pop(path, None)
            return
        try:
            with opened(location) as target:
                self.locked.pop(path, None)
                for entry in self._ledger.pending(path):
                    self._settle(target, entry)
        except FileBusy as error:
            self.locked[path] = f"{error.message}; what a crash left unfinished in it is settled by the next append"

    def settle_others(self, target: Target, key: str) -> None:
        """Settles the unfinished appends to a file but for that of `key`, while their places in it still tell.

        After the next write an unfinished append could be mistaken for one that happens to say the same.
        """
        self.locked.pop(target.path, None)
        for entry in self._ledger.pending(target.path):
            if entry.key != key and not self._settle(target, entry):
                self._ledger.settle(entry, State.VOID)

    def _settle(self, target: Target, entry: Entry) -> bool:
        """Settles an append by what stands in its place; false when that is a part which only its sender can end.

        Where something else is at its place, the file was edited or replaced after the crash, and the block may have
        moved. An edit can also have moved an equal text to its place, so the copies are counted there, too.
        """
        there, size = target.read(entry.offset, entry.offset + entry.length), target.size()
        whole = sha256(there).hexdigest() == entry.block_sha256
        block = there if whole else self._draft.block(entry.block_sha256)
        state = State.DONE
        lines = self._added(target, entry, block)
        if block is not None and (torn := target.torn(entry.offset, block, whole_text=lines is not None)):
            target.write(block[torn:], size)
        elif whole and (lines or entry.copies_before is None):
            target.sync(names=True)
        elif lines:
            entry = replace(entry, start_line=lines[0], end_line=lines[1])
        elif block is None and 0 < size - entry.offset < entry.length:
            self.fragments[entry.key] = (
                f"{entry.path}, line {target.newlines(size) + 1}: a crash cut short what was being appended. Its "
                "sender completes it by sending it again with the same key; after other appends the fragment stays"
            )
            return False
        else:
            state = State.VOID
        # A file that was replaced meanwhile says nothing of the one that the path names now.
        if target.is_current():
            self._ledger.settle(entry, state)
        return True

    def _added(self, target: Target, entry: Entry, block: bytes | None) -> tuple[int, int] | None:
        """Return the lines of an append's text, once it is durable, if the file holds it once more than before."""
        if block is not None or entry.copies_before is None:
            return target.added_copy(block or b"", entry.copies_before)
        found = blocks_with(entry.block_sha256, entry.length, target.read(0, target.size()))
        if len(found) <= entry.copies_before:
            return None
        target.sync(names=True)
        return found[-1]
