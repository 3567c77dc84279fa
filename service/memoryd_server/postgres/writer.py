"""PostgresWriter: files, transcripts and vectors of an index.

Each method runs in its own transaction, which locks the agent and checks that no other replica has taken the lease
over. For one thread.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from memoryd_server.errors import IndexBusy, SyncCancelled
from memoryd_server.model import Chunk, FileStat
from memoryd_server.postgres import vectors
from memoryd_server.postgres.connection import Database
from memoryd_server.postgres.file_rows import FileRows, refill_chunks, store_stat
from memoryd_server.postgres.reader import all_files, memory_files, transcript_state
from memoryd_server.postgres.scope import OWN, AgentScope
from memoryd_server.postgres.session import Connection, Operation
from memoryd_server.postgres.vectors import PostgresVectorWriter
from memoryd_server.store import (
    ROWS_VERSION,
    FileKey,
    FileRow,
    PreparedFile,
    StopSign,
    TranscriptPart,
    TranscriptState,
    VectorIdentity,
    VectorView,
    batches_of,
)

_COPY_BATCH = 500
_REFILL_BATCH = 500
_NOTIFY_SECONDS: Final = 1.0


class AgentWriter:
    """Transactions that change an agent's index, under the lease of this replica with number `fence`.

    `changes` counts the transactions that have begun. `is_lost` is whether one has found that another replica has taken
    the lease over. `notify` tells the other replicas of changes: about once a second during a lease.
    """

    def __init__(
        self,
        database: Database,
        agent_id: str,
        notify: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._agent_id = agent_id
        self._notify = notify
        self._monotonic = monotonic
        self._fence: int | None = None
        self._has_news = False
        self._notified_at = -math.inf
        self.changes = 0
        self.is_lost = False
        self.last_fence: int | None = None
        """The number of the last lease; None before the first."""

    @property
    def fence(self) -> int | None:
        """The number of the lease; None without one."""
        return self._fence

    def begin(self, fence: int) -> None:
        """Allow changes under a lease."""
        self._fence = self.last_fence = fence
        self.is_lost = False
        self._notified_at = self._monotonic()

    def end(self) -> None:
        """Allow no more changes."""
        self._fence = None

    @contextmanager
    def read(self, generation: int | None) -> Iterator[AgentScope]:
        """Open a snapshot of a generation; of the current one if it is None."""
        with self._database.read(self._agent_id, operation=Operation.INDEX_READ) as connection:
            yield AgentScope.load(connection, self._agent_id, generation)

    @contextmanager
    def change(self, generation: int | None) -> Iterator[AgentScope]:
        """Open a transaction that changes a generation; the current one if it is None.

        Raises:
            IndexBusy: another replica has taken the lease over.
            RuntimeError: this replica has no lease of the agent.
        """
        self.changes += 1
        scope: AgentScope | None = None
        try:
            with self._locked() as connection:
                scope = AgentScope.load(connection, self._agent_id, generation)
                yield scope
        finally:
            # Also after an error: the change may be stored although the answer to its commit was lost.
            if scope is not None and generation is None and scope.revision != scope.state.revision:
                self.record_news()
        if self._monotonic() - self._notified_at >= _NOTIFY_SECONDS:
            self.notify()

    def record_news(self) -> None:
        """Record that other replicas have to load what they remember of the index."""
        self._has_news = True

    def notify(self) -> None:
        """Tell the other replicas of changes since the last time, if there were any."""
        if self._has_news:
            self._has_news = False
            self._notified_at = self._monotonic()
            self._notify()

    @contextmanager
    def _locked(self) -> Iterator[Connection]:
        """Open a transaction that no other one of the agent's index overlaps."""
        if self._fence is None:
            raise RuntimeError(
                f"the index of the agent {self._agent_id!r} was changed outside `PostgresStore.exclusive`"
            )
        with self._database.write(self._agent_id, operation=Operation.INDEX_WRITE, is_long=True) as connection:
            query = "SELECT fence FROM agents WHERE agent_id = %s FOR UPDATE"
            row = connection.execute(query, (self._agent_id,)).fetchone()
            if row is not None and row[0] != self._fence:
                self.is_lost = True
                raise IndexBusy(
                    f"another memoryd has taken over the index of the agent {self._agent_id!r}, because this one was "
                    "cut off from the database for too long; try again",
                    retry_after_seconds=1.0,
                )
            yield connection


