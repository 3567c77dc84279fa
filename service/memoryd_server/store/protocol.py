"""The protocols of an index store: Store, Reader and Writer; and IndexHealth.

A `Store` holds one agent's index. A search reads one unchanging snapshot of it, a `Reader`; a sync writes through its
`Writer`. Both raise the exceptions of `memoryd_server.errors`; a driver translates its own errors into these.

    with store.read(deadline) as reader:
        hits = reader.keyword_hits(terms, among, limit=50)
        rows = reader.chunks([hit.chunk_id for hit in hits])
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import date
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from memoryd_server.model import Chunk, Degradation, FileStat
from memoryd_server.store.filters import ChunkFilter
from memoryd_server.store.identity import BuildIdentity, Difference, VectorIdentity
from memoryd_server.store.rows import (
    ChunkHead,
    ChunkRow,
    FileKey,
    FileRow,
    IndexCounts,
    KeywordHit,
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
"""Returns whether to stop now. Called often, on the thread that does the work."""

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage to an index. `gone` is set if the file was removed or replaced, so that there is nothing to set aside."""

    reason: str
    gone: bool


class IndexHealth:
    """The unrepaired damage of an index, and the incident that replaced it. Thread-safe.

    `generation` counts how often the index was re-created; damage found in an earlier generation is ignored. `incident`
    says what was done about an index that could not be used; it becomes `past_incident` when the next sync completes.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._watchers: list[Callable[[], None]] = []
        self.damage: Damage | None = None
        self.generation = 0
        self.incident: Degradation | None = None
        self.past_incident: Degradation | None = None

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher`, on any thread, each time damage is found or repaired, or `record_reload` is called."""
        self._watchers.append(watcher)

    def record_damage(self, damage: Damage, generation: int) -> None:
        """Record damage, unless damage is recorded already or the index has been re-created since `generation`."""
        with self._guard:
            if self.damage is not None or generation != self.generation:
                return
            self.damage = damage
        self._notify()

    def record_incident(self, incident: Degradation) -> None:
        """Record what was done about an index that could not be used."""
        self.incident = incident

    def record_repair(self) -> None:
        """Clear the damage after the index was re-created."""
        with self._guard:
            self.damage = None
            self.generation += 1
        self._notify()

    def record_reload(self) -> None:
        """Notify the watchers that the store has loaded what another process has changed."""
        self._notify()

    def record_completion(self) -> None:
        """Mark the incident as past: a sync of the re-created index has completed."""
        if self.incident is not None:
            self.past_incident = replace(self.incident, reason=f"{self.incident.reason}; completed")
            self.incident = None

    def _notify(self) -> None:
        for watcher in self._watchers:
            watcher()


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """Bytes on disk: the index, and its transaction log."""

    database_bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class VectorEngineStatus:
    """The engine that compares the vectors of a small index, and the form of the vectors held in memory.

    `version` and `path` are those of an extension that the engine is loaded from, empty if none is. `load_error` says
    why it did not load; None if it did, or if the settings disable it. `form` is `whole` or `bits`; empty if no vectors
    are in memory.
    """

    engine: str
    version: str = ""
    load_error: str | None = None
    form: str = ""
    path: str = ""


