"""Append text to memory files, once per idempotency key, also after a crash.

The order of steps makes a crash harmless: the ledger's entry reaches the disk, then the block reaches the file, then
the entry is marked done. A retry that finds an unfinished entry looks into the file and completes the append. Only
bytes that memoryd has just written are ever removed or changed.

An append is done only when the path still names the file that was written and the block is at its place in it. An
editor that saves by renaming replaces the file; the text then goes to the new file, unless the editor has copied it.

`AppendDraft` keeps the block on disk until it is completely written. A crash in the middle of a write leaves a part of
a block at the file's end, and only the draft can identify and complete it: the ledger contains only the block's hash.
`AppendRecovery` completes or closes the appends that a crash interrupted.
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
    encode_content,
    find_blocks,
    find_copies,
    missing_newlines,
    needle_of_copies,
    open_memory_file,
    request_digest,
)


@dataclass(frozen=True, slots=True)
class AppendReceipt:
    """The lines of the appended content, heading included.

    `already_appended` is True if an earlier call with the same key wrote it. `revision` is the index's revision
    that holds the text, None if it is not indexed yet.
    """

    path: str
    start_line: int
    end_line: int
    already_appended: bool
    revision: int | None = None


class AppendJob:
    """One call's append, over all its attempts.

    `requested_path` is the path in the request, "" for today's log. Repeated calls are compared by it, so that a retry
    after midnight is still the same request. `copies_before` is set before a write: the largest number of copies of the
    text that the file contained before any write. It stays None for a blank text.
    """

    def __init__(
        self, text: str, *, path: str, idempotency_key: str = "", heading: str = "", requested_path: str | None = None
    ) -> None:
        self.path = path
        self.key = idempotency_key
        self.content = encode_content(text, heading)
        self.heading = heading
        self.request_sha256 = request_digest(text, path if requested_path is None else requested_path, heading)
        self.copies_before: int | None = None


class Appender:
    """Append to one agent's memory files. Thread-safe, and safe with other processes.

    No call waits for a lock that another program holds: it fails with `FileBusy` and can be repeated.
    """

    def __init__(self, roots: Roots, ledger_path: str) -> None:
        self._roots = roots
        self._ledger = Ledger(ledger_path)
        self._draft = AppendDraft(str(draft_path(ledger_path)))
        self._recovery = AppendRecovery(roots, self._ledger, self._draft)
        self._locked_out = ""
        self._mutex = threading.Lock()

    def recover(self) -> None:
        """Settle the appends that a crash interrupted. Called at the daemon's start, before the files are edited.

        What cannot be settled now is settled by the retry or by the next append. An unusable ledger raises no error
        here, but at the next append.
        """
        with suppress(MemorydError), self._mutex:
            if self._ledger.exists():
                try:
                    with self._ledger.lock():
                        self._recovery.settle_all()
                except FileBusy as error:
                    self._locked_out = f"{error.message}; the next append settles what a crash interrupted"

    def release_memory(self) -> None:
        """Drop the ledger's entries from memory, unless a write is running. The next append reads them again."""
        # A disk that hangs can block a write for ever.
        if self._mutex.acquire(blocking=False):
            try:
                self._ledger.release_memory()
            finally:
                self._mutex.release()

    def issues(self) -> tuple[str, ...]:
        """Return messages for the operator: damage of the ledger, foreign locks, and texts that a crash truncated."""
        recovery = self._recovery
        issues = (self._ledger.problem, self._locked_out, *recovery.locked.values(), *recovery.fragments.values())
        return tuple(filter(None, issues))

    def append(self, job: AppendJob) -> AppendReceipt:
        """Append the text, below its heading if it has one, and return its lines once they are on disk.

        Blocks on the disk. After `FileBusy`, call it again with the same job, which remembers the lost writes.

        Raises:
            PathNotAllowed: the path is not a memory file of the workspace.
            InvalidRequest: the key was used with other contents.
            FileNotFound: the workspace does not exist.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left. Nothing of the text stays in the file, or the message says that a part may.
            IndexUnavailable: the ledger cannot be used; nothing was written.
            FileBusy: another program locks the file or the ledger; the file does not contain the text.
            FileReplaced: another program replaced the file after each of several writes; it does not contain the text.
        """
        location = resolve_for_append(self._roots, job.path)
        with self._mutex, self._ledger.lock():
            if self._locked_out or self._draft.exists():
                self._recovery.settle_all()
                self._locked_out = ""
            known = self._ledger.get(job.key) if job.key else None
            return self._begin(job, location) if known is None else self._continue(job, known, location)

    def _continue(self, job: AppendJob, known: LedgerEntry, location: Location) -> AppendReceipt:
        if known.request_sha256 != job.request_sha256:
            words = "was used before with other contents; use a new key for a new append"
            raise InvalidRequest([FieldViolation("idempotency_key", words)])
        if known.state is AppendState.DONE:
            return _receipt(known, already=True)
        location = resolve_for_append(self._roots, known.path)
        done = self._resume(job, known, location) if known.state is AppendState.PENDING else None
        return self._begin(job, location) if done is None else done

    def _begin(self, job: AppendJob, location: Location) -> AppendReceipt:
        """Write the text as a new block. If the file is replaced, write the text to the new file."""
        for left in reversed(range(MOST_REPLACEMENTS + 1)):
            with _open(location) as target:
                self._recovery.settle_others(target, job.key)
                entry, block = self._plan(job, target)
                if lines := target.find_added_copy(job.content, job.copies_before):
                    if target.is_current():
                        return self._finish(replace(entry, start_line=lines[0], end_line=lines[1]))
                    continue
                if not left:
                    self._void(job, target)
                    break
                with self._record(entry, block):
                    done = self._write(job, entry, block, target)
                if done is not None:
                    return done
        raise FileReplaced(location.path)

    def _void(self, job: AppendJob, target: MemoryFile) -> None:
        """Void the entry of a lost write, unless the file was replaced again: then the retry looks for the text."""
        entry = self._ledger.get(job.key) if job.key else None
        if entry is not None and target.is_current():
            with suppress(MemorydError):
                self._ledger.settle(entry, AppendState.VOID)

    def _plan(self, job: AppendJob, target: MemoryFile) -> tuple[LedgerEntry, AppendBlock]:
        start = target.size()
        block = AppendBlock(missing_newlines(target.tail(), job.heading), job.content)
        needle = needle_of_copies(job.content)
        newlines, found = (
            target.count_newlines_and_find(needle, start) if needle else (target.count_newlines(start), False)
        )
        copies = len(find_copies(job.content, target.read(0, start))) if found else 0
        # An editor can save again what it read before an earlier write, with all the copies of that time.
        before = max(copies, job.copies_before or 0) if needle else None
        first, last = block.lines_after(newlines)
        place = (target.path, start, len(block.data))
        hashes = (block.sha256, job.request_sha256)
        return LedgerEntry(job.key, *place, *hashes, first, last, copies_before=before), block

    @contextmanager
    def _record(self, entry: LedgerEntry, block: AppendBlock) -> Iterator[None]:
        """Save the block and the entry, for a repair after a crash. Does nothing for an append without a key."""
        if not entry.key:
            yield
            return
        with self._draft.save(block.data):
            self._ledger.put(entry, durable=True)
            yield

    def _resume(self, job: AppendJob, entry: LedgerEntry, location: Location) -> AppendReceipt | None:
        """Complete an interrupted append. Return None if its text never reached the file, or was lost with it."""
        block = AppendBlock(b"\n" * (entry.length - len(job.content)), job.content)
        earlier_call = job.copies_before is None
        with _open(location) as target:
            lines = target.find_added_copy(job.content, entry.copies_before)
            whole = target.read(entry.offset, entry.offset + entry.length) == block.data
            # An edit can also move an equal text to the block's place, so the place alone is not enough.
            if whole and (lines or entry.copies_before is None):
                target.sync(names=True)
                lines = entry.start_line, entry.end_line
            torn = target.torn_length(entry.offset, block.data, whole_text=lines is not None) if earlier_call else 0
            if torn:
                self._recovery.fragments.pop(entry.key, None)
                with self._draft.save(block.data):
                    return self._write(job, entry, block, target, written=torn)
            if lines and target.is_current():
                entry = replace(entry, start_line=lines[0], end_line=lines[1])
                return self._finish(entry, already=earlier_call)
            job.copies_before = entry.copies_before
        return None

    def _write(
        self, job: AppendJob, entry: LedgerEntry, block: AppendBlock, target: MemoryFile, written: int = 0
    ) -> AppendReceipt | None:
        """Write the block, or the rest of it. Return None if the write was lost because the file was replaced."""
        job.copies_before = entry.copies_before
        start = target.write(block.data[written:], entry.offset + written) - written
        is_written = target.read(start, start + len(block.data)) == block.data
        if is_written and target.is_current():
            if start != entry.offset:
                first, last = block.lines_after(target.count_newlines(start))
                entry = replace(entry, offset=start, start_line=first, end_line=last)
            return self._finish(entry)
        return None

    def _finish(self, entry: LedgerEntry, *, already: bool = False) -> AppendReceipt:
        if entry.key:
            # The text is on disk. If the ledger's disk is full, the entry stays pending, and a retry finds the text.
            with suppress(MemorydError):
                self._ledger.settle(entry, AppendState.DONE)
        return _receipt(entry, already=already)