class PostgresWriter(PostgresVectorWriter):
    """Writes the rows of one generation, whole files at a time; of the current generation if `generation` is None.

    `identity_json` is the build identity of the files to write.
    """

    def __init__(self, agent: AgentWriter, identity_json: str, generation: int | None = None) -> None:
        super().__init__(lambda: agent.read(generation), lambda: agent.change(generation))
        self._identity_json = identity_json
        self._rows = FileRows()

    def files(self) -> dict[FileKey, FileRow]:
        """Return every indexed file, by source and path."""
        with self._open_scope() as scope:
            return all_files(scope)

    def memory_files(self, paths: Collection[str]) -> dict[FileKey, FileRow]:
        """Return the rows of the Markdown files with these paths; paths that are not indexed are left out."""
        with self._open_scope() as scope:
            return memory_files(scope, paths)

    def revision(self) -> int:
        """Return the index revision."""
        with self._open_scope() as scope:
            return scope.state.revision

    def write(self, files: Sequence[PreparedFile | TranscriptPart], removed: Iterable[FileRow] = ()) -> int:
        """Replace and remove whole files and append to transcripts, in one transaction; return the new revision."""
        with self._change() as scope:
            if files:
                scope.run(
                    f"UPDATE generations SET mixed_chunking = true WHERE {OWN} AND identity <> %(identity)s",  # noqa: S608 -- a constant
                    identity=self._identity_json,
                )
            self._rows.begin(scope, files)
            self._rows.remove([row.id for row in removed])
            for file in files:
                if isinstance(file, TranscriptPart):
                    self._rows.add_part(file)
                else:
                    self._rows.replace(file)
            self._rows.end()
            return scope.raise_revision()

    def touch(self, rows: Sequence[tuple[FileRow, FileStat]]) -> None:
        """Store the new stats of files whose bytes have not changed. The revision does not change."""
        with self._change() as scope:
            for row, stat in rows:
                store_stat(scope, row.id, stat)

    def record_sync(self, completed_at_ms: int) -> None:
        """Store when a sync completed (Unix milliseconds)."""
        # The commit does not wait for the disk, because it changes no text.
        query = f"""UPDATE generations SET last_sync_ms = %(at)s
            WHERE {OWN} AND set_config('synchronous_commit', 'off', true) <> ''"""  # noqa: S608 -- a constant
        with self._change() as scope:
            scope.run(query, at=completed_at_ms)

    def record_failover(self, record: str) -> None:
        """Store the record of which provider makes the vectors instead of the configured one."""
        with self._change() as scope:
            scope.run(f"UPDATE generations SET failover_record = %(record)s WHERE {OWN}", record=record)  # noqa: S608 -- a constant

    def transcript(self, file_id: int) -> TranscriptState | None:
        """Return how far a transcript was read; None for any other file and for a transcript that could not be read."""
        with self._open_scope() as scope:
            return transcript_state(scope, file_id)

    def outdated_transcripts(self, version: str) -> frozenset[int]:
        """Return the ids of the transcripts that were read by another version of the reader."""
        query = f"SELECT id FROM files WHERE {OWN} AND reader_version <> %(version)s"  # noqa: S608 -- a constant
        with self._open_scope() as scope:
            return frozenset(row[0] for row in scope.all(query, version=version))

    def refill_transcript(self, row: FileRow, chunks: Iterable[Chunk], should_stop: StopSign) -> None:
        """Fill the columns of a transcript that an older version indexed; its text and vectors do not change.

        Raises:
            SyncCancelled: `should_stop` returned true; the next run fills all of them.
        """
        after = 0
        for batch in batches_of(chunks, _REFILL_BATCH):
            if should_stop():
                raise SyncCancelled("the sync run was cancelled; what it has filled stays filled")
            with self._change() as scope:
                after = refill_chunks(scope, row.id, after, batch)
        with self._change() as scope:
            query = f"UPDATE files SET rows_version = %(version)s WHERE {OWN} AND id = %(file)s"  # noqa: S608 -- a constant
            scope.run(query, version=ROWS_VERSION, file=row.id)
            scope.raise_revision()

    def staged(self) -> PostgresVectorWriter | None:
        """Return the writer of the staged set; None if there is none."""
        with self._open_scope() as scope:
            return None if scope.state.staged_set is None else self._staged_writer()

    def _staged_writer(self) -> PostgresVectorWriter:
        return PostgresVectorWriter(self._open_scope, self._change, is_staged=True)

    def stage_vectors(self, identity: VectorIdentity) -> PostgresVectorWriter:
        """Begin a staged set of vectors of `identity`, and delete an earlier one; return its writer."""
        with self._change() as scope:
            if scope.state.staged_set is not None:
                vectors.delete_set(scope, scope.state.staged_set)
            scope.run(
                f"""UPDATE generations SET staged_identity = %(identity)s,
                    staged_set = greatest(vector_set, coalesce(staged_set, 0)) + 1 WHERE {OWN}""",  # noqa: S608 -- a constant
                identity=identity.to_json(),
            )
        return self._staged_writer()

    def discard_staged(self) -> None:
        """Delete the staged set."""
        with self._change() as scope:
            if scope.state.staged_set is not None:
                vectors.delete_set(scope, scope.state.staged_set)
                scope.run(f"UPDATE generations SET staged_identity = NULL, staged_set = NULL WHERE {OWN}")  # noqa: S608 -- a constant

    def promote_staged(self) -> int:
        """Replace the stored set by the staged one, in one transaction; return the new revision."""
        with self._change() as scope:
            if scope.state.staged_set is None:
                return scope.state.revision
            vectors.delete_set(scope, scope.state.vector_set)
            scope.run(
                f"""UPDATE generations SET vector_set = staged_set, vector_identity = staged_identity,
                    staged_set = NULL, staged_identity = NULL WHERE {OWN}"""  # noqa: S608 -- a constant
            )
            vectors.forget_centre(scope)
            return scope.raise_revision()

    def copy_vectors(self, source: VectorView, should_stop: StopSign) -> None:
        """Copy the vectors that another index has for the texts of this one, stored and staged, with their identities.

        Raises:
            SyncCancelled: `should_stop` returned true.
        """
        identity, staged = source.vector_identity(), source.staged()
        if identity is None:
            return
        self.begin_vectors(identity)
        self.record_failover(source.failover_record())
        _copy(source, self, self._ids_of_texts(), should_stop)
        next_identity = None if staged is None else staged.vector_identity()
        if staged is not None and next_identity is not None:
            _copy(staged, self.stage_vectors(next_identity), self._ids_of_texts(), should_stop)

    def _ids_of_texts(self) -> dict[bytes, list[int]]:
        ids: dict[bytes, list[int]] = {}
        with self._open_scope() as scope:
            for chunk_id, content_hash in scope.all(f"SELECT id, content_hash FROM chunks WHERE {OWN}"):  # noqa: S608 -- a constant
                ids.setdefault(content_hash, []).append(chunk_id)
        return ids

    def measure_vector_centre(self) -> None:
        """Measure the mean of the vectors if the index has changed since it was last measured."""
        with self._change() as scope:
            vectors.measure_centre(scope)


def _copy(
    source: VectorView, target: PostgresVectorWriter, ids_of_texts: Mapping[bytes, Sequence[int]], should_stop: StopSign
) -> None:
    """Copy the vectors of one set to the chunks with the same texts."""
    after = 0
    while rows := source.stored_vectors(after, _COPY_BATCH):
        if should_stop():
            raise SyncCancelled("the sync run was cancelled; the index has not changed")
        after = rows[-1].chunk_id
        target.put_vectors(
            {chunk_id: row.vector for row in rows for chunk_id in ids_of_texts.get(row.content_hash, ())}
        )