class VectorView(Protocol):
    """The vectors of an index, as an embedding run and its cost estimate read them: part of `Reader` and `Writer`."""

    def vector_identity(self) -> VectorIdentity | None:
        """Return the stored identity of the vectors; None if there never were any."""

    def staged(self) -> "VectorView | None":
        """Return the staged set of vectors, which is to replace the stored one; None if there is none."""

    def vector_dimensions(self) -> int:
        """Return the length of the stored vectors; 0 if there are none."""

    def failover_record(self) -> str:
        """Return the record last passed to `record_failover`; empty if there is none."""

    def count_chunks(self) -> int:
        """Return the number of chunks, with a vector or without."""

    def count_pending(self) -> int:
        """Return the number of chunks without a vector."""

    def pending_hashes(self) -> list[bytes]:
        """Return the content hash of each chunk without a vector."""

    def pending_chunks(self, after: int, limit: int, *, everything: bool) -> list[PendingChunk]:
        """Return up to `limit` chunks without a vector, by id, after id `after`; all chunks if `everything`."""

    def stored_vectors(self, after: int, limit: int) -> list[StoredVector]:
        """Return up to `limit` vectors, by chunk id, after id `after`."""


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
        """Return every indexed file."""

    def heads(self, ids: Sequence[int]) -> dict[int, ChunkHead]:
        """Return chunks without their texts, by id; unknown ids are left out."""

    def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRow]:
        """Return chunks by id; unknown ids are left out."""

    def chunks_of(self, file: FileKey, line: int | None, limit: int) -> list[int]:
        """Return up to `limit` chunks of a file, or those of them whose lines include `line`, by id."""

    def chunk_lines(self, file: FileKey, lines: tuple[int, int], limit: int) -> list[tuple[int, int]]:
        """Return the first and last line of up to `limit` chunks of a file with a line in the range `lines`, in order.

        A line between two messages of a transcript is in no chunk.
        """

    def has_chunks(self, among: ChunkFilter) -> bool:
        """Return whether the filter leaves any chunk."""

    def matching_files(self, among: ChunkFilter) -> frozenset[FileKey]:
        """Return the indexed files that match the filter's conditions on files and sources."""

    def file_dates(self) -> dict[FileKey, str]:
        """Return the date of each indexed file by which filters select it, as YYYY-MM-DD.

        It is empty if only the time of the last modification counts.
        """

    def dated_chunks(self, first: date, last: date, among: ChunkFilter, limit: int) -> list[int]:
        """Return at most `limit` chunks whose day, or else whose note's day, is in a range: first one of each day."""

    def frequencies(self, terms: Sequence[QueryTerm]) -> dict[QueryTerm, int]:
        """Return how many chunks hold each term, or a word that begins with it if it is a prefix.

        Guessed terms that do not occur in the index are 0, at almost no cost.
        """

    def keyword_chunks(self) -> int:
        """Return the number of chunks in the keyword index: N of BM25."""

    def names_containing(self, piece: str, limit: int) -> list[str]:
        """Return at most `limit` names (terms with "_" or a digit) that contain `piece`, the shortest first.

        In a large index a name may be missing for some seconds after it was written.
        """

    def keyword_hits(self, terms: Sequence[QueryTerm], among: ChunkFilter, limit: int) -> list[KeywordHit]:
        """Return the best chunks that hold any of `terms`, best first, the smaller id first among equals.

        Scores do not depend on the filter. No term is query syntax.
        """

    def keyword_scores(self, terms: Sequence[QueryTerm], ids: Sequence[int]) -> dict[int, float]:
        """Return the BM25 of each of these chunks for `terms`; 0 for one that holds none of them."""

    def vector_hits(self, query: Vector, limit: int, among: ChunkFilter) -> list[VectorHit]:
        """Return the nearest chunks by exact cosine, best first, the smaller id first among equals.

        Vectors of another length than the query's are left out. A query without a direction (zero, or with a number
        that is not finite) raises ValueError.
        """

    def cosines(self, ids: Sequence[int], query: Vector) -> dict[int, float]:
        """Return the cosine of each chunk's vector with the unit vector `query`; chunks without one are left out."""

    def vector_centre(self, dimensions: int) -> Vector | None:
        """Return the mean of the stored vectors as last measured; None if there is none of these dimensions."""

    def stored_counts(self, file_ids: Sequence[int]) -> StoredCounts:
        """Return what the index stores of these files, counted in the tables that store it."""

    def hashes_containing(self, text: str) -> set[bytes]:
        """Return the content hashes of the chunks that contain `text` word for word; looks at every chunk."""