@contextmanager
def _open(location: Location) -> Iterator[MemoryFile]:
    with file_errors(location.path), open_memory_file(location) as target:
        yield target


def _receipt(entry: LedgerEntry, *, already: bool = False) -> AppendReceipt:
    return AppendReceipt(entry.path, entry.start_line, entry.end_line, already_appended=already)


def draft_path(ledger_path: str) -> Path:
    """Return the file of the draft of an append that is recorded in a ledger."""
    return Path(f"{ledger_path}.block")


class AppendDraft:
    """A file that exists only during an append, or after an interrupted one. For the holder of the ledger's lock."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def exists(self) -> bool:
        """Return whether an append was interrupted."""
        return self._path.exists()

    @contextmanager
    def save(self, block: bytes) -> Iterator[None]:
        """Keep a block on disk while the `with` block runs. It may not survive a power failure; `load` detects that.

        Raises:
            DiskFull: no space is left for it.
            IndexUnavailable: the file cannot be written for another reason.
        """
        try:
            with ledger_errors(str(self._path)):
                write_whole(self._path, block, durable=False)
            yield
        finally:
            self.delete()

    def load(self, digest: str) -> bytes | None:
        """Return the saved block if `digest` is its SHA-256, else None."""
        with suppress(OSError):
            block = self._path.read_bytes()
            if sha256(block).hexdigest() == digest:
                return block
        return None

    def delete(self) -> None:
        """Delete the saved block."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class AppendRecovery:
    """The unfinished appends of one ledger, whose lock the caller of each method holds.

    `fragments` describes, by key, partial texts in files that only their sender can complete. `locked` describes, by
    path, the files that could not be read because another program locks them.
    """

    def __init__(self, roots: Roots, ledger: Ledger, draft: AppendDraft) -> None:
        self.fragments: dict[str, str] = {}
        self.locked: dict[str, str] = {}
        self._roots = roots
        self._ledger = ledger
        self._draft = draft

    def settle_all(self) -> None:
        """Settle every unfinished append whose file can be read and written; others wait for their retry."""
        for path in {entry.path for entry in self._ledger.unfinished()}:
            with suppress(MemorydError, OSError):
                self._settle_file(path)
        if not self.locked:
            self._draft.delete()

    def _settle_file(self, path: str) -> None:
        location = resolve_for_append(self._roots, path)
        # Opening would create the file. A missing file proves nothing: its disk may not be mounted.
        if stat_file(location) is None:
            self.locked.pop(path, None)
            return
        try:
            with open_memory_file(location) as target:
                self.locked.pop(path, None)
                for entry in self._ledger.pending(path):
                    self._settle(target, entry)
        except FileBusy as error:
            self.locked[path] = f"{error.message}; the next append settles what a crash interrupted in it"

    def settle_others(self, target: MemoryFile, key: str) -> None:
        """Settle the unfinished appends to a file, except that of `key`, before the file changes.

        After the next write an unfinished append could be mistaken for another with an equal text.
        """
        self.locked.pop(target.path, None)
        for entry in self._ledger.pending(target.path):
            if entry.key != key and not self._settle(target, entry):
                self._ledger.settle(entry, AppendState.VOID)

    def _settle(self, target: MemoryFile, entry: LedgerEntry) -> bool:
        """Settle an append by the bytes at its place. Return False if only its sender can complete it.

        If other bytes are at its place, the file was edited or replaced after the crash, and the block may have moved.
        An edit can also have moved an equal text to its place, so the copies are counted in that case too.
        """
        data, size = target.read(entry.offset, entry.offset + entry.length), target.size()
        whole = sha256(data).hexdigest() == entry.block_sha256
        block = data if whole else self._draft.load(entry.block_sha256)
        state = AppendState.DONE
        lines = self._find_added(target, entry, block)
        if block is not None and (torn := target.torn_length(entry.offset, block, whole_text=lines is not None)):
            target.write(block[torn:], size)
        elif whole and (lines or entry.copies_before is None):
            target.sync(names=True)
        elif lines:
            entry = replace(entry, start_line=lines[0], end_line=lines[1])
        elif block is None and 0 < size - entry.offset < entry.length:
            self.fragments[entry.key] = (
                f"{entry.path}, line {target.count_newlines(size) + 1}: a crash interrupted an append and left a part "
                "of its text. Send it again with the same key to complete it; after other appends the part stays"
            )
            return False
        else:
            state = AppendState.VOID
        # A replaced file says nothing about the file that the path names now.
        if target.is_current():
            self._ledger.settle(entry, state)
        return True

    def _find_added(self, target: MemoryFile, entry: LedgerEntry, block: bytes | None) -> tuple[int, int] | None:
        """Return the lines of an append's text, once it is durable, if the file contains one copy more than before."""
        if block is not None or entry.copies_before is None:
            return target.find_added_copy(block or b"", entry.copies_before)
        places = find_blocks(entry.block_sha256, entry.length, target.read(0, target.size()))
        if len(places) <= entry.copies_before:
            return None
        target.sync(names=True)
        return places[-1]
