"""Store, Reader, Writer, VectorCache, IndexHealth.

What an index store is, for everyone but its driver.

A `Store` holds one agent's index. A search reads one unchanging snapshot of it, a `Reader`; a sync writes through its
`Writer`. What either raises is in `memoryd_server.errors`; a driver translates its own errors.

    with store.read(deadline) as reader:
        hits = reader.keyword_hits(terms, sources, limit=50)
        rows = reader.chunks([hit.chunk_id for hit in hits])
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from memoryd_server.model import Degradation, FileStat, Source
from memoryd_server.store.identity import BuildIdentity, Difference, VectorIdentity
from memoryd_server.store.rows import (
    BatchJob,
    CacheKey,
    ChunkHead,
    ChunkRow,
    Counts,
    FileKey,
    FileRow,
    IndexCounts,
    KeywordHit,
    Maker,
    PendingChunk,
    PreparedFile,
    StoredCounts,
    StoredVector,
    TranscriptPart,
    TranscriptState,
    VectorHit,
)
from memoryd_server.text import Analyzer, QueryTerm

T = TypeVar("T")

StopSign = Callable[[], bool]
"""Whether to stop now; called often, and on the thread that does the work."""

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Damage:
    """What was found. `gone` is a file that is no longer there, or another one: there is nothing of it to set aside."""

    reason: str
    gone: bool


class IndexHealth:
    """The damage that was found and not yet mended, and what came of the last that was. Any thread may ask and tell.

    `generation` counts how often the index was begun anew: damage that was found in an earlier one is past.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._watchers: list[Callable[[], None]] = []
        self.damage: Damage | None = None
        self.generation = 0
        self.incident: Degradation | None = None
        self.past_incident: Degradation | None = None

    def watch(self, watcher: Callable[[], None]) -> None:
        """Lets `watcher` hear, on any thread, that damage was found or mended."""
        self._watchers.append(watcher)

    def found(self, damage: Damage, generation: int) -> None:
        """Remembers damage, unless there is some already or the index has been begun anew since."""
        with self._guard:
            if self.damage is not None or generation != self.generation:
                return
            self.damage = damage
        self._tell()

    def happened(self, incident: Degradation) -> None:
        """Remembers what became of an index that could not be used."""
        self.incident = incident

    def mended(self) -> None:
        """The index has been begun anew."""
        with self._guard:
            self.damage = None
            self.generation += 1
        self._tell()

    def rebuilt(self) -> None:
        """The new index holds everything again: what happened is history."""
        if self.incident is not None:
            self.past_incident = replace(self.incident, reason=f"{self.incident.reason}; that is done")
            self.incident = None

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher()


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """Bytes on disk: the index, and the log of transactions next to it."""

    database_bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class VectorEngineStatus:
    """What compares the vectors of a small index, and what is held of them in memory.

    `version` is the engine's, empty if it did not load; `load_error` is why it did not load, None if it did or was not
    asked for. `form` is what is held of each vector: `whole`, `bits`, or nothing (empty).
    """

    engine: str
    version: str = ""
    load_error: str | None = None
    form: str = ""


class VectorView(Protocol):
    """The vectors of an index, as the embedding run and its price need them: a part of `Reader` and of `Writer`."""

    def vector_identity(self) -> VectorIdentity | None:
        """Return what the vectors were built with, as it was written; None if there never were any."""

    def vector_dimensions(self) -> int:
        """Return the length of the stored vectors; 0 if there are none."""

    def failover_record(self) -> str:
        """Return what `note_failover` was given last; empty if it never was."""

    def count_chunks(self) -> int:
        """Return the number of chunks, with a vector or without."""

    def count_pending(self) -> int:
        """Return the number of chunks without a vector."""

    def pending_hashes(self) -> list[bytes]:
        """Return the content hash of each chunk without a vector."""

    def pending_chunks(self, after: int, limit: int, *, everything: bool) -> list[PendingChunk]:
        """Return the next chunks by id that have no vector; with `everything`, the next chunks in any case."""

    def stored_vectors(self, after: int, limit: int) -> list[StoredVector]:
        """Return the vectors of the next chunks by id."""


