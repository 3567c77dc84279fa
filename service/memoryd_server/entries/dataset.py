"""One agent's dataset of entries in LanceDB: its columns, calls, errors and indexes.

Calls block; they run on threads. A dataset in a folder belongs to one process, which holds its lock file. A dataset in
an object store may have several processes. Commits are retried after a conflict, and readers are kept out of a cleanup.

A large dataset has an index of its vectors: one undivided IVF partition with one byte per number. A search scans all of
it for candidates and compares these exactly, so its results are those of a search without an index. Rows added since
the index was built are compared exactly as well.
"""

import gc
import hashlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from memoryd_server.entries.model import DatasetLocation, Entry, EntryCategory, IdentifiedVector
from memoryd_server.errors import DiskFull, EntriesUnavailable, IndexBusy, MemorydError
from memoryd_server.system import DISK_FULL, FileLock, release_free_memory
from memoryd_server.threads import RWLock
from memoryd_server.vectors import Vector

TABLE = "memories"
VECTOR = "vector"

SHOWN = ("id", "text", "importance", "category", "createdAt", "key")
"""The columns of an entry."""

_CATEGORIES = frozenset(EntryCategory)

WORDS_INDEX: Mapping[str, Any] = {
    "base_tokenizer": "whitespace",
    "lower_case": False,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
}
"""LanceDB only splits the tokens at spaces: they come from memoryd's own analyzer."""


def dataset_schema() -> Any:
    """Return the schema of a new dataset, named as in OpenClaw's memory-lancedb.

    The vector column is added with the first vector, because it has a fixed length.
    """
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("importance", pa.float64()),
            pa.field("category", pa.string()),
            pa.field("createdAt", pa.int64()),
            pa.field("key", pa.string()),
            pa.field("hash", pa.string()),
            pa.field("tokens", pa.string()),
            pa.field("embedding", pa.string()),
        ]
    )


def vector_column(dimensions: int) -> Any:
    """Return a column of vectors with `dimensions` numbers."""
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    return pa.field(VECTOR, pa.list_(pa.float32(), dimensions))


def entry_to_row(entry: Entry, tokens: str, embedded: IdentifiedVector | None) -> dict[str, Any]:
    """Return an entry as a row, without vector columns if `embedded` is None."""
    row: dict[str, Any] = {
        "id": entry.entry_id,
        "text": entry.text,
        "importance": entry.importance,
        "category": entry.category.value,
        "createdAt": entry.created_ms,
        "key": entry.key,
        "hash": text_hash(entry.text),
        "tokens": tokens,
        "embedding": "",
    }
    return row if embedded is None else {**row, **vector_fields(embedded)}


def vector_fields(embedded: IdentifiedVector) -> dict[str, Any]:
    """Return the columns of a vector."""
    return {"embedding": embedded.identity, VECTOR: embedded.vector}


def row_to_entry(row: Mapping[str, Any]) -> Entry:
    """Return the entry of a row with the columns `SHOWN`. An unknown category becomes OTHER."""
    return Entry(
        row["id"],
        row["text"] or "",
        row["importance"] or 0.0,
        EntryCategory(row["category"]) if row["category"] in _CATEGORIES else EntryCategory.OTHER,
        row["createdAt"],
        row["key"] or "",
    )


def text_hash(text: str) -> str:
    """Return a hash that is equal for equal texts, ignoring white space around them."""
    return hashlib.sha256(text.strip().encode()).hexdigest()


def sql_string(text: str) -> str:
    """Return a text as a string literal of a filter condition."""
    return "'" + text.replace("'", "''") + "'"


LOCK_FILE = "entries.lock"
COMMIT_ATTEMPTS = 5

INDEX_CACHE_BYTES = 64 * 2**20
METADATA_CACHE_BYTES = 8 * 2**20
"""LanceDB's default is gigabytes, which old versions fill. Every search reads an index that does not fit."""

_OBJECT_STORE_RETRIES: Mapping[str, str] = {"client_max_retries": "3", "client_retry_timeout": "20"}
"""Seconds and attempts. LanceDB's default of three minutes would block the threads that all agents share."""

_KEEP_DURING_MERGE = timedelta(days=1)
_KEEP_NOTHING = timedelta(milliseconds=1)
_KEEP_FOR_OTHER_READERS = timedelta(hours=1)
_CLEANUP_MARGIN = timedelta(minutes=1)
_NEWEST_FIRST = ("createdAt", "id")

