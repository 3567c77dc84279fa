"""Appender: once per key, also after a crash.

Appends text to memory files, once per idempotency key.

The order of steps is what makes a crash harmless: the ledger's entry reaches the disk, then the block reaches the
file, then the entry is marked done. A retry that finds an entry not done looks into the file and finishes the rest.
Nothing here removes or changes a byte that memoryd did not itself just write.

An append is done only when the path still names the file that was written and the block is at its place in it. An
editor that saves by renaming replaces the file; the text then goes to the new file, unless the editor has copied it.

Finds out what became of appends that a crash cut short, and finishes those of which a part was written.

The block of the append at work, kept until all of it is in the memory file.

A crash in the middle of a write leaves a part of a block at the file's end. Whose bytes those are, and what is missing
of them, only the block itself can tell: the ledger has no more than its hash.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from memoryd_server.errors import FieldViolation, FileBusy, FileReplaced, InvalidRequest, MemorydError
from memoryd_server.sources import Location, Roots, resolve_for_append, stat_file
from memoryd_server.writing.files import MOST_REPLACEMENTS, file_errors, ledger_errors, write_whole
from memoryd_server.writing.ledger import AppendState, Ledger, LedgerEntry
from memoryd_server.writing.memory_file import (
    AppendBlock,
    MemoryFile,
    blocks_with,
    content_of,
    copies_of,
    lead_of,
    opened,
    request_digest,
    sought_in_copies,
)


@dataclass(frozen=True, slots=True)
class AppendReceipt:
    """Where the text stands: the lines of what was appended, heading included.

    `already_appended` is true when an earlier call with the same key had written it.
    """

    path: str
    start_line: int
    end_line: int
    already_appended: bool


class AppendJob:
    """One call's append, over all its attempts.

    `asked_path` is the path as the caller gave it, "" for today's log: what a repeated call is compared by, so that a
    retry after midnight is still the same request. `copies_before` is set before a write: how many copies of the text
    the file held, at most, before any write. It stays None for a blank text.
    """

    def __init__(
        self, text: str, *, path: str, idempotency_key: str = "", heading: str = "", asked_path: str | None = None
    ) -> None:
        self.path = path
        self.key = idempotency_key
        self.content = content_of(text, heading)
        self.heading = heading
        self.request_sha256 = request_digest(text, path if asked_path is None else asked_path, heading)
        self.copies_before: int | None = None


class Appender:
    """Appends to one agent's memory files. Safe from any thread, and beside other processes.

    No call waits for a lock that another program holds: it fails with `FileBusy` and can be repeated.
    """

    def __init__(self, roots: Roots, ledger_path: str) -> None:
        self._roots = roots
        self._ledger = Ledger(ledger_path)
        self._draft = AppendDraft(f"{ledger_path}.block")
        self._recovery = AppendRecovery(roots, self._ledger, self._draft)
        self._locked_out = ""
        self._mutex = threading.Lock()

    def recover(self) -> None:
        """Settles what a crash left unfinished, before anybody edits the files: for the daemon's start.

        What cannot be settled now is settled by the retry or by the next append. A ledger that cannot be used says so
        when it is needed.
        """
        with suppress(MemorydError), self._mutex:
            if self._ledger.exists():
                try:
                    with self._ledger.locked():
                        self._recovery.settle_all()
                except FileBusy as error:
                    self._locked_out = f"{error.message}; what a crash left unfinished is settled by the next append"

    def issues(self) -> tuple[str, ...]:
        """What an operator should know: damage of the ledger, locks of others, and texts that a crash cut short."""
        recovery = self._recovery
        found = (self._ledger.trouble, self._locked_out, *recovery.locked.values(), *recovery.fragments.values())
        return tuple(filter(None, found))

    def append(self, job: AppendJob) -> AppendReceipt:
        """Append the text, below its heading when there is one, and return its lines once they are on disk.

        Blocks on the disk. After `FileBusy` call again with the same job: it remembers what was lost.

        Raises:
            PathNotAllowed: the path is not a memory file of the workspace.
            InvalidRequest: the key was used with other contents.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing of the text stays in the file.
            IndexUnavailable: the ledger cannot be used; nothing was written.
            FileBusy: another program locks the file or the ledger; the file does not hold the text.
            FileReplaced: another program replaced the file after each of several writes; it does not hold the text.
        """
        location = resolve_for_append(self._roots, job.path)
        with self._mutex, self._ledger.locked():
            if self._locked_out or self._draft.exists():
                self._recovery.settle_all()
                self._locked_out = ""
            known = self._ledger.get(job.key) if job.key else None
            return self._begin(job, location) if known is None else self._go_on(job, known, location)

    def _go_on(self, job: AppendJob, known: LedgerEntry, location: Location) -> AppendReceipt:
        if known.request_sha256 != job.request_sha256:
            words = "was used before with other contents; use a new key for a new append"
            raise InvalidRequest([FieldViolation("idempotency_key", words)])
        if known.state is AppendState.DONE:
            return _answer(known, already=True)
        location = resolve_for_append(self._roots, known.path)
        done = self._resume(job, known, location) if known.state is AppendState.PENDING else None
        return self._begin(job, location) if done is None else done

    def _begin(self, job: AppendJob, location: Location) -> AppendReceipt:
        """Write the text as a new block; again into the next file when the one it was written to is replaced."""
        for left in reversed(range(MOST_REPLACEMENTS + 1)):
            with _open(location) as target:
                self._recovery.settle_others(target, job.key)
                entry, block = self._planned(job, target)
                if lines := target.added_copy(job.content, job.copies_before):
                    if target.is_current():
                        return self._finish(replace(entry, start_line=lines[0], end_line=lines[1]))
                    continue
                if not left:
                    self._void(job, target)
                    break
                with self._recorded(entry, block):
                    done = self._write(job, entry, block, target)
                if done is not None:
                    return done
        raise FileReplaced(location.path)

    def _void(self, job: AppendJob, target: MemoryFile) -> None:
        """Void the entry of a lost write, unless the file was replaced yet again: then the retry has to look for it."""
        entry = self._ledger.get(job.key) if job.key else None
        if entry is not None and target.is_current():
            with suppress(MemorydError):
                self._ledger.settle(entry, AppendState.VOID)

    def _planned(self, job: AppendJob, target: MemoryFile) -> tuple[LedgerEntry, AppendBlock]:
        start = target.size()
        block = AppendBlock(lead_of(target.tail(), job.heading), job.content)
        sought = sought_in_copies(job.content)
        newlines, found = target.newlines_and(sought, start) if sought else (target.newlines(start), False)
        copies = len(copies_of(job.content, target.read(0, start))) if found else 0
        # An editor can save again what it read before an earlier write, with all the copies of that time.
        before = max(copies, job.copies_before or 0) if sought else None
        first, last = block.lines_after(newlines)
        place = (target.path, start, len(block.data))
        hashes = (block.sha256, job.request_sha256)
        return LedgerEntry(job.key, *place, *hashes, first, last, copies_before=before), block

    @contextmanager
    def _recorded(self, entry: LedgerEntry, block: AppendBlock) -> Iterator[None]:
        """Keep what a crash would have to be repaired from, where there is a key; an append without one is not."""
        if not entry.key:
            yield
            return
        with self._draft.kept(block.data):
            self._ledger.put(entry, durable=True)
            yield

    def _resume(self, job: AppendJob, entry: LedgerEntry, location: Location) -> AppendReceipt | None:
        """Finish an append that was cut short; None where its text never reached the file, or was lost with it."""
        block = AppendBlock(b"\n" * (entry.length - len(job.content)), job.content)
        earlier_call = job.copies_before is None
        with _open(location) as target:
            lines = target.added_copy(job.content, entry.copies_before)
            whole = target.read(entry.offset, entry.offset + entry.length) == block.data
            # An edit can also move an equal text to the block's place, so the place alone is not enough.
            if whole and (lines or entry.copies_before is None):
                target.sync(names=True)
                lines = entry.start_line, entry.end_line
            torn = target.torn(entry.offset, block.data, whole_text=lines is not None) if earlier_call else 0
            if torn:
                self._recovery.fragments.pop(entry.key, None)
                with self._draft.kept(block.data):
                    return self._write(job, entry, block, target, written=torn)
            if lines and target.is_current():
                entry = replace(entry, start_line=lines[0], end_line=lines[1])
                return self._finish(entry, already=earlier_call)
            job.copies_before = entry.copies_before
        return None

    def _write(
        self, job: AppendJob, entry: LedgerEntry, block: AppendBlock, target: MemoryFile, written: int = 0
    ) -> AppendReceipt | None:
        """Write the block, or the rest of it; None where the file was replaced meanwhile, so that it is lost."""
        job.copies_before = entry.copies_before
        start = target.write(block.data[written:], entry.offset + written) - written
        there = target.read(start, start + len(block.data)) == block.data
        if there and target.is_current():
            if start != entry.offset:
                first, last = block.lines_after(target.newlines(start))
                entry = replace(entry, offset=start, start_line=first, end_line=last)
            return self._finish(entry)
        return None

    def _finish(self, entry: LedgerEntry, *, already: bool = False) -> AppendReceipt:
        if entry.key:
            # The text is on disk. Where the ledger's disk is full just now, the entry stays pending, and a retry finds
            # it.
            with suppress(MemorydError):
                self._ledger.settle(entry, AppendState.DONE)
        return _answer(entry, already=already)


@contextmanager
def _open(location: Location) -> Iterator[MemoryFile]:
    with file_errors(location.path), opened(location) as target:
        yield target


def _answer(entry: LedgerEntry, *, already: bool = False) -> AppendReceipt:
    return AppendReceipt(entry.path, entry.start_line, entry.end_line, already_appended=already)


class AppendDraft:
    """A file that is there only while an append is at work, or when one was cut short. For the ledger's lock holder."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def exists(self) -> bool:
        """Whether an append was cut short."""
        return self._path.exists()

    @contextmanager
    def kept(self, block: bytes) -> Iterator[None]:
        """Keeps a block until its own end; not beyond a power cut, which `block` notices.

        Raises:
            DiskFull: there is no space for it.
            IndexUnavailable: the file cannot be written for any other reason.
        """
        try:
            with ledger_errors(str(self._path)):
                write_whole(self._path, block, durable=False)
            yield
        finally:
            self.drop()

    def block(self, digest: str) -> bytes | None:
        """Returns the block with this SHA-256, None when it is not what was kept."""
        with suppress(OSError):
            kept = self._path.read_bytes()
            if sha256(kept).hexdigest() == digest:
                return kept
        return None

    def drop(self) -> None:
        """Forgets the block."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class AppendRecovery:
    """The unfinished appends of one ledger, whose lock the caller of each method holds.

    `fragments` tells, by key, of parts of a text that stand in a file and cannot be completed without its sender.
    `locked` says, by path, which files could not be looked into because another program locks them.
    """

    def __init__(self, roots: Roots, ledger: Ledger, draft: AppendDraft) -> None:
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

    def settle_others(self, target: MemoryFile, key: str) -> None:
        """Settles the unfinished appends to a file but for that of `key`, while their places in it still tell.

        After the next write an unfinished append could be mistaken for one that happens to say the same.
        """
        self.locked.pop(target.path, None)
        for entry in self._ledger.pending(target.path):
            if entry.key != key and not self._settle(target, entry):
                self._ledger.settle(entry, AppendState.VOID)

    def _settle(self, target: MemoryFile, entry: LedgerEntry) -> bool:
        """Settles an append by what stands in its place; false when that is a part which only its sender can end.

        Where something else is at its place, the file was edited or replaced after the crash, and the block may have
        moved. An edit can also have moved an equal text to its place, so the copies are counted there, too.
        """
        there, size = target.read(entry.offset, entry.offset + entry.length), target.size()
        whole = sha256(there).hexdigest() == entry.block_sha256
        block = there if whole else self._draft.block(entry.block_sha256)
        state = AppendState.DONE
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
            state = AppendState.VOID
        # A file that was replaced meanwhile says nothing of the one that the path names now.
        if target.is_current():
            self._ledger.settle(entry, state)
        return True

    def _added(self, target: MemoryFile, entry: LedgerEntry, block: bytes | None) -> tuple[int, int] | None:
        """Return the lines of an append's text, once it is durable, if the file holds it once more than before."""
        if block is not None or entry.copies_before is None:
            return target.added_copy(block or b"", entry.copies_before)
        found = blocks_with(entry.block_sha256, entry.length, target.read(0, target.size()))
        if len(found) <= entry.copies_before:
            return None
        target.sync(names=True)
        return found[-1]
