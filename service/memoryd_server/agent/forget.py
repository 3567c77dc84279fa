"""Forget a file, a session or a text: remove it from the index, the cache, the history and, if requested, the disk.

The work is done on the writer thread, so that no sync runs at the same time. The order of the steps makes a crash
harmless: first the source is deleted, or excluded for good, then the history of its writes, then its rows. A repeated
call removes what is left. Because the source is deleted first, no edit can add its content to the history afterwards.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace

from memoryd_server.agent.config import AgentConfig
from memoryd_server.agent.requests import ForgetRequest
from memoryd_server.agent.state import IndexMonitor
from memoryd_server.agent.threads import AgentDocuments
from memoryd_server.chunk import memory_chunks, split_annotations, split_front_matter
from memoryd_server.errors import (
    DeadlineTooShort,
    FileNotFound,
    IndexBusy,
    IndexUnavailable,
    MemorydError,
    PathNotAllowed,
)
from memoryd_server.model import Source, SourceFile, settled
from memoryd_server.sources import (
    SESSIONS_FOLDER,
    FileTooLarge,
    ForgottenSources,
    Location,
    is_imported_session,
    path_without_title,
    resolve_for_append,
    resolve_path,
    session_id,
)
from memoryd_server.store import FileRow, PreparedFile, Store, VectorCache
from memoryd_server.writing import SeenFile

BUSY_SECONDS = 0.5
"""How long before the deadline a call ends whose work has not begun, because another process changes the index."""


@dataclass(frozen=True, slots=True)
class ForgetReceipt:
    """How much was removed, by store, and the index's revision afterwards.

    `purge_pending` is whether removed text still has to be overwritten on the disk.
    """

    revision: int
    chunks: int = 0
    keyword_entries: int = 0
    vectors: int = 0
    cached_embeddings: int = 0
    qmd_documents: int = 0
    source_files: int = 0
    purge_pending: bool = False
    history_contents: int = 0


class ForgetJob:
    """Forgets for one agent. `config` and `cache` return the current ones; `now_ns` is the wall clock.

    No edit runs during the work: it could store again what is being removed.
    """

    def __init__(
        self,
        store: Store,
        documents: AgentDocuments,
        forgotten: ForgottenSources,
        config: Callable[[], AgentConfig],
        cache: Callable[[], VectorCache | None],
        *,
        now_ns: Callable[[], int],
    ) -> None:
        self._store = store
        self._corpus, self._writer, self._history = documents.corpus, documents.writer, documents.history
        self._transcripts = documents.transcripts
        self._forgotten = forgotten
        self._config = config
        self._cache = cache
        self._now_ns = now_ns

    def carry_out(self, request: ForgetRequest, should_stop: Callable[[], bool]) -> ForgetReceipt:
        """Remove what is named from index and cache; `purge` then overwrites its text.

        `should_stop` ends the wait for another process that is changing the index, and nothing else.

        Raises:
            PathNotAllowed: the path is no memory file, or its source may not be deleted.
            FileNotFound: what is named is neither on disk nor in the index nor in the history.
            HistoryUnavailable: the history of writes cannot be used. Call again to remove what is left.
            WorkspaceReadOnly, DiskFull, IndexReadOnly: nothing was removed.
            FileReplaced: the source to delete is not the one that was read, and is kept; the index has not changed.
            IndexUnavailable: the index cannot be used, or the system refuses the source.
            IndexBusy: an edit takes too long, or another process is changing the index; nothing was removed.
        """
        with self._store.exclusive(should_stop), self._writer.paused():
            if self._config().has_replicas:
                # Another one may have forgotten a file since.
                self._forgotten.load()
            return self._carry_out(request)

    def _carry_out(self, request: ForgetRequest) -> ForgetReceipt:
        receipt = self._source(request) if request.text is None else self._text(request.text)
        # An edit that deleted the text can be the last change of the index, and not yet overwritten there.
        return replace(receipt, purge_pending=self._store.has_deleted_text)

    def _source(self, request: ForgetRequest) -> ForgetReceipt:
        try:
            if request.path is None:
                return self._session(request.session_id or "", delete_source=request.delete_source)
            return self._file(request.path, delete_source=request.delete_source)
        except OSError as error:
            raise IndexUnavailable(f"the source cannot be read or deleted: {error}") from error

    def purge(self, should_stop: Callable[[], bool]) -> bool:
        """Overwrite removed text on the disk; return False if it has to be called again."""
        if not self._store.has_deleted_text:
            return True
        try:
            with self._store.exclusive(should_stop):
                return self._store.purge(should_stop)
        except IndexBusy:
            return False

    def _file(self, path: str, *, delete_source: bool) -> ForgetReceipt:
        roots = self._corpus.roots
        location = (resolve_for_append if delete_source else resolve_path)(roots, path)
        if delete_source:
            self._writer.prepare_deletion(location)
        row = self._store.writer().files().get((Source.MEMORY, location.path))
        seen, empty = self._look_at(location)
        # Before anything is removed, because it fails if the history cannot be used.
        has_history = self._history.has(location.path)
        if row is None and seen is None and not has_history:
            raise FileNotFound(
                f"{location.path!r} is neither on disk nor in the index nor in the history of writes",
                metadata={"path": location.path},
            )
        if (delete_source or empty is None) and (remembered := path_without_title(location.path)):
            # Another import would write it again, also if the file was deleted before.
            found = None if seen is None else seen.content_hash
            self._forgotten.add_file(remembered, found or bytes(32))
        if delete_source:
            deleted, empty = 0 if seen is None else int(self._writer.delete(location, seen)), None
        elif empty is not None:
            deleted = 0
            self._forgotten.add_file(location.path, empty.content_hash)
        else:
            deleted = 0
        contents = self._history.forget_path(location.path)
        receipt = self._removed([] if row is None else [row], [] if row is None or empty is None else [empty])
        return replace(receipt, source_files=deleted, history_contents=contents)

    def _look_at(self, location: Location) -> tuple[SeenFile | None, PreparedFile | None]:
        """Return the file as it is, None if it is missing; and its row without chunks, None if it cannot be read."""
        try:
            data, stat = self._corpus.read(location, self._config().sync.max_file_bytes)
        except FileNotFound:
            return None, None
        except (FileTooLarge, PermissionError):
            stat_only = self._corpus.stat_file(location)
            return None if stat_only is None else SeenFile(stat_only), None
        content_hash = hashlib.sha256(data).digest()
        empty = PreparedFile(location.path, location.source, settled(stat, self._now_ns()), content_hash)
        return SeenFile(stat, content_hash), empty

    def _session(self, wanted: str, *, delete_source: bool) -> ForgetReceipt:
        in_database = self._is_in_database(wanted, must_know=delete_source)
        if delete_source and in_database:
            raise PathNotAllowed(
                wanted,
                "the session is in OpenClaw's database, which memoryd never writes; delete it in OpenClaw, or forget "
                "it without delete_source",
            )
        if delete_source and self._transcripts is None:
            folder = str(self._config().sessions_folder)
            self._writer.prepare_deletion(Location(SESSIONS_FOLDER, folder, (wanted,), Source.SESSIONS))
        files = [file for file in self._corpus.list_transcripts() if session_id(file.parts[-1]) == wanted]
        rows = [
            row
            for (source, path), row in self._store.writer().files().items()
            if source is Source.SESSIONS and session_id(path.rpartition("/")[2]) == wanted
        ]
        if not (files or rows or in_database):
            raise FileNotFound(f"no transcript of the session {wanted!r} is on disk or in the index")
        if delete_source:
            if is_imported_session(wanted):
                # Another import would write it again.
                self._forgotten.add_session(wanted)
            deleted = self._delete_transcripts(wanted, files)
        else:
            deleted = 0
            self._forgotten.add_session(wanted)
        return replace(self._removed(rows, []), source_files=deleted)

    def _delete_transcripts(self, session: str, files: Sequence[SourceFile]) -> int:
        if self._transcripts is not None:
            return self._transcripts.delete_session(session)
        # The gateway may be writing to a transcript; only one that was replaced is another file.
        return sum(self._writer.delete(_location(file), SeenFile(file.stat, may_grow=True)) for file in files)

    def _is_in_database(self, session: str, *, must_know: bool) -> bool:
        """Return whether the gateway's database has the session; False if it cannot be read, unless `must_know`."""
        try:
            return self._corpus.has_session(session)
        except (OSError, MemorydError):
            if must_know:
                raise
            return False

    def _removed(self, rows: Sequence[FileRow], emptied: Sequence[PreparedFile]) -> ForgetReceipt:
        """Remove rows, but keep those of `emptied` files without chunks, so that no sync indexes these files again."""
        writer = self._store.writer()
        with self._store.read() as reader:
            held = reader.stored_counts([row.id for row in rows])
        stay = {(file.source, file.path) for file in emptied}
        gone = [row for row in rows if (row.source, row.path) not in stay]
        revision = writer.write(emptied, gone) if rows else writer.revision()
        return ForgetReceipt(
            revision,
            len(held.hashes),
            held.keyword_entries,
            held.vectors,
            cached_embeddings=self._uncached(held.hashes),
        )

    def _text(self, text: str) -> ForgetReceipt:
        config = self._config()
        body, plain = split_front_matter(text).body, split_annotations(text)[0]
        sizes = config.chunk_tokens, config.chunk_overlap
        pieces = [chunk for curated in (False, True) for chunk in memory_chunks(body, *sizes, curated=curated)]
        hashes = {hashlib.sha256(each.encode()).digest() for each in (text, text.strip(), plain, plain.strip())}
        with self._store.read() as reader:
            # The chunks of an older version contain the annotations.
            hashes |= reader.hashes_containing(text)
            if plain.strip():
                hashes |= reader.hashes_containing(plain)
            revision = reader.revision
        contents = self._history.forget_text(text.encode())
        removed = self._uncached(hashes.union(c.content_hash for c in pieces))
        return ForgetReceipt(revision, cached_embeddings=removed, history_contents=contents)

    def _uncached(self, hashes: Iterable[bytes]) -> int:
        cache = self._cache()
        return 0 if cache is None else cache.forget(hashes)


