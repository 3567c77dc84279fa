"""FileListing: the list of an agent's files, on disk, in the index, or excluded; by path, and page by page.

Functions block.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from memoryd_server.model import FileFailure, Source, SourceFile, differs
from memoryd_server.sources import ExcludedPlace, ForgottenSources, note_day
from memoryd_server.store import ALL_CHUNKS, ChunkFilter, FileFilter, FileKey, FileRow, Store
from memoryd_server.sync import DiskComparison


class FileState(StrEnum):
    """Whether a search can find a file. The names are those of `FileState` in the protos."""

    INDEXED = "INDEXED"
    PENDING = "PENDING"
    STALE = "STALE"
    FAILED = "FAILED"
    GONE = "GONE"
    FORGOTTEN = "FORGOTTEN"
    EXCLUDED = "EXCLUDED"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of the agent, on disk or in the index, or a file or folder that `rule` excludes.

    `chunks` is the number of its chunks in the index. `date` is the day by which filters select the file, as
    YYYY-MM-DD; empty if it has none, or if the list was made without dates.
    """

    path: str
    source: Source
    size_bytes: int
    mtime_ns: int
    state: FileState
    error: str
    chunks: int
    date: str = ""
    rule: str = ""

    @property
    def key(self) -> FileKey:
        """The source and the path."""
        return self.source, self.path


def list_files(disk: DiskComparison, forgotten: ForgottenSources) -> list[ListedFile]:
    """Return every file on disk or in the index, by path, without dates. Costs microseconds per file."""
    listed = [_on_disk(file, disk.rows.get((file.source, file.path)), forgotten) for file in disk.discovery.files]
    listed += [_gone(row) for row in disk.plan.removed]
    listed += [_refused(failure) for failure in disk.discovery.failures]
    return sorted(listed, key=_place)


def _place(file: ListedFile) -> tuple[str, Source]:
    return file.path, file.source


def with_excluded(
    files: Sequence[ListedFile], excluded: Iterable[ExcludedPlace], disk: DiskComparison
) -> list[ListedFile]:
    """Return the files and what is excluded, by path.

    An excluded file that the index has until the next sync is no longer listed as gone.
    """
    places = {(place.source, place.path): place for place in excluded}
    kept = [file for file in files if file.state is not FileState.GONE or file.key not in places]
    for file in kept:
        places.pop(file.key, None)
    return sorted([*kept, *(_excluded(place, disk.rows.get(key)) for key, place in places.items())], key=_place)


@dataclass(frozen=True, slots=True)
class IndexedFiles:
    """The files of an index with the dates of their names or their front matter, and those that match a filter.

    A date is YYYY-MM-DD, or empty if a file has only the time of its last modification.
    """

    dates: Mapping[FileKey, str] = field(default_factory=lambda: MappingProxyType({}))
    matching: frozenset[FileKey] = frozenset()


def with_dates(files: Iterable[ListedFile], disk: DiskComparison, indexed: IndexedFiles) -> list[ListedFile]:
    """Return the files with the dates by which filters select them, in their order.

    That of a file of the index is as the index has it. Another file has that of its name, or else of its last
    modification.
    """
    return [replace(file, date=_date_of(file, disk.rows.get(file.key), indexed.dates.get(file.key))) for file in files]


def _date_of(file: ListedFile, row: FileRow | None, indexed: str | None) -> str:
    if indexed is not None:
        return indexed or _day_of(file.mtime_ns if row is None else row.stat.mtime_ns)
    if file.path.endswith("/"):
        return ""
    named = note_day(file.path, {})
    return _day_of(file.mtime_ns) if named is None else named.isoformat()


