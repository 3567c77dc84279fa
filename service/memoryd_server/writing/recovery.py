"""Finds out what became of appends that a crash cut short, and finishes those of which a part was written."""

from contextlib import suppress

from memoryd_server.errors import MemorydError
from memoryd_server.sources.contained import stat_file
from memoryd_server.sources.roots import Roots, resolve_for_append
from memoryd_server.writing.draft import Draft
from memoryd_server.writing.entries import Entry, State
from memoryd_server.writing.ledger import Ledger
from memoryd_server.writing.target import Target, opened


class Recovery:
    """The unfinished appends of one ledger, whose lock the caller of each method holds.

    `fragments` tells, by key, of parts of a text that stand in a file and cannot be completed without its sender.
    """

    def __init__(self, roots: Roots, ledger: Ledger, draft: Draft) -> None:
        self.fragments: dict[str, str] = {}
        self._roots = roots
        self._ledger = ledger
        self._draft = draft

    def settle_all(self) -> None:
        """Settles every unfinished append whose file can be reached and written; others wait for their retry."""
        for path in {entry.path for entry in self._ledger.unfinished()}:
            with suppress(MemorydError, OSError):
                self._settle_file(path)
        self._draft.drop()

    def _settle_file(self, path: str) -> None:
        location = resolve_for_append(self._roots, path)
        # Opening would make it, and a file that is away, as on an unmounted disk, tells nothing.
        if stat_file(location) is not None:
            with opened(location) as target:
                for entry in self._ledger.pending(path):
                    self._settle(target, entry)

    def settle_others(self, target: Target, key: str) -> None:
        """Settles the unfinished appends to a file but for that of `key`, while their places in it still tell.

        After the next write an unfinished append could be mistaken for one that happens to say the same.
        """
        for entry in self._ledger.pending(target.path):
            if entry.key != key and not self._settle(target, entry):
                self._ledger.settle(entry, State.VOID)

    def _settle(self, target: Target, entry: Entry) -> bool:
        """Settles an append by what stands in its place; false when that is a part which only its sender can end."""
        there = target.read(entry.offset, entry.offset + entry.length)
        if target.holds(entry.offset, entry.length, entry.block_sha256):
            target.sync(names=entry.offset == 0)
            self._ledger.settle(entry, State.DONE)
        elif not there or target.size() > entry.offset + len(there):
            self._ledger.settle(entry, State.VOID)
        else:
            return self._complete(target, entry, there)
        return True

    def _complete(self, target: Target, entry: Entry, there: bytes) -> bool:
        block = self._draft.block(entry.block_sha256)
        if block is not None and block.startswith(there):
            target.write(block[len(there) :], entry.offset + len(there))
            self._ledger.settle(entry, State.DONE)
            return True
        self.fragments[entry.key] = (
            f"{entry.path}, line {target.newlines(target.size()) + 1}: a crash cut short what was being appended. Its "
            "sender completes it by sending it again with the same key; after other appends the fragment stays"
        )
        return False
