"""Finds out what became of appends that a crash cut short, and finishes those of which a part was written."""

from contextlib import suppress
from dataclasses import replace

from memoryd_server.errors import FileBusy, MemorydError
from memoryd_server.sources.contained import stat_file
from memoryd_server.sources.roots import Roots, resolve_for_append
from memoryd_server.writing.block import blocks_with, copies_of
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
        moved.
        """
        there, size = target.read(entry.offset, entry.offset + entry.length), target.size()
        ends_there = bool(there) and size == entry.offset + len(there)
        block = self._draft.block(entry.block_sha256)
        state = State.DONE
        if target.holds(entry.offset, entry.length, entry.block_sha256):
            target.sync(names=entry.offset == 0)
        elif ends_there and block is not None and block.startswith(there):
            target.write(block[len(there) :], entry.offset + len(there))
        elif size != entry.offset and (lines := self._moved(target, entry, block)):
            target.sync(names=True)
            entry = replace(entry, start_line=lines[0], end_line=lines[1])
        elif ends_there:
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

    def _moved(self, target: Target, entry: Entry, block: bytes | None) -> tuple[int, int] | None:
        """Return the lines of a block that is elsewhere in the file; one more is needed than equal requests wrote."""
        data = target.read(0, target.size())
        if block is None:
            found = blocks_with(entry.block_sha256, entry.length, data)
        else:
            found = copies_of(block.lstrip(b"\n"), data)
        return found[-1] if len(found) > self._ledger.finished(entry.path, entry.request_sha256) else None