def _day_of(unix_ns: int) -> str:
    """Return the day of a time in UTC; empty for 0, which is no time of a file that could be read."""
    return _day(max(-_MOST_NS, min(unix_ns, _MOST_NS)) // _DAY_NS) if unix_ns else ""


@lru_cache(4_096)
def _day(number: int) -> str:
    return (_EPOCH + timedelta(days=number)).isoformat()


def indexed_files(store: Store, among: ChunkFilter) -> IndexedFiles:
    """Return the files of an index, and those that match the conditions of a filter on files and sources if it has any.

    Raises:
        IndexDamaged, IndexUnavailable: the index cannot be read.
    """
    with store.read() as reader:
        matching = frozenset() if among == ALL_CHUNKS else reader.matching_files(among)
        return IndexedFiles(reader.file_dates(), matching)


def matching(files: Sequence[ListedFile], among: ChunkFilter, indexed: IndexedFiles) -> list[ListedFile]:
    """Return the files that match the conditions of a filter on files and sources, in their order.

    A file of the index matches by its date and front matter there. Another file matches by its path, its source and its
    date, and has no front matter.
    """
    return [
        file
        for file in files
        if file.key in indexed.matching or (file.key not in indexed.dates and _matches_unread(file, among))
    ]


def _matches_unread(file: ListedFile, among: ChunkFilter) -> bool:
    wanted = among.files
    if wanted.front_matter or (among.sources and file.source not in among.sources):
        return False
    is_below = not wanted.path_prefixes or file.path.startswith(wanted.path_prefixes)
    return is_below and _is_dated_within(file, wanted)


def _is_dated_within(file: ListedFile, wanted: FileFilter) -> bool:
    if wanted.since is None and wanted.until is None:
        return True
    first, last = wanted.since or date.min, wanted.until or date.max
    return bool(file.date) and first.isoformat() <= file.date <= last.isoformat()


_EPOCH = date(1970, 1, 1)
# As the index stores it: the year 2262.
_MOST_NS = 2**63 - 1
_DAY_NS = 86_400 * 10**9

# Up to this number of files, each page compares the disk with the index again, in less than about .3 s. The thread
# that does this makes hundreds of thousands of objects for a long list; see `app.collector` about collections of them.
_MOST_COMPARED_PER_PAGE = 5_000

LISTING_SECONDS = 30.0
"""How long a long list is kept for its next pages."""


class FileListing:
    """The list of an agent's files, for a caller that reads it page by page. Thread-safe.

    The first page lists the files as they are now. A long list is kept, so that each further page costs in proportion
    to its length; these pages show the files as they were at the first page. A kept list has the files of one filter,
    with or without what is excluded. `indexed` returns the files of the index for a filter; by default, no file is
    indexed. `excluded` returns what is excluded.
    """

    def __init__(
        self,
        compare: Callable[[], DiskComparison],
        forgotten: ForgottenSources,
        monotonic: Callable[[], float],
        *,
        indexed: Callable[[ChunkFilter], IndexedFiles] = lambda _: IndexedFiles(),
        excluded: Callable[[], Iterable[ExcludedPlace]] = tuple,
        most_compared_per_page: int = _MOST_COMPARED_PER_PAGE,
    ) -> None:
        self._compare = compare
        self._indexed = indexed
        self._excluded = excluded
        self._forgotten = forgotten
        self._monotonic = monotonic
        self._most_compared_per_page = most_compared_per_page
        self._kept: tuple[float, tuple[ChunkFilter, bool], Sequence[ListedFile]] | None = None

    def kept(self, among: ChunkFilter = ALL_CHUNKS, *, excluded: bool = False) -> Sequence[ListedFile] | None:
        """Return the list for a page after the first one; None if none is kept for this filter.

        Drops a list that is too old, whatever its filter.
        """
        kept = self._kept
        if kept is None or self._monotonic() >= kept[0]:
            self._kept = None
            return None
        return kept[2] if kept[1] == (among, excluded) else None

    def make(self, among: ChunkFilter = ALL_CHUNKS, *, excluded: bool = False) -> Sequence[ListedFile]:
        """Return the files as of now that match the conditions of a filter on files and sources. Blocks.

        With `excluded`, excluded files and folders are listed, too, for which the folders are walked a second time.
        """
        disk, indexed = self._compare(), self._indexed(among)
        listed = list_files(disk, self._forgotten)
        if excluded:
            listed = with_excluded(listed, self._excluded(), disk)
        listed = with_dates(listed, disk, indexed)
        files = listed if among == ALL_CHUNKS else matching(listed, among, indexed)
        # The comparison costs as much if the filter leaves few files.
        is_long = len(listed) > self._most_compared_per_page
        self._kept = (self._monotonic() + LISTING_SECONDS, (among, excluded), files) if is_long else None
        return files


def _on_disk(file: SourceFile, row: FileRow | None, forgotten: ForgottenSources) -> ListedFile:
    if row is None:
        state, error, chunks = FileState.PENDING, "", 0
    elif differs(file.stat, row.stat):
        state, error, chunks = FileState.STALE, "", row.chunk_count
    elif row.error is not None:
        state, error, chunks = FileState.FAILED, row.error, 0
    elif not row.chunk_count and forgotten.excludes(row.path, row.content_hash):
        state, error, chunks = FileState.FORGOTTEN, "", 0
    else:
        state, error, chunks = FileState.INDEXED, "", row.chunk_count
    return ListedFile(file.path, file.source, file.stat.size_bytes, file.stat.mtime_ns, state, error, chunks)


def _gone(row: FileRow) -> ListedFile:
    return ListedFile(row.path, row.source, row.stat.size_bytes, row.stat.mtime_ns, FileState.GONE, "", row.chunk_count)


def _refused(failure: FileFailure) -> ListedFile:
    return ListedFile(failure.path, failure.source, 0, 0, FileState.FAILED, failure.error, 0)


def _excluded(place: ExcludedPlace, row: FileRow | None) -> ListedFile:
    size, mtime_ns, chunks = (0, 0, 0) if row is None else (row.stat.size_bytes, row.stat.mtime_ns, row.chunk_count)
    return ListedFile(place.path, place.source, size, mtime_ns, FileState.EXCLUDED, "", chunks, rule=place.rule)