class Reader(VectorView, Protocol):
    """One unchanging snapshot of an index, for one thread, until its block ends."""

    @property
    def revision(self) -> int:
        """The index revision. It rises with each change, and never falls."""

    def counts(self) -> IndexCounts:
        """Return the revision, the files without an error, the chunks, their languages and sources."""

    def last_sync_ms(self) -> int | None:
        """Return when a sync last completed (Unix milliseconds); None before the first."""

    def files(self) -> dict[FileKey, FileRow]:
        """Return every file that the index knows."""

    def heads(self, ids: Sequence[int]) -> dict[int, ChunkHead]:
        """Return chunks without their texts, by id; unknown ids are left out."""

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        """Return chunks by id; unknown ids are left out."""

    def frequencies(self, terms: Sequence[QueryTerm]) -> dict[QueryTerm, int]:
        """Return how many chunks hold each term, or a word that begins with it if it is a prefix.

        Guesses that the index does not hold are 0 at next to no cost.
        """

    def keyword_chunks(self) -> int:
        """Return the number of chunks in the keyword index: N of BM25."""

    def names_containing(self, piece: str, limit: int) -> list[str]:
        """Return at most `limit` names (terms with "_" or a digit) that contain `piece`, the shortest first.

        In a large index a name may be missing for some seconds after it was written.
        """

    def keyword_hits(self, terms: Sequence[QueryTerm], sources: Sequence[Source], limit: int) -> list[KeywordHit]:
        """Return the best chunks that hold any of `terms`, best first, the smaller id first among equals.

        An empty `sources` means all. No term is query syntax.
        """

    def keyword_scores(self, terms: Sequence[QueryTerm], ids: Sequence[int]) -> dict[int, float]:
        """Return the BM25 of each of these chunks for `terms`; 0 for one that holds none of them."""

    def vector_hits(self, query: Vector, limit: int, sources: Sequence[Source]) -> list[VectorHit]:
        """Return the nearest chunks by exact cosine, best first, the smaller id first among equals.

        An empty `sources` means all. Vectors of another length than the query's are left out. A query without a
        direction (zero, or with a number that is not finite) is a ValueError.
        """

    def cosines(self, ids: Sequence[int], query: Vector) -> dict[int, float]:
        """Return the cosine of each of these chunks' vectors with `query`, a unit vector, where it has one."""

    def vector_centre(self, dimensions: int) -> Vector | None:
        """Return the mean of the stored vectors as last measured; None if there is none of these dimensions."""

    def stored_counts(self, file_ids: Sequence[int]) -> StoredCounts:
        """Return what is held of these files, counted where it is held."""

    def hashes_containing(self, text: str) -> set[bytes]:
        """Return the content hashes of the chunks that contain `text` word for word; looks at every chunk."""


class Writer(VectorView, Protocol):
    """Changes an index; each call but `copy_vectors` is one transaction. Belongs to the agent's writer thread."""

    def revision(self) -> int:
        """Return the index revision."""

    def files(self) -> dict[FileKey, FileRow]:
        """Return every file that the index knows."""

    def memory_files(self, paths: Collection[str]) -> dict[FileKey, FileRow]:
        """Return the Markdown files of these paths; paths that the index does not know are left out."""

    def transcript(self, file_id: int) -> TranscriptState | None:
        """Return how far a transcript was read; None for another file, and for one that could not be read."""

    def write(self, documents: Sequence[PreparedFile | TranscriptPart], removed: Iterable[FileRow] = ()) -> int:
        """Replace and remove whole files, add to transcripts; return the new revision."""

    def touch(self, rows: Sequence[tuple[FileRow, FileStat]]) -> None:
        """Note the new stats of files whose bytes have not changed. The revision stays."""

    def note_sync(self, completed_at_ms: int) -> None:
        """Note when a sync completed (Unix milliseconds)."""

    def note_failover(self, record: str) -> None:
        """Note which provider makes the vectors in place of the configured one."""

    def begin_vectors(self, identity: VectorIdentity) -> None:
        """Forget every vector; the next ones are built with `identity`."""

    def set_dimensions(self, identity: VectorIdentity) -> None:
        """Note the identity now that its dimensions are known, and drop vectors of other lengths."""

    def put_vectors(self, vectors: Mapping[int, bytes]) -> int:
        """Store vectors by chunk id; return the new revision."""

    def copy_vectors(self, source: VectorView, should_stop: StopSign) -> None:
        """Store the vectors that another index has for the texts of this one; SyncCancelled if `should_stop`."""

    def measure_vector_centre(self) -> None:
        """Measure the mean of the vectors if the index has changed since it was last measured."""


