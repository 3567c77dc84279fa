"""LanceDB calls, columns, vector index, errors.

One agent's dataset: LanceDB's calls, with their errors named, commits retried and readers kept off a clean-up.

Blocks; for threads. A dataset in a folder has one process, by a lock file; in an object store it may have several.

The columns of a dataset, and entries as its rows. The names are the reference's where it has them.

Gives LanceDB's failures the names that callers know.

The index of a dataset's vectors, for datasets so large that comparing with each of them takes too long.

It holds every vector with a byte a number, undivided: a search goes through all of them, proposes, and the vectors
themselves decide. So what is found is what a search without an index finds, and rows that came since are looked at
beside it.
"""

import ctypes
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from memoryd_server.entries.model import DatasetLocation, Entry, EntryCategory, IdentifiedVector
from memoryd_server.errors import DiskFull, EntriesUnavailable, IndexBusy, MemorydError
from memoryd_server.system import DISK_FULL, FileLock, give_back
from memoryd_server.threads import RWLock
from memoryd_server.vectors import Vector

TABLE = "memories"
VECTOR = "vector"

SHOWN = ("id", "text", "importance", "category", "createdAt", "key")
"""The columns that an entry is made of."""

_CATEGORIES = frozenset(EntryCategory)

WORDS_INDEX: Mapping[str, Any] = {
    "base_tokenizer": "whitespace",
    "lower_case": False,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
}
"""The tokens are memoryd's own already: LanceDB only takes them apart at the spaces."""


def columns() -> Any:
    """The columns of a new dataset. That of the vectors comes with the first one, whose length it has."""
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
    """The column of vectors of this length."""
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    return pa.field(VECTOR, pa.list_(pa.float32(), dimensions))