_T = TypeVar("_T")


INDEX_THRESHOLD = 4_000_000
"""Rows times dimensions from which a vector index is built. Below, a search without an index takes about 15 ms."""


class Dataset:
    """The rows of one dataset.

    Holding `write_lock` makes several calls one change within this process. A vector index is built from
    `index_threshold` rows times dimensions.
    """

    def __init__(self, location: DatasetLocation, *, index_threshold: int = INDEX_THRESHOLD) -> None:
        self.location = location
        self._index_threshold = index_threshold
        self.write_lock = threading.RLock()
        self._gate = RWLock()
        self._lock = FileLock(Path(location.uri) / LOCK_FILE) if location.is_local else None
        self._connection: Any = None
        self._table: Any = None
        # A folder shows its deletions. In an object store, an earlier process may have deleted rows.
        self._deleted = not location.is_local

    def open(self) -> None:
        """Open the dataset, creating it if it is missing.

        Raises:
            IndexBusy: another process has it open.
            IndexReadOnly, IndexUnavailable: its folder cannot be written.
            DiskFull, EntriesUnavailable: LanceDB cannot open it.
        """
        if self._lock is not None:
            self._acquire(self._lock)
        try:
            with entry_errors(self.location.uri):
                self._connect()
        except BaseException:
            self.close()
            raise

    def _acquire(self, lock: FileLock) -> None:
        # LanceDB creates world-readable files, so the folder is private. The lock file reports a failure of mkdir.
        with suppress(OSError):
            Path(self.location.uri).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire()
        except IndexBusy as error:
            raise IndexBusy(
                f"the entries at {self.location.uri} are in use by another memoryd; use that daemon, stop it, or set "
                "another dbPath for this one",
                retry_after_seconds=1.0,
            ) from error

    def _connect(self) -> None:
        self._connection = self._with_empty_caches()
        if TABLE in self._connection.list_tables().tables:
            self._table = self._connection.open_table(TABLE)
            self._check_columns(self._table.schema.names)
        else:
            self._table = self._connection.create_table(TABLE, schema=dataset_schema())
        if not any(index.columns == ["tokens"] for index in self._table.list_indices()):
            self._build_word_index()

    def _with_empty_caches(self) -> Any:
        lancedb = _import_lancedb()
        return lancedb.connect(
            self.location.uri,
            read_consistency_interval=timedelta(0),
            storage_options=None if self.location.is_local else {**_OBJECT_STORE_RETRIES, **self.location.options},
            session=lancedb.Session(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES),
        )

    def _check_columns(self, names: Sequence[str]) -> None:
        missing = [name for name in dataset_schema().names if name not in names]
        if missing:
            raise EntriesUnavailable(
                f"the dataset {TABLE} at {self.location.uri} belongs to another program: it lacks the columns "
                f"{', '.join(missing)}; set another dbPath"
            )

    def close(self) -> None:
        """Close the dataset and release its lock for another process."""
        with self.write_lock:
            self._table = self._connection = None
            if self._lock is not None:
                self._lock.release()

    @property
    def dimensions(self) -> int:
        """The length of the vectors; 0 if there is no vector column yet."""
        with self._reading():
            schema = self._table.schema
            return int(schema.field(VECTOR).type.list_size) if VECTOR in schema.names else 0

    def set_dimensions(self, dimensions: int) -> None:
        """Give the vector column this length. Removes all vectors of another length; the texts stay."""
        with self.write_lock:
            current = self.dimensions
            if current == dimensions:
                return
            if current:
                self._commit(lambda: self._table.drop_columns([VECTOR]))
            self._commit(lambda: self._table.add_columns(vector_column(dimensions)))

    def insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add the rows whose ids are not stored yet; durable on return."""
        self._merge(rows, lambda merge: merge.when_not_matched_insert_all())

    def update(self, rows: Sequence[dict[str, Any]]) -> None:
        """Replace the given columns of the rows with these ids; ids that are not stored are ignored."""
        self._merge(rows, lambda merge: merge.when_matched_update_all())

    def _merge(self, rows: Sequence[dict[str, Any]], configure: Callable[[Any], Any]) -> None:
        import pyarrow as pa  # noqa: PLC0415 -- an extra

        with self.write_lock, entry_errors(self.location.uri):
            names = set(rows[0])
            schema = pa.schema([field for field in self._table.schema if field.name in names])
            batch = pa.Table.from_pylist(list(rows), schema=schema)
            self._commit(lambda: configure(self._table.merge_insert("id")).execute(batch))

    def delete(self, condition: str) -> int:
        """Delete the rows that match a condition, and return their number."""
        with self.write_lock:
            self._deleted = True
            return int(self._commit(lambda: self._table.delete(condition)).num_deleted_rows)

    def _commit(self, change: Callable[[], _T]) -> _T:
        """Make an idempotent change, again after a conflict with another writer."""
        with entry_errors(self.location.uri):
            for _ in range(COMMIT_ATTEMPTS - 1):
                try:
                    return change()
                except Exception as error:
                    if not is_conflict(error):
                        raise
            return change()

    def rows(self, condition: str = "", limit: int = 1) -> list[dict[str, Any]]:
        """Return at most `limit` rows that match a condition, newest first."""
        with self._reading():
            query = self._table.search().select(list(SHOWN))
            ordered = query.order_by([{"column_name": name, "ascending": False} for name in _NEWEST_FIRST])
            found: list[dict[str, Any]] = (ordered.where(condition) if condition else ordered).limit(limit).to_list()
            return found

    def count(self, condition: str = "") -> int:
        """Return the number of rows that match a condition."""
        with self._reading():
            return int(self._table.count_rows(condition or None))

    def text_bytes(self, condition: str = "") -> int:
        """Return the total length in bytes of the texts that match a condition."""
        with self._reading():
            query = self._table.search().select({"size": "octet_length(text)"})
            conditioned = query.where(condition) if condition else query
            sizes = conditioned.limit(self._table.count_rows()).to_arrow().column("size")
            return int(sum(sizes.to_pylist()))

    def vectors(self, condition: str, limit: int) -> list[Vector]:
        """Return the vectors of at most `limit` rows that match a condition."""
        with self._reading():
            found = self._table.search().select([VECTOR]).where(condition).limit(limit).to_arrow().column(VECTOR)
            return [np.asarray(each.values, np.float32) for each in found if each.is_valid]

    def nearest(self, vector: Vector, condition: str, limit: int) -> list[dict[str, Any]]:
        """Return the rows with the nearest vectors among those that match a condition, each with its `_distance`."""
        with self._reading():
            query = self._table.search(vector, vector_column_name=VECTOR).distance_type("l2")
            shown = query.refine_factor(refine_factor(limit)).select([*SHOWN, "_distance"])
            found: list[dict[str, Any]] = shown.where(condition, prefilter=True).limit(limit).to_list()
            return found

    def match_words(self, tokens: str, condition: str, limit: int) -> list[dict[str, Any]]:
        """Return the rows that match these tokens best, among those of a condition, each with its BM25 as `_score`."""
        from lancedb.query import MatchQuery  # noqa: PLC0415 -- an extra

        with self._reading():
            query = self._table.search(MatchQuery(tokens, "tokens"), query_type="fts").select([*SHOWN, "_score"])
            conditioned = query.where(condition, prefilter=True) if condition else query
            found: list[dict[str, Any]] = conditioned.limit(limit).to_list()
            return found

    def optimize(self) -> float:
        """Merge small files, add new rows to the indexes, and remove old versions, with the deleted rows in them.

        In an object store, versions of the last hour stay, because other processes may be reading them. Return the
        seconds after which they can be removed; 0 if none stay.
        """
        with self.write_lock, entry_errors(self.location.uri):
            self._optimize()
        release_free_memory()
        return 0.0 if self.location.is_local else (_KEEP_FOR_OTHER_READERS + _CLEANUP_MARGIN).total_seconds()

    def _optimize(self) -> None:
        rewritten = self._has_deletions()
        if rewritten:
            self._rewrite()
        self._update_vector_index(rebuild=rewritten)
        keep = _KEEP_DURING_MERGE if self.location.is_local else _KEEP_FOR_OTHER_READERS
        self._commit(lambda: self._table.optimize(cleanup_older_than=keep))
        with self._gate.alone():
            if self.location.is_local:
                # This process holds the lock file, so no other process is writing: unverified files are leftovers.
                self._table.optimize(cleanup_older_than=_KEEP_NOTHING, delete_unverified=True)
            self._drop_caches()

    def _drop_caches(self) -> None:
        """Open the table again: otherwise the caches fill with what was just replaced."""
        connection = self._with_empty_caches()
        self._connection, self._table = connection, connection.open_table(TABLE)

    def _has_deletions(self) -> bool:
        if not self.location.is_local:
            return self._deleted
        # A list, because an unfinished glob keeps its folder open.
        return bool(list((Path(self.location.uri) / f"{TABLE}.lance" / "_deletions").glob("*")))

    def _rewrite(self) -> None:
        """Rewrite every row, and rebuild the word index.

        LanceDB only marks deleted rows; it keeps them in their files until they are a tenth of a file.
        """
        self._commit(lambda: self._table.update(values_sql={"hash": "hash"}))
        self._build_word_index()
        self._deleted = False

    def rebuild_vector_index(self) -> None:
        """Rebuild the vector index after most vectors were replaced, if there are enough vectors for one."""
        with self.write_lock, entry_errors(self.location.uri):
            self._update_vector_index(rebuild=True)

    def _update_vector_index(self, *, rebuild: bool) -> None:
        dimensions = self.dimensions
        self._commit(lambda: update_vector_index(self._table, dimensions, self._index_threshold, rebuild=rebuild))

    def _build_word_index(self) -> None:
        from lancedb.index import FTS  # noqa: PLC0415 -- an extra

        self._commit(lambda: self._table.create_index("tokens", config=FTS(**WORDS_INDEX), replace=True))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._gate.shared(), entry_errors(self.location.uri):
            yield


_MOST_CHARS = 300
_FULL = ("no space left", "os error 28", "disk quota exceeded")


@contextmanager
def entry_errors(uri: str) -> Iterator[None]:
    """Translate LanceDB's errors. `uri` is the dataset's address, for the message.

    Raises:
        DiskFull: no space or no quota is left.
        EntriesUnavailable: any other failure.
    """
    try:
        yield
    except MemorydError:
        raise
    # LanceDB raises RuntimeError, ValueError, OSError and Arrow's errors for the same causes.
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".splitlines()[0][:_MOST_CHARS]
        if _is_full(error):
            raise DiskFull(f"the entries at {uri} cannot be written: {detail}; free some space") from error
        raise EntriesUnavailable(f"the entries at {uri} cannot be used: {detail}", retry_after_seconds=1.0) from error


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return True
    return any(words in str(error).lower() for words in _FULL)


def is_conflict(error: Exception) -> bool:
    """Return whether another writer committed first, so that a retry can succeed."""
    return "conflict" in str(error).lower()


MOST_PARTS = 8
"""Each optimization adds a part for the rows added since the last one; an index of this many parts is rebuilt."""

MIN_EXACT = 64
"""The least number of vectors that are compared exactly."""

_GROWTH = 2
"""The index is scaled to the vectors it was built from; it is rebuilt when their number has grown by this factor."""

_NAME = "vectors_of_"


def refine_factor(limit: int) -> int:
    """Return how many times `limit` vectors are compared exactly."""
    return max(4, -(-MIN_EXACT // limit))


def update_vector_index(table: Any, dimensions: int, threshold: int, *, rebuild: bool) -> None:
    """Build the vector index if the dataset needs one and `rebuild` is set or no existing index fits."""
    rows = table.count_rows(f"{VECTOR} IS NOT NULL") if dimensions else 0
    existing = [index.name for index in table.list_indices() if index.columns == [VECTOR]]
    if rows * dimensions < threshold or (not rebuild and any(_fits(table, name, rows) for name in existing)):
        return
    from lancedb.index import IvfSq  # noqa: PLC0415 -- an extra

    name = f"{_NAME}{rows}"
    table.create_index(VECTOR, config=IvfSq(distance_type="l2", num_partitions=1), name=name, replace=True)
    for old in existing:
        if old != name:
            table.drop_index(old)


def _fits(table: Any, name: str, rows: int) -> bool:
    built_rows = name.removeprefix(_NAME)
    if not built_rows.isdigit() or rows >= _GROWTH * int(built_rows):
        return False
    return int(table.index_stats(name).num_indices) < MOST_PARTS


def _import_lancedb() -> ModuleType:
    """Import LanceDB, an extra that is slow to import."""
    is_first = "lancedb" not in sys.modules
    import lancedb  # noqa: PLC0415 -- an extra
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    if is_first:
        # Arrow's own allocator keeps freed memory.
        pa.set_memory_pool(pa.system_memory_pool())
        # The modules have 80,000 objects, which would make each full collection of garbage ten times as long.
        gc.freeze()
    module: ModuleType = lancedb
    return module
