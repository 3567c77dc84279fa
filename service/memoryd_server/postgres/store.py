"""PostgresStore: one agent's index in a PostgreSQL database.

Any number of replicas open an index. One that changes it takes the agent's lease, which raises the fence that every
write checks. A rebuild writes the next generation of the agent's rows, and replaces the current one in one transaction.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, TypeVar

from memoryd_server.errors import IndexBusy, IndexDamaged, IndexUnavailable, MemorydError, SyncCancelled
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.postgres import maintenance, schema
from memoryd_server.postgres.connection import Database, DatabaseUse
from memoryd_server.postgres.generations import (
    GenerationFacts,
    create_generation,
    create_missing,
    delete_other_generations,
)
from memoryd_server.postgres.hnsw import AgentHnsw, HnswIndex
from memoryd_server.postgres.index_lease import IndexLease
from memoryd_server.postgres.reader import PostgresReader, PostgresReaderCaches
from memoryd_server.postgres.scope import NOW_MS, OWN, AgentScope, missing_index
from memoryd_server.postgres.session import Connection, Operation
from memoryd_server.postgres.writer import AgentWriter, PostgresWriter
from memoryd_server.store import (
    BuildIdentity,
    Damage,
    Difference,
    IndexCounts,
    IndexHealth,
    StopSign,
    StoreSizes,
    VectorEngineStatus,
)
from memoryd_server.text import ANALYZER_VERSION, Analyzer

_T = TypeVar("_T")

_ATTEMPTS: Final = 3


class PostgresStore:
    """The index of an agent, which other replicas may use too.

    `read`, `index_vectors`, `watch` and `reload` may be called on any thread, everything else only on the agent's
    writer thread. An agent with more than `approximate_above` vectors gets an HNSW index; none does if that is 0. With
    `keeps_lease`, the lease is held from `reserve` or `open` to `close`, so that no other replica changes the index: it
    is that of files of this machine.
    """

    def __init__(
        self,
        database: Database,
        agent_id: str,
        identity: BuildIdentity,
        *,
        approximate_above: int = 0,
        keeps_lease: bool = False,
    ) -> None:
        self._database = database
        self._agent_id = agent_id
        self._identity = identity
        self._caches = PostgresReaderCaches()
        self._guard = threading.Lock()
        # So that no snapshot replaces what was loaded from a later one.
        self._loading = threading.Lock()
        self._readers = 0
        self._is_idle = True
        self._use = DatabaseUse(database)
        self._agent = AgentWriter(database, agent_id, self._notify)
        self._lease = IndexLease(database, agent_id, self._agent, is_kept=keeps_lease, catch_up=self._catch_up)
        self._is_open = False
        # Counts the changes of the facts by this store, which a snapshot from before must not replace.
        self._facts_version = 0
        self._end_watch: Callable[[], None] | None = None
        self._version = ""
        self._hnsw = AgentHnsw(database.connect, agent_id, approximate_above)
        # The changes of the index after which the HNSW index was last compared with what is wanted.
        self._indexed = -1
        self._sizes: tuple[int, StoreSizes] | None = None
        # The revision before which text was deleted, and the run of VACUUM that removes it.
        self._purge: tuple[int, int] | None = None
        self.health = IndexHealth()
        self.built_with: BuildIdentity | None = None
        self.build_differences: tuple[Difference, ...] = ()
        self.keyword_outdated = False
        self.has_completed_sync = False
        """Whether a sync has completed since the index was created; until then, its revision has no meaning."""

    def reserve(self) -> None:
        """Take a lease that is kept, before `open`. `open` reports every other reason why it cannot be opened.

        Raises:
            IndexBusy: another replica holds the lease.
        """
        self._use.begin()
        try:
            self._lease.reserve()
        except IndexBusy:
            self.close()
            raise
        except MemorydError:
            return

    def open(self) -> None:
        """Open the index; create it, and the tables, if they are missing.

        Raises:
            IndexBusy: another replica holds the lease that is to be kept.
            IndexTooNew: a newer memoryd has upgraded the tables.
            IndexReadOnly, DiskFull: the server accepts no writes.
            IndexUnavailable: the server cannot be reached or used.
        """
        try:
            self._use.begin()
            self._database.prepare()
            self._lease.reserve()
            try:
                facts = self._load()
            except IndexDamaged:
                self._create_missing()
                facts = self._load()
            self._hnsw.open()
            self._is_open = True
            if facts.has_other_generations and self._agent.fence is not None:
                self._delete_unfinished()
        except BaseException:
            self.close()
            raise

    def _create_missing(self) -> None:
        """Create the agent's rows if they are missing."""
        self._database.prepare(again=True)
        last = self._caches.counts
        after, identity = last.revision if last else 0, self._identity.to_json()
        with self._database.write(self._agent_id, operation=Operation.INDEX_WRITE) as connection:
            create_missing(connection, self._agent_id, self._agent.fence or 0, after, identity)

    def _load(self) -> GenerationFacts:
        """Load what the store remembers of the index."""
        with self._loading:
            version = self._facts_version
            with self._database.read(self._agent_id, operation=Operation.INDEX_READ) as connection:
                scope = AgentScope.find(connection, self._agent_id)
                facts = None if scope is None else GenerationFacts.load(scope)
                self._hnsw.load(connection)
            if facts is None:
                # Not within the transaction, which has not failed: a new agent has no rows.
                raise missing_index(self._agent_id)
            is_settled = not (facts.has_lease or facts.has_other_generations)
            with self._guard:
                if version == self._facts_version:
                    self._set_facts(facts)
                    if facts.fence != self._agent.fence:
                        self._lease.known_fence = facts.fence if is_settled else None
        self._indexed = -1
        return facts

    def _set_facts(self, facts: GenerationFacts) -> None:
        self.built_with = BuildIdentity.from_json(facts.identity)
        if self.built_with is None:
            self.build_differences = (("build", "unknown", self._identity.to_json()),)
        else:
            different = self.built_with.differences(self._identity)
            self.build_differences = different or ((("chunking", "mixed", "uniform"),) if facts.mixed_chunking else ())
        self.keyword_outdated = facts.analyzer_version != ANALYZER_VERSION
        self.has_completed_sync = facts.has_completed_sync

    def close(self) -> None:
        """End the lease and the watch, and close the connections if no other index uses them. Idempotent."""
        self._hnsw.stop()
        self._is_open = False
        if self._end_watch is not None:
            self._end_watch()
            self._end_watch = None
        self._lease.close()
        self._use.end()

    def writer(self) -> PostgresWriter:
        """Return the writer of the index, for the writer thread."""
        return PostgresWriter(self._opened, self._identity.to_json())

    @property
    def _opened(self) -> AgentWriter:
        if not self._is_open:
            raise IndexUnavailable("the index is not open")
        return self._agent

    @contextmanager
    def read(self, deadline: float | None = None) -> Iterator[PostgresReader]:
        """Open one snapshot of the index, which can be read until `time.monotonic()` passes `deadline`.

        Raises:
            DeadlineTooShort: the deadline passed during the read.
            IndexDamaged: the rows of the agent are gone; `health` records it, and the next `repair` creates them.
            IndexUnavailable: the index cannot be read.
        """
        _ = self._opened
        self._count_reader(1)
        try:
            with self._recording_damage(), self._searching(deadline) as connection:
                scope = AgentScope.load(connection, self._agent_id, deadline=deadline)
                yield PostgresReader(scope, self._caches, self._hnsw.current)
        finally:
            self._count_reader(-1)

    def _searching(self, deadline: float | None) -> AbstractContextManager[Connection]:
        return self._database.read(self._agent_id, deadline, operation=Operation.SEARCH)

    def _count_reader(self, change: int) -> None:
        with self._guard:
            self._readers += change
            self._is_idle = False

    @contextmanager
    def _recording_damage(self) -> Iterator[None]:
        """Record damage that the body meets in `health`."""
        generation = self.health.generation
        try:
            yield
        except IndexDamaged as error:
            self.health.record_damage(Damage(error.message, gone=True), generation)
            raise

    def repair(self) -> bool:
        """Create the rows of the agent, empty, if they were found missing; return whether they were.

        Raises:
            IndexBusy, IndexTooNew, IndexReadOnly, DiskFull, IndexUnavailable: as `open`.
        """
        damage = self.health.damage
        if damage is None:
            return False
        with self.exclusive(lambda: False):
            self._create_missing()
            self._load()
            # At once, because the other replicas still regard the empty index as complete.
            self._agent.record_news()
            self._agent.notify()
        reason = f"{damage.reason}; the index is being rebuilt from the Markdown"
        self.health.record_incident(Degradation(DegradationKind.INDEX_IMPAIRED, self.location, self.location, reason))
        self.health.record_repair()
        return True

    @contextmanager
    def exclusive(self, should_stop: StopSign) -> Iterator[None]:
        """Hold the lease of the agent until the block ends; wait while another replica does. Blocks can be nested.

        What another replica has changed since the last lease is loaded first; the watchers of `health` are called on
        this thread. If the lease is lost during the block, the next change raises IndexBusy.

        Raises:
            IndexBusy: `should_stop` returned true during the wait.
            IndexUnavailable, IndexReadOnly, DiskFull: the lease cannot be acquired.
        """
        _ = self._opened
        with self._lease.held(should_stop):
            yield

    def _catch_up(self) -> None:
        """Load what other replicas have changed, and delete what they have left of an unfinished rebuild."""
        # The damage is recorded, and the block repairs it or finds it too.
        with suppress(IndexDamaged), self._recording_damage():
            if self._load().has_other_generations:
                self._delete_unfinished()
            self.health.record_reload()

    def _notify(self) -> None:
        # A replica that misses it looks at the index when it acquires the lease or connects again.
        with suppress(MemorydError):
            self._database.changes.notify(self._agent_id)

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call `on_change`, on any thread, after another replica may have changed the index or the memory files."""
        self._database.replica.start()
        self._end_watch = self._database.changes.watch(self._agent_id, on_change)

    def reload(self) -> None:
        """Load again what the store remembers of the index, because another replica may have changed it. Blocks.

        Raises:
            IndexDamaged, IndexUnavailable: as `read`.
        """
        _ = self._opened
        known = self._lease.known_fence
        with self._recording_damage():
            facts = self._load()
        # Otherwise, no other replica has changed the index, and a run of this one may be changing it.
        if facts.fence not in {known, self._agent.last_fence}:
            self.health.record_reload()

    def on_sound_index(self, work: Callable[[StopSign], _T], should_stop: StopSign) -> _T:
        """Call `work` within `exclusive` and return its result; after damage, repair the index and call `work` again.

        `work` receives a stop sign that is also set by damage.

        Raises:
            IndexDamaged: the rows of the agent were missing again, three times in a row.
            IndexBusy, IndexUnavailable: as `exclusive`.
        """
        with self.exclusive(should_stop):
            return self._on_sound_index(work, should_stop)

    def _on_sound_index(self, work: Callable[[StopSign], _T], should_stop: StopSign) -> _T:
        for attempt in range(_ATTEMPTS):
            self.repair()
            try:
                with self._recording_damage():
                    result = work(lambda: should_stop() or self.health.damage is not None)
            except IndexDamaged:
                if attempt == _ATTEMPTS - 1:
                    raise
            except SyncCancelled:
                if should_stop() or self.health.damage is None:
                    raise
            else:
                if self.health.damage is None:
                    self._record_completion()
                    return result
        raise IndexDamaged(f"the rows of the agent {self._agent_id!r} in {self.location} were removed repeatedly")

    def _record_completion(self) -> None:
        with self._guard:
            if not self.has_completed_sync:
                self.has_completed_sync = True
                self._facts_version += 1
                self._opened.record_news()
        self.health.record_completion()

    @contextmanager
    def rebuild(self) -> Iterator[PostgresWriter]:
        """Open a writer into an empty generation, which replaces the index when the block ends without an exception.

        Readers see the old generation until then, and open snapshots keep it.
        """
        agent, identity = self._opened, self._identity.to_json()
        with agent.change(None) as scope:
            delete_other_generations(scope)
            generation = scope.state.generation + 1
            create_generation(scope.connection, self._agent_id, generation, scope.state.revision, identity)
        try:
            yield PostgresWriter(agent, identity, generation)
        except BaseException:
            self._delete_unfinished()
            raise
        self._swap(agent, generation)

    def _delete_unfinished(self) -> None:
        """Delete what rebuilds have left. What cannot be deleted now is deleted during the next lease."""
        try:
            with self._opened.change(None) as scope:
                delete_other_generations(scope)
        except MemorydError:
            self._lease.known_fence = None

    def _swap(self, agent: AgentWriter, generation: int) -> None:
        with agent.change(None) as scope:
            query = "UPDATE agents SET generation = %(next)s WHERE agent_id = %(agent)s"
            scope.run(query, next=generation)
            new = AgentScope.load(scope.connection, self._agent_id, generation)
            query = f"""UPDATE generations SET revision = greatest(revision, %(before)s + 1, {NOW_MS}),
                has_deleted_text = true WHERE {OWN} RETURNING revision"""  # noqa: S608 -- constants
            # The texts of the old generation are deleted ones.
            scope.revision = new.one(query, before=scope.state.revision)[0]
            facts = GenerationFacts.load(new)
        with self._guard:
            self._set_facts(facts)
            self._facts_version += 1
        self._delete_unfinished()

    def degradations(self) -> tuple[Degradation, ...]:
        """Return why searches do not read a complete index; reported with every answer."""
        return () if self.health.incident is None else (self.health.incident,)

    def remarks(self) -> tuple[Degradation, ...]:
        """Return the remarks that only Status reports, because they do not affect answers."""
        return () if self.health.past_incident is None else (self.health.past_incident,)

    def refresh_keyword(self, analyzer: Analyzer, should_stop: StopSign) -> int:
        """Rebuild the keyword index from the stored text with this analyzer; return the new revision.

        Raises:
            SyncCancelled: `should_stop` returned true; the old keyword index stays in use.
        """
        with self._opened.change(None) as scope:
            revision = maintenance.refresh_keyword(scope, analyzer, should_stop)
        with self._guard:
            self.keyword_outdated = False
            self._facts_version += 1
        return revision

    @property
    def has_deleted_text(self) -> bool:
        """Whether text was deleted since the last `purge`."""
        if self._database.vacuums.has_deletion(self._agent_id):
            return True
        with self._recording_damage(), self._opened.read(None) as scope:
            return bool(scope.one(f"SELECT has_deleted_text FROM generations WHERE {OWN}")[0])  # noqa: S608 -- a constant

    def purge(self, should_stop: StopSign = lambda: False) -> bool:  # noqa: ARG002 -- the protocol
        """Return whether VACUUM has removed the deleted text from the tables; request a run if it has not.

        A run serves all agents, on a thread of its own, so it is not waited for. Nor is another replica.
        """
        vacuums = self._database.vacuums
        with self._recording_damage(), self._opened.read(None) as scope:
            revision = scope.state.revision
        # Each deletion in the index raises the revision.
        if self._purge is None or self._purge[0] != revision:
            self._purge = revision, vacuums.request()
        if not vacuums.has_completed(self._purge[1]):
            return False
        query = f"UPDATE generations SET has_deleted_text = false WHERE {OWN} AND revision = %(revision)s"  # noqa: S608 -- a constant
        try:
            with self.exclusive(lambda: True), self._recording_damage(), self._opened.change(None) as scope:
                is_purged = scope.run(query, revision=revision) > 0
        except IndexBusy:
            return False
        self._purge = None
        return is_purged and not vacuums.has_deletion(self._agent_id)

    def index_vectors(self) -> None:
        """Create, replace or drop the HNSW index, if the index has changed since. `close` cancels it.

        Raises:
            IndexBusy, DiskFull, IndexReadOnly, IndexUnavailable: the server does not create it; later calls try again.
        """
        agent = self._opened
        changes = agent.changes
        if changes == self._indexed:
            return
        with agent.read(None) as scope:
            plan = self._hnsw.plan(scope)
        if self._hnsw.update(plan):
            self._indexed = changes
            if not plan.is_done:
                self._notify()

    def release_memory(self) -> None:
        """Release the memory that an idle index holds: the frequencies of terms."""
        self._caches.release_memory()
        with self._guard:
            self._is_idle = self._readers == 0

    @property
    def is_idle(self) -> bool:
        """Whether no search has read the index since `release_memory`."""
        return self._is_idle

    @property
    def last_counts(self) -> IndexCounts | None:
        """The last counts taken, with their revision; None before the first count."""
        return self._caches.counts

    @property
    def location(self) -> str:
        """The hosts and the name of the database."""
        return self._database.location

    @property
    def schema_version(self) -> int:
        """The version of the tables."""
        return schema.SCHEMA_VERSION

    def sizes(self) -> StoreSizes:
        """Return the bytes of the agent's texts and vectors, without the indexes of the tables. Blocks."""
        counts, known = self._caches.counts, self._sizes
        if counts is not None and known is not None and known[0] == counts.revision:
            return known[1]
        with self._opened.read(None) as scope:
            query = f"""SELECT (SELECT coalesce(sum(pg_column_size(text)), 0) FROM chunks WHERE {OWN})
                + (SELECT coalesce(sum(4 * dimensions), 0) FROM vectors WHERE {OWN})"""  # noqa: S608 -- constants
            sizes = StoreSizes(int(scope.one(query)[0]), 0)
            self._sizes = scope.state.revision, sizes
        return sizes

    def probe_vector_engine(self) -> None:
        """Determine the version of pgvector. Blocks."""
        with self._database.read(self._agent_id) as connection:
            row = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
        self._version = row[0] if row else ""

    def vector_engine(self) -> VectorEngineStatus:
        """Return which engine compares vectors, with its version as last probed. No I/O, no lock."""
        return VectorEngineStatus("pgvector" if self._hnsw.current is None else "pgvector-hnsw", self._version)

    @property
    def hnsw_index(self) -> HnswIndex | None:
        """The HNSW index that searches use."""
        return self._hnsw.current

    def vector_memory_bytes(self) -> int:
        """Return 0: vectors are in the memory of the server."""
        return 0