def row(entry: Entry, tokens: str, embedded: IdentifiedVector | None) -> dict[str, Any]:
    """An entry as a row; without a vector where there is none."""
    found: dict[str, Any] = {
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
    return found if embedded is None else {**found, **embedding(embedded)}


def embedding(embedded: IdentifiedVector) -> dict[str, Any]:
    """A vector as part of a row."""
    return {"embedding": embedded.identity, VECTOR: embedded.vector}


def entry(found: Mapping[str, Any]) -> Entry:
    """The entry of a row with the columns `SHOWN`. A category that another program wrote is OTHER."""
    return Entry(
        found["id"],
        found["text"] or "",
        found["importance"] or 0.0,
        EntryCategory(found["category"]) if found["category"] in _CATEGORIES else EntryCategory.OTHER,
        found["createdAt"],
        found["key"] or "",
    )


def text_hash(text: str) -> str:
    """What the very same text has in common with itself."""
    return hashlib.sha256(text.strip().encode()).hexdigest()


def quoted(text: str) -> str:
    """A text in a condition."""
    return "'" + text.replace("'", "''") + "'"


LOCK_FILE = "entries.lock"
ATTEMPTS = 5

INDEX_CACHE_BYTES = 64 * 2**20
METADATA_CACHE_BYTES = 8 * 2**20
"""LanceDB's own limits are gigabytes, which old versions fill. An index that has no room is read by every search."""

_PATIENCE: Mapping[str, str] = {"client_max_retries": "3", "client_retry_timeout": "20"}
"""An object store that is away must not hold the threads that all agents share for LanceDB's three minutes."""

_LONG = timedelta(days=1)
_NOTHING = timedelta(milliseconds=1)
_OTHERS_MAY_READ = timedelta(hours=1)
_A_WHILE = timedelta(minutes=1)
_NEWEST_FIRST = ("createdAt", "id")

_T = TypeVar("_T")


class Dataset:
    """The rows from `open` to `close`. `writing` makes several calls one change, as far as this process goes."""

    def __init__(self, place: DatasetLocation) -> None:
        self.place = place
        self.writing = threading.RLock()
        self._gate = RWLock()
        self._lock = FileLock(Path(place.uri) / LOCK_FILE) if place.is_local else None
        self._connection: Any = None
        self._table: Any = None
        # Of a folder it shows; in an object store a process that was killed may have deleted.
        self._deleted = not place.is_local

    def open(self) -> None:
        """Opens the dataset, or makes it.

        Raises:
            IndexBusy: another process has it open.
            IndexReadOnly, IndexUnavailable: its folder cannot be written.
            DiskFull, EntriesUnavailable: LanceDB cannot open it.
        """
        if self._lock is not None:
            self._acquire(self._lock)
        try:
            with entry_errors(self.place.uri):
                self._connect()
        except BaseException:
            self.close()
            raise

    def _acquire(self, lock: FileLock) -> None:
        # LanceDB makes its files readable for everybody; what cannot be made the lock file's error tells.
        with suppress(OSError):
            Path(self.place.uri).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire()
        except IndexBusy as error:
            raise IndexBusy(
                f"the entries at {self.place.uri} are held by another memoryd; use that daemon, stop it, or give this "
                "one another dbPath",
                retry_after_seconds=1.0,
            ) from error

    def _connect(self) -> None:
        bound_heap()
        import lancedb  # noqa: PLC0415 -- an extra, and slow to import

        self._connection = lancedb.connect(
            self.place.uri,
            read_consistency_interval=timedelta(0),
            storage_options=None if self.place.is_local else {**_PATIENCE, **self.place.options},
            session=lancedb.Session(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES),
        )
        if TABLE in self._connection.list_tables().tables:
            self._table = self._connection.open_table(TABLE)
            self._refuse_foreign(self._table.schema.names)
        else:
            self._table = self._connection.create_table(TABLE, schema=columns())
        if not any(index.columns == ["tokens"] for index in self._table.list_indices()):
            self._index_words()

    def _refuse_foreign(self, names: Sequence[str]) -> None:
        missing = [name for name in columns().names if name not in names]
        if missing:
            raise EntriesUnavailable(
                f"the dataset {TABLE} at {self.place.uri} is another program's: it has no columns "
                f"{', '.join(missing)}; choose another dbPath"
            )

    def close(self) -> None:
        """Lets the dataset go, for another process to open."""
        with self.writing:
            self._table = self._connection = None
            if self._lock is not None:
                self._lock.release()

    @property
    def dimensions(self) -> int:
        """The length of the vectors; 0 while there is no column for them."""
        with self._reading():
            schema = self._table.schema
            return int(schema.field(VECTOR).type.list_size) if VECTOR in schema.names else 0

    def fit(self, dimensions: int) -> None:
        """Makes the column of vectors this long. All vectors of another length are gone then; the texts are not."""
        with self.writing:
            there = self.dimensions
            if there == dimensions:
                return
            if there:
                self._commit(lambda: self._table.drop_columns([VECTOR]))
            self._commit(lambda: self._table.add_columns(vector_column(dimensions)))

    def insert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Adds rows whose ids are not there yet; returns once they are durable."""
        self._merge(rows, lambda merge: merge.when_not_matched_insert_all())

    def update(self, rows: Sequence[dict[str, Any]]) -> None:
        """Replaces the given columns of the rows with these ids; rows that are gone stay gone."""
        self._merge(rows, lambda merge: merge.when_matched_update_all())

    def _merge(self, rows: Sequence[dict[str, Any]], what: Callable[[Any], Any]) -> None:
        import pyarrow as pa  # noqa: PLC0415 -- an extra

        with self.writing, entry_errors(self.place.uri):
            given = set(rows[0])
            schema = pa.schema([field for field in self._table.schema if field.name in given])
            batch = pa.Table.from_pylist(list(rows), schema=schema)
            self._commit(lambda: what(self._table.merge_insert("id")).execute(batch))

    def delete(self, condition: str) -> int:
        """Deletes the rows of a condition; answers with how many there were."""
        with self.writing:
            self._deleted = True
            return int(self._commit(lambda: self._table.delete(condition)).num_deleted_rows)

    def _commit(self, change: Callable[[], _T]) -> _T:
        """Makes a change that may be made twice; where another writer came first, again."""
        with entry_errors(self.place.uri):
            for _ in range(ATTEMPTS - 1):
                try:
                    return change()
                except Exception as error:
                    if not is_conflict(error):
                        raise
            return change()

    def rows(self, condition: str = "", limit: int = 1, shown: Sequence[str] = SHOWN) -> list[dict[str, Any]]:
        """Rows of a condition, newest first."""
        with self._reading():
            query = self._table.search().select(list(shown))
            ordered = query.order_by([{"column_name": name, "ascending": False} for name in _NEWEST_FIRST])
            found: list[dict[str, Any]] = (ordered.where(condition) if condition else ordered).limit(limit).to_list()
            return found

    def count(self, condition: str = "") -> int:
        """How many rows a condition has."""
        with self._reading():
            return int(self._table.count_rows(condition or None))

    def text_bytes(self, condition: str = "") -> int:
        """How long the texts of a condition are together, in bytes."""
        with self._reading():
            query = self._table.search().select({"size": "octet_length(text)"})
            conditioned = query.where(condition) if condition else query
            sizes = conditioned.limit(self._table.count_rows()).to_arrow().column("size")
            return int(sum(sizes.to_pylist()))

    def nearest(self, vector: Vector, condition: str, limit: int) -> list[dict[str, Any]]:
        """The rows of a condition whose vectors are nearest, each with its `_distance`."""
        with self._reading():
            query = self._table.search(vector, vector_column_name=VECTOR).distance_type("l2")
            shown = query.refine_factor(refine_factor(limit)).select([*SHOWN, "_distance"])
            found: list[dict[str, Any]] = shown.where(condition, prefilter=True).limit(limit).to_list()
            return found

    def with_words(self, tokens: str, condition: str, limit: int) -> list[dict[str, Any]]:
        """The rows of a condition that have the most telling of these tokens, each with its BM25 as `_score`."""
        from lancedb.query import MatchQuery  # noqa: PLC0415 -- an extra

        with self._reading():
            query = self._table.search(MatchQuery(tokens, "tokens"), query_type="fts").select([*SHOWN, "_score"])
            conditioned = query.where(condition, prefilter=True) if condition else query
            found: list[dict[str, Any]] = conditioned.limit(limit).to_list()
            return found

    def tidy(self) -> float:
        """Puts small files together, takes new rows into the indexes, and removes what no version needs.

        What was deleted leaves the files, too. In an object store, versions of the last hour stay, as other processes
        may be reading them. Answers with how many seconds later they may go; 0 where nothing stays.
        """
        with self.writing, entry_errors(self.place.uri):
            self._compact()
        give_back()
        return 0.0 if self.place.is_local else (_OTHERS_MAY_READ + _A_WHILE).total_seconds()

    def _compact(self) -> None:
        rewritten = self._has_deletions()
        if rewritten:
            self._rewrite()
        self._index_vectors(anew=rewritten)
        if not self.place.is_local:
            self._commit(lambda: self._table.optimize(cleanup_older_than=_OTHERS_MAY_READ))
            return
        self._commit(lambda: self._table.optimize(cleanup_older_than=_LONG))
        with self._gate.alone():
            # The lock file says that nobody else can be in the middle of a write: what is left over is nobody's.
            self._table.optimize(cleanup_older_than=_NOTHING, delete_unverified=True)

    def _has_deletions(self) -> bool:
        if not self.place.is_local:
            return self._deleted
        # A list, as a glob that is left half-way keeps its folder open.
        return bool(list((Path(self.place.uri) / f"{TABLE}.lance" / "_deletions").glob("*")))

    def _rewrite(self) -> None:
        """Writes every row anew, and the index of words.

        LanceDB only notes which rows are deleted, and keeps them in their files until they are a tenth of one.
        """
        self._commit(lambda: self._table.update(values_sql={"hash": "hash"}))
        self._index_words()
        self._deleted = False

    def index_vectors_anew(self) -> None:
        """Makes the index of vectors anew, where there are enough for one: after most of them were replaced."""
        with self.writing, entry_errors(self.place.uri):
            self._index_vectors(anew=True)

    def _index_vectors(self, *, anew: bool) -> None:
        dimensions = self.dimensions
        self._commit(lambda: index_vectors(self._table, dimensions, anew=anew))

    def _index_words(self) -> None:
        from lancedb.index import FTS  # noqa: PLC0415 -- an extra

        self._commit(lambda: self._table.create_index("tokens", config=FTS(**WORDS_INDEX), replace=True))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._gate.shared(), entry_errors(self.place.uri):
            yield


_MOST_CHARS = 300
_FULL = ("no space left", "os error 28", "disk quota exceeded")


@contextmanager
def entry_errors(where: str) -> Iterator[None]:
    """Names what went wrong with the dataset at `where`.

    Raises:
        DiskFull: for want of space or quota.
        EntriesUnavailable: for any other reason.
    """
    try:
        yield
    except MemorydError:
        raise
    # LanceDB raises RuntimeError, ValueError, OSError and Arrow's own errors for the same causes.
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0][:_MOST_CHARS]
        if _is_full(error):
            raise DiskFull(f"the entries at {where} cannot be written: {said}; free some space") from error
        raise EntriesUnavailable(f"the entries at {where} cannot be used: {said}", retry_after_seconds=1.0) from error


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return True
    return any(words in str(error).lower() for words in _FULL)


def is_conflict(error: Exception) -> bool:
    """Whether another writer's commit came first, so that trying again helps."""
    return "conflict" in str(error).lower()


INDEXED_FROM = 4_000_000
"""Numbers, rows by dimensions. Up to there a search without an index takes some fifteen milliseconds."""

MOST_PARTS = 8
"""Each tidying adds a part for the rows that came since the last one; of so many, one index is made again."""

PROPOSED = 64
"""How many vectors are compared exactly, at least."""

_GROWTH = 2
"""The bytes are scaled to the vectors of the day it was made; of so many times as many, it is made anew."""

_NAME = "vectors_of_"


def refine_factor(limit: int) -> int:
    """How many times as many as are asked for are compared exactly."""
    return max(4, -(-PROPOSED // limit))


def index_vectors(table: Any, dimensions: int, *, anew: bool) -> None:
    """Gives a dataset the index that it needs, if it needs one and has none that fits, or it is to be made `anew`."""
    rows = table.count_rows(f"{VECTOR} IS NOT NULL") if dimensions else 0
    there = [index.name for index in table.list_indices() if index.columns == [VECTOR]]
    if rows * dimensions < INDEXED_FROM or (not anew and any(_fits(table, name, rows) for name in there)):
        return
    from lancedb.index import IvfSq  # noqa: PLC0415 -- an extra

    name = f"{_NAME}{rows}"
    table.create_index(VECTOR, config=IvfSq(distance_type="l2", num_partitions=1), name=name, replace=True)
    for old in there:
        if old != name:
            table.drop_index(old)


def _fits(table: Any, name: str, rows: int) -> bool:
    made_of = name.removeprefix(_NAME)
    if not made_of.isdigit() or rows >= _GROWTH * int(made_of):
        return False
    return int(table.index_stats(name).num_indices) < MOST_PARTS


MOST_ARENAS = 2

_M_ARENA_MAX = -8
"""The number that glibc's `mallopt` knows this limit by."""


def bound_heap() -> None:
    """Bounds what the process keeps of memory that was freed; to be called before LanceDB starts its threads.

    glibc gives every thread a heap of its own, up to eight a core, and a write of LanceDB passes through dozens of
    threads: after thousands of writes most of the process was holes in such heaps. Where there is no glibc nothing
    is changed.
    """
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    # Arrow's own allocator is one more that keeps what it has got.
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MOST_ARENAS)