class VectorWriter(VectorView, Protocol):
    """Changes one set of vectors, the stored or the staged one; each call is one transaction."""

    def begin_vectors(self, identity: VectorIdentity) -> None:
        """Delete every vector of the set and store the identity of the next ones."""

    def set_dimensions(self, identity: VectorIdentity) -> None:
        """Store the identity once its dimensions are known, and delete vectors of other lengths."""

    def put_vectors(self, vectors: Mapping[int, bytes]) -> int:
        """Store vectors by chunk id; return the index revision, which only vectors of the stored set raise."""


class Writer(VectorWriter, Protocol):
    """Changes an index; each call except `copy_vectors` is one transaction. For the agent's writer thread only."""

    def revision(self) -> int:
        """Return the index revision."""

    def files(self) -> dict[FileKey, FileRow]:
        """Return every indexed file."""

    def memory_files(self, paths: Collection[str]) -> dict[FileKey, FileRow]:
        """Return the rows of the Markdown files with these paths; paths that are not indexed are left out."""

    def transcript(self, file_id: int) -> TranscriptState | None:
        """Return how far a transcript was read; None for any other file and for a transcript that could not be read."""

    def outdated_transcripts(self, version: str) -> frozenset[int]:
        """Return the ids of the transcripts that were read by another version of the reader."""

    def write(self, documents: Sequence[PreparedFile | TranscriptPart], removed: Iterable[FileRow] = ()) -> int:
        """Replace and remove whole files, append to transcripts; return the new revision.

        Chunks of a replaced file whose texts do not change keep their vectors. For an outdated file with the same
        chunks, only the columns are filled that an older version did not have.
        """

    def touch(self, rows: Sequence[tuple[FileRow, FileStat]]) -> None:
        """Store the new stats of files whose bytes have not changed. The revision does not change."""

    def refill_transcript(self, row: FileRow, chunks: Iterable[Chunk], should_stop: StopSign) -> None:
        """Fill the columns of a transcript that an older version indexed, in several transactions.

        `chunks` are those of the indexed part, in order. Neither texts nor vectors change.

        Raises:
            SyncCancelled: `should_stop` returned true.
        """

    def record_sync(self, completed_at_ms: int) -> None:
        """Store when a sync completed (Unix milliseconds)."""

    def record_failover(self, record: str) -> None:
        """Store the record of which provider makes the vectors instead of the configured one."""

    def staged(self) -> VectorWriter | None:
        """Return the writer of the staged set of vectors; None if there is none."""

    def stage_vectors(self, identity: VectorIdentity) -> VectorWriter:
        """Begin a staged set of vectors of `identity`, and delete an earlier one; return its writer.

        Until `promote_staged`, searches do not read it. It loses the vectors of removed chunks as the stored set does.
        """

    def discard_staged(self) -> None:
        """Delete the staged set."""

    def promote_staged(self) -> int:
        """Replace the stored set by the staged one, in one transaction; return the new revision."""

    def copy_vectors(self, source: VectorView, should_stop: StopSign) -> None:
        """Copy the vectors, stored and staged, that another index has for the texts of this one.

        Raises:
            SyncCancelled: `should_stop` returned true.
        """

    def measure_vector_centre(self) -> None:
        """Measure the mean of the vectors if the index has changed since it was last measured."""


