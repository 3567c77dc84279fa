"""Appends text to memory files, once per idempotency key.

The order of steps is what makes a crash harmless: the ledger's entry reaches the disk, then the block reaches the
file, then the entry is marked done. A retry that finds an entry not done looks into the file and finishes the rest.
Nothing here removes or changes a byte that memoryd did not itself just write.

An append is done only when the path still names the file that was written and the block is at its place in it. An
editor that saves by renaming replaces the file; the text then goes to the new file, unless the editor has copied it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from memoryd_server.errors import FieldViolation, FileBusy, FileReplaced, InvalidRequest, MemorydError
from memoryd_server.sources.roots import Location, Roots, resolve_for_append
from memoryd_server.writing.block import Block, content_of, copies_of, lead_of, request_digest, sought_in_copies
from memoryd_server.writing.draft import Draft
from memoryd_server.writing.entries import Entry, State
from memoryd_server.writing.faults import file_errors
from memoryd_server.writing.files import MOST_REPLACEMENTS
from memoryd_server.writing.ledger import Ledger
from memoryd_server.writing.recovery import Recovery
from memoryd_server.writing.target import Target, opened


@dataclass(frozen=True, slots=True)
class Appended:
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
        self._draft = Draft(f"{ledger_path}.block")
        self._recovery = Recovery(roots, self._ledger, self._draft)
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

    def append(self, job: AppendJob) -> Appended:
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

    def _go_on(self, job: AppendJob, known: Entry, location: Location) -> Appended:
        if known.request_sha256 != job.request_sha256:
            words = "was used before with other contents; use a new key for a new append"
            raise InvalidRequest([FieldViolation("idempotency_key", words)])
        if known.state is State.DONE:
            return _answer(known, already=True)
        location = resolve_for_append(self._roots, known.path)
        done = self._resume(job, known, location) if known.state is State.PENDING else None
        return self._begin(job, location) if done is None else done

    def _begin(self, job: AppendJob, location: Location) -> Appended:
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

    def _void(self, job: AppendJob, target: Target) -> None:
        """Void the entry of a lost write, unless the file was replaced yet again: then the retry has to look for it."""
        entry = self._ledger.get(job.key) if job.key else None
        if entry is not None and target.is_current():
            with suppress(MemorydError):
                self._ledger.settle(entry, State.VOID)

    def _planned(self, job: AppendJob, target: Target) -> tuple[Entry, Block]:
        start = target.size()
        block = Block(lead_of(target.tail(), job.heading), job.content)
        sought = sought_in_copies(job.content)
        newlines, found = target.newlines_and(sought, start) if sought else (target.newlines(start), False)
        copies = len(copies_of(job.content, target.read(0, start))) if found else 0
        # An editor can save again what it read before an earlier write, with all the copies of that time.
        before = max(copies, job.copies_before or 0) if sought else None
        first, last = block.lines_after(newlines)
        place = (target.path, start, len(block.data))
        hashes = (block.sha256, job.request_sha256)
        return Entry(job.key, *place, *hashes, first, last, copies_before=before), block

    @contextmanager
    def _recorded(self, entry: Entry, block: Block) -> Iterator[None]:
        """Keep what a crash would have to be repaired from, where there is a key; an append without one is not."""
        if not entry.key:
            yield
            return
        with self._draft.kept(block.data):
            self._ledger.put(entry, durable=True)
            yield

    def _resume(self, job: AppendJob, entry: Entry, location: Location) -> Appended | None:
        """Finish an append that was cut short; None where its text never reached the file, or was lost with it."""
        block = Block(b"\n" * (entry.length - len(job.content)), job.content)
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

    def _write(self, job: AppendJob, entry: Entry, block: Block, target: Target, written: int = 0) -> Appended | None:
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

    def _finish(self, entry: Entry, *, already: bool = False) -> Appended:
        if entry.key:
            # The text is on disk. Where the ledger's disk is full just now, the entry stays pending, and a retry finds
            # it.
            with suppress(MemorydError):
                self._ledger.settle(entry, State.DONE)
        return _answer(entry, already=already)


@contextmanager
def _open(location: Location) -> Iterator[Target]:
    with file_errors(location.path), opened(location) as target:
        yield target


def _answer(entry: Entry, *, already: bool = False) -> Appended:
    return Appended(entry.path, entry.start_line, entry.end_line, already_appended=already)
