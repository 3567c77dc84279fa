"""Appends text to memory files, once per idempotency key.

The order of steps is what makes a crash harmless: the ledger's entry reaches the disk, then the block reaches the
file, then the entry is marked done. A retry that finds an entry not done looks into the file and finishes the rest.
Nothing here removes or changes a byte that memoryd did not itself just write.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from memoryd_server.errors import FieldViolation, InvalidRequest, MemorydError
from memoryd_server.sources.roots import Location, Roots, resolve_for_append
from memoryd_server.writing.block import Block, content_of, lead_of, request_digest
from memoryd_server.writing.draft import Draft
from memoryd_server.writing.entries import Entry, State
from memoryd_server.writing.faults import file_errors
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


@dataclass(frozen=True, slots=True)
class _Job:
    key: str
    content: bytes
    heading: str
    request_sha256: str


class Appender:
    """Appends to one agent's memory files. Safe from any thread, and beside other processes."""

    def __init__(self, roots: Roots, ledger_path: str) -> None:
        self._roots = roots
        self._ledger = Ledger(ledger_path)
        self._draft = Draft(f"{ledger_path}.block")
        self._recovery = Recovery(roots, self._ledger, self._draft)
        self._mutex = threading.Lock()

    def recover(self) -> None:
        """Settles what a crash left unfinished, before anybody edits the files: for the daemon's start.

        What cannot be settled now is settled by the retry or by the next append. A ledger that cannot be used says so
        when it is needed.
        """
        with suppress(MemorydError), self._mutex:
            if self._ledger.exists():
                with self._ledger.locked():
                    self._recovery.settle_all()

    def issues(self) -> tuple[str, ...]:
        """What an operator should know: damage of the ledger, and texts that a crash cut short."""
        return tuple(filter(None, (self._ledger.trouble, *self._recovery.fragments.values())))

    def append(
        self, text: str, *, path: str, idempotency_key: str = "", heading: str = "", asked_path: str | None = None
    ) -> Appended:
        """Appends `text`, below `## heading` when there is one, and returns its lines once they are on disk.

        `asked_path` is the path as the caller gave it, "" for today's log: what a repeated call is compared by, so
        that a retry after midnight is still the same request. Blocks on locks and on the disk.

        Raises:
            PathNotAllowed: `path` is not a memory file of the workspace.
            InvalidRequest: the key was used with other contents.
            WorkspaceReadOnly: the file system or its permissions refuse the write.
            DiskFull: no space is left; nothing of the text stays in the file.
            IndexUnavailable: the ledger cannot be used; nothing was written.
        """
        location = resolve_for_append(self._roots, path)
        asked = path if asked_path is None else asked_path
        digest = request_digest(text, asked, heading)
        job = _Job(idempotency_key, content_of(text, heading), heading, digest)
        with self._mutex, self._ledger.locked():
            if self._draft.exists():
                self._recovery.settle_all()
            return self._once(job, location) if job.key else self._unprotected(job, location)

    def _unprotected(self, job: _Job, location: Location) -> Appended:
        with _open(location) as target:
            self._recovery.settle_others(target, job.key)
            start, block = _plan(job, target)
            return _answer(location.path, block.lines_after(target.newlines(target.write(block.data, start))))

    def _once(self, job: _Job, location: Location) -> Appended:
        known = self._ledger.get(job.key)
        if known is None:
            return self._begin(job, location)
        if known.request_sha256 != job.request_sha256:
            words = "was used before with other contents; use a new key for a new append"
            raise InvalidRequest([FieldViolation("idempotency_key", words)])
        if known.state is State.DONE:
            return _answer(known.path, (known.start_line, known.end_line), already=True)
        return self._resume(job, known)

    def _begin(self, job: _Job, location: Location) -> Appended:
        with _open(location) as target:
            self._recovery.settle_others(target, job.key)
            start, block = _plan(job, target)
            first, last = block.lines_after(target.newlines(start))
            entry = Entry(job.key, location.path, start, len(block.data), block.sha256, job.request_sha256, first, last)
            with self._draft.kept(block.data):
                self._ledger.put(entry, durable=True)
                return self._write(entry, block, target)

    def _resume(self, job: _Job, entry: Entry) -> Appended:
        location = resolve_for_append(self._roots, entry.path)
        block = Block(b"\n" * (entry.length - len(job.content)), job.content)
        with _open(location) as target:
            if entry.state is State.PENDING:
                written = target.read(entry.offset, entry.offset + entry.length)
                if written == block.data:
                    target.sync(names=entry.offset == 0)
                    return self._finish(entry, already=True)
                if target.size() == entry.offset + len(written) and block.data.startswith(written):
                    self._recovery.fragments.pop(entry.key, None)
                    with self._draft.kept(block.data):
                        return self._write(entry, block, target, written=len(written))
        # Somebody else wrote where the block was to stand, so it never reached the file.
        return self._begin(job, location)

    def _write(self, entry: Entry, block: Block, target: Target, written: int = 0) -> Appended:
        start = target.write(block.data[written:], entry.offset + written) - written
        if start != entry.offset:
            first, last = block.lines_after(target.newlines(start))
            entry = replace(entry, offset=start, start_line=first, end_line=last)
        return self._finish(entry)

    def _finish(self, entry: Entry, *, already: bool = False) -> Appended:
        # The text is on disk. Where the ledger's disk is full just now, the entry stays pending, and a retry finds it.
        with suppress(MemorydError):
            self._ledger.settle(entry, State.DONE)
        return _answer(entry.path, (entry.start_line, entry.end_line), already=already)


@contextmanager
def _open(location: Location) -> Iterator[Target]:
    with file_errors(location.path), opened(location) as target:
        yield target


def _plan(job: _Job, target: Target) -> tuple[int, Block]:
    return target.size(), Block(lead_of(target.tail(), job.heading), job.content)


def _answer(path: str, lines: tuple[int, int], *, already: bool = False) -> Appended:
    return Appended(path, *lines, already_appended=already)