class Store(Protocol):
    """One agent's index.

    `read`, `index_vectors`, `watch` and `reload` may be called on any thread, everything else only on the agent's
    writer thread. Everything that changes the index is called within `exclusive` or `on_sound_index`.
    """

    health: IndexHealth
    built_with: BuildIdentity | None
    build_differences: tuple[Difference, ...]
    """How the stored build identity differs from the wanted one; empty if no rebuild is due."""
    keyword_outdated: bool
    """Whether the keyword index was built with another version of the analyzer."""
    has_completed_sync: bool
    """Whether a sync has completed since the index was created; until then, its revision has no meaning."""

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
        """Whether the index was not read since `release_memory` or `open`. Health checks trust an idle index."""

    @property
    def last_counts(self) -> IndexCounts | None:
        """The last counts taken, with their revision; None before the first count."""

    def reserve(self) -> None:
        """Lock the index for this process before `open`; IndexBusy if another process holds it."""

    def open(self) -> None:
        """Open the index. Create it if it is missing, recover it after a crash, set it aside if it is damaged.

        Raises:
            IndexBusy, IndexTooNew, IndexReadOnly, DiskFull, IndexUnavailable: it can neither be opened nor created.
        """

    def close(self) -> None:
        """Close the index and release its lock. Idempotent."""

    def read(self, deadline: float | None = None) -> AbstractContextManager[Reader]:
        """Open one snapshot, which can be read until `time.monotonic()` passes `deadline`.

        Raises:
            DeadlineTooShort: the deadline passed during the read.
            IndexDamaged: the index is damaged or gone; `health` records it, and the next `repair` re-creates the index.
            IndexUnavailable: the index cannot be read.
        """

    def writer(self) -> Writer:
        """Return the writer of the index.

        Raises:
            IndexReadOnly, DiskFull: the index is open for reading only.
        """

    def rebuild(self) -> AbstractContextManager[Writer]:
        """Open a writer into an empty index, which replaces this one when the block ends without an exception.

        Until then, readers see the old index.
        """

    def exclusive(self, should_stop: StopSign) -> AbstractContextManager[None]:
        """Let no other process change the index until the block ends; wait until none does. Blocks can be nested.

        Raises:
            IndexBusy: `should_stop` returned true while another process was changing the index.
            IndexUnavailable: the index cannot be locked.
        """

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call `on_change`, on any thread, after another process may have changed the index or the memory files.

        `on_change` must not block. `close` ends it. A store that only one process can open never calls it.
        """

    def reload(self) -> None:
        """Load again what the store remembers of the index, because another process may have changed it. Blocks.

        Raises:
            IndexDamaged, IndexUnavailable: as `read`.
        """

    def on_sound_index(self, work: Callable[[StopSign], T], should_stop: StopSign) -> T:
        """Call `work` within `exclusive` and return its result; after damage, repair the index and call `work` again.

        `work` receives a stop sign that is also set by damage.

        Raises:
            IndexDamaged: the re-created index was damaged again, repeatedly.
            IndexBusy, IndexUnavailable: as `exclusive`.
        """

    def repair(self) -> bool:
        """Re-create the index, empty, if it was found damaged or gone; return whether it was. Raises as `open` does."""

    def refresh_keyword(self, analyzer: Analyzer, should_stop: StopSign) -> int:
        """Rebuild the keyword index from the stored text; return the new revision.

        If `should_stop` returns true, SyncCancelled is raised and the old keyword index stays in use.
        """

    def purge(self, should_stop: StopSign) -> bool:
        """Overwrite deleted text on the disk; return False if it has to be called again."""

    def index_vectors(self) -> None:
        """Create or drop the index that makes searches of many vectors fast, in a store that has one.

        May be called on any thread, but by one at a time. Blocks for minutes; `close` ends it.
        """

    def release_memory(self) -> None:
        """Release the memory that an idle index holds."""

    def sizes(self) -> StoreSizes:
        """Return the bytes on disk; 0 for a missing file. Blocks."""

    def probe_vector_engine(self) -> None:
        """Determine which engine compares vectors, for `vector_engine`. Blocks."""

    def vector_engine(self) -> VectorEngineStatus:
        """Return which engine compares vectors, and the form of those in memory. No I/O, no lock."""

    def vector_memory_bytes(self) -> int:
        """Return the bytes of vectors and filters in memory. Waits for a commit that is changing the vectors."""

    def degradations(self) -> tuple[Degradation, ...]:
        """Return why searches do not read a complete index at the configured path; reported with every answer."""

    def remarks(self) -> tuple[Degradation, ...]:
        """Return the remarks that only Status reports, because they do not affect answers."""