async def forget(
    job: ForgetJob,
    request: ForgetRequest,
    deadline: float,
    *,
    monitor: IndexMonitor,
    writer_thread: Executor,
    monotonic: Callable[[], float],
) -> ForgetReceipt:
    """Run `job` between two passes of a sync, before `deadline` in seconds of `monotonic`. On the event loop.

    Raises:
        DeadlineTooShort: a sync left no time before the deadline, or the work itself takes longer.
        MemorydError: as `ForgetJob.carry_out`.
    """
    if monitor.current.syncing:
        # A run that makes vectors then ends its pass, as for any other change of files.
        monitor.update(dirty=True)
    work = writer_thread.submit(job.carry_out, request, lambda: monotonic() > deadline - BUSY_SECONDS)
    # Submitted together, so that no pass of a sync comes between.
    purge = writer_thread.submit(job.purge, lambda: monotonic() > deadline)
    try:
        async with asyncio.timeout(max(0.0, deadline - monotonic())):
            receipt = await asyncio.wrap_future(work)
    except TimeoutError as error:
        raise _too_late(nothing_done=work.cancelled()) from error
    monitor.update(revision=max(receipt.revision, monitor.current.revision))
    purged = receipt.purge_pending and await _in_time(purge, deadline - monotonic())
    return replace(receipt, purge_pending=receipt.purge_pending and not purged)


async def _in_time(purge: Future[bool], seconds: float) -> bool:
    """Return whether the removed text was overwritten in time; if not, that continues in the background."""
    done = asyncio.wrap_future(purge)
    await asyncio.wait((done,), timeout=max(0.0, seconds))
    return done.done() and done.exception() is None and done.result()


def _too_late(*, nothing_done: bool) -> DeadlineTooShort:
    words = (
        "a sync is under way and left no time before the deadline; nothing was removed, try again after it"
        if nothing_done
        else "what is named is still being removed; call again to make sure, with a longer deadline"
    )
    return DeadlineTooShort(words, retry_after_seconds=1.0)


def _location(file: SourceFile) -> Location:
    return Location(file.path, file.root, file.parts, file.source)