class Store(Protocol):
    """One agent's index. `read` may be used from any thread, all else belongs to the agent's writer thread."""

    health: IndexHealth
    built_with: BuildIdentity | None
    build_differences: tuple[Difference, ...]
    """In what the build of the index differs from the wanted one; empty if no rebuild is due."""
    keyword_outdated: bool
    """Whether the keyword index was built with another version of the analyzer."""
    has_completed_sync: bool
    """Whether a sync has completed since the index was begun; before that, its revision says nothing."""

    @property
    def location(self) -> str:
        """Where the index is: a path, or a database and schema."""

    @property
    def schema_version(self) -> int:
        """The version of the stored format."""

    @property
    def has_deleted_text(self) -> bool:
        """Whether deleted text may still be on the disk, so that `purge` is due."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held open to read from."""

    @property
    def last_counts(self) -> IndexCounts | None:
        """What was counted last, at the revision that it names; None before the first count."""

    def reserve(self) -> None:
        """Take the index for this process ahead of `open`; IndexBusy if another process has it."""

    def open(self) -> None:
        """Open the index; create, recover or set aside what is at its location.

        Raises:
            IndexBusy, IndexTooNew, IndexReadOnly, DiskFull, IndexUnavailable: it can neither be opened nor made.
        """

    def close(self) -> None:
        """Close the index and give it up. Closing twice is fine."""

    def read(self, deadline: float | None = None) -> AbstractContextManager[Reader]:
        """Open one snapshot, until `time.monotonic()` passes `deadline`.

        Raises:
            DeadlineTooShort: the deadline passed first.
            IndexDamaged: the index is damaged or gone; `health` holds that, and the next `repair` begins it again.
            IndexUnavailable: it cannot be read.
        """

    def writer(self) -> Writer:
        """Return the writer of the index.

        Raises:
            IndexReadOnly, DiskFull: the index could only be opened to be read.
        """

    def rebuild(self) -> AbstractContextManager[Writer]:
        """Open a writer into an empty index, which replaces this one if the block ends without an exception.

        Readers see the old index until then.
        """

    def on_sound_index(self, work: Callable[[StopSign], T], should_stop: StopSign) -> T:
        """Return what `work` returns; call it again if the index is found damaged during it.

        `work` gets a stop sign that is also set by damage.

        Raises:
            IndexDamaged: the index that was begun again was damaged too, repeatedly.
        """

    def repair(self) -> bool:
        """Begin the index again, empty, if it was found damaged or gone; return whether it was. Raises as `open`."""

    def refresh_keyword(self, analyzer: Analyzer, should_stop: StopSign) -> int:
        """Build the keyword index again from the stored text; return the new revision.

        If `should_stop`, SyncCancelled is raised, and the old keyword index stays in use.
        """

    def purge(self, should_stop: StopSign) -> bool:
        """Overwrite deleted text on the disk; False if it has to be called again."""

    def release_memory(self) -> None:
        """Give back what an idle index keeps in memory."""

    def sizes(self) -> StoreSizes:
        """Return the bytes on disk; 0 for what does not exist. Blocks."""

    def probe_vector_engine(self) -> None:
        """Find out which engine compares vectors, for `vector_engine`. Blocks."""

    def vector_engine(self) -> VectorEngineStatus:
        """Return which engine compares vectors, and what is held of them. No I/O, and no lock."""

    def vector_memory_bytes(self) -> int:
        """Return what vectors take in memory. Waits for a commit that changes them."""

    def degradations(self) -> tuple[Degradation, ...]:
        """Return what stands in for a whole index at the wanted place, for every answer."""

    def remarks(self) -> tuple[Degradation, ...]:
        """Return what only Status reports: no answer is worse for it."""


class BatchJobTable(Protocol):
    """The providers' batch jobs under way. Thread-safe; each call is durable when it returns."""

    def begin(self, key: CacheKey, job: BatchJob, hashes: Collection[bytes]) -> None:
        """Note a job before it is made."""

    def made(self, name: str, job_id: str) -> None:
        """Note the provider's id of a job."""

    def jobs(self, key: CacheKey) -> list[BatchJob]:
        """Return the jobs under way, the oldest first."""

    def hashes(self, key: CacheKey) -> set[bytes]:
        """Return the texts, by hash, that jobs under way are to bring."""

    def hashes_of(self, name: str) -> set[bytes]:
        """Return the texts, by hash, that one job is to bring."""

    def take(self, key: CacheKey, name: str, vectors: Mapping[bytes, bytes]) -> list[bytes]:
        """Put what a job has made into the cache; return the texts that were still wanted of it."""

    def end(self, name: str) -> None:
        """Forget a job."""


class VectorCache(Protocol):
    """Vectors by what made them and the SHA-256 of their text, apart from the index. Thread-safe.

    It also holds the texts that a provider has refused, how much each provider was asked for, and the batch jobs.
    """

    max_entries: int

    @property
    def jobs(self) -> BatchJobTable:
        """The batch jobs under way."""

    @property
    def problem(self) -> Degradation | None:
        """Why the cache cannot be used as it was; None if it can."""

    def get(self, key: CacheKey, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the vectors held for these texts, by hash; a hit counts as a use."""

    def put(self, key: CacheKey, vectors: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Store vectors by hash; beyond `max_entries` the least recently used are dropped."""

    def refused(self, key: CacheKey) -> dict[bytes, str]:
        """Return the texts, by hash, that were refused within the last day, and why."""

    def refuse(self, key: CacheKey, reasons: Mapping[bytes, str]) -> None:
        """Note texts, by hash, that are refused."""

    def forget_refused(self) -> None:
        """Forget every refusal."""

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Forget these texts; return how many vectors were held of them."""

    def count(self) -> int:
        """Return the number of vectors held."""

    def usage(self) -> dict[Maker, Counts]:
        """Return how much each provider and model was asked for, as it was noted last."""

    def note_usage(self, usage: Mapping[Maker, Counts]) -> None:
        """Note how much providers and models were asked for, in total."""

    def release_memory(self) -> None:
        """Close what is open until it is used again."""

    def close(self) -> None:
        """Close the cache. Closing twice is fine."""
