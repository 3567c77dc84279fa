"""One page of the history of an agent's writes, with the differences that each write made. Functions block."""

from collections.abc import Callable
from dataclasses import dataclass

from memoryd_server.agent.edit_requests import HistoryQuery
from memoryd_server.errors import VersionNotFound
from memoryd_server.store import WriteHistory, WriteRecord
from memoryd_server.writing import unified_diff

MOST_DIFF_BYTES = 64 * 2**10
MOST_PAGE_DIFF_BYTES = 768 * 2**10
"""A page ends after this number of bytes of differences, so that it fits a reply."""

MOST_COMPARED_BYTES = 64 * 2**20
"""A page ends after contents of this size were compared, so that it does not take much longer than a second."""

MOST_COMPARE_SECONDS = 1.0
"""A page ends when its contents were compared for this time: contents can be made so that a comparison is slow."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One write, with its differences as a unified diff; `is_cut` is whether these were cut."""

    record: WriteRecord
    diff: str = ""
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Writes, newest first. `has_more` is whether there are older ones."""

    versions: tuple[FileVersion, ...]
    has_more: bool = False


def load_page(
    history: WriteHistory, query: HistoryQuery, should_stop: Callable[[], bool], monotonic: Callable[[], float]
) -> HistoryPage:
    """Return a page of the history. `monotonic` is the clock that limits the comparison of contents.

    Raises:
        VersionNotFound: there is no write with the requested ID.
        HistoryUnavailable: the history cannot be read.
        TimeoutError: `should_stop` returned true.
    """
    if query.version_id:
        record = history.get(query.version_id)
        if record is None:
            raise VersionNotFound(query.version_id)
        return HistoryPage((_compared(history, record) if query.include_diffs else FileVersion(record),))
    records = history.records(query.path, older_than=query.older_than, limit=query.limit + 1)
    shown = records[: query.limit]
    versions = (
        _compare(history, shown, should_stop, monotonic) if query.include_diffs else tuple(map(FileVersion, shown))
    )
    return HistoryPage(versions, has_more=len(versions) < len(records))


def _compare(
    history: WriteHistory,
    records: list[WriteRecord],
    should_stop: Callable[[], bool],
    monotonic: Callable[[], float],
) -> tuple[FileVersion, ...]:
    """Return the first records with their differences, at least one."""
    until = monotonic() + MOST_COMPARE_SECONDS
    versions: list[FileVersion] = []
    diffs = compared = 0
    for record in records:
        if should_stop():
            raise TimeoutError
        is_full = diffs > MOST_PAGE_DIFF_BYTES or compared > MOST_COMPARED_BYTES or monotonic() >= until
        if versions and is_full:
            break
        version = _compared(history, record)
        versions.append(version)
        diffs += len(version.diff.encode())
        compared += record.before_bytes + record.after_bytes
    return tuple(versions)


def _compared(history: WriteHistory, record: WriteRecord) -> FileVersion:
    """Return a write with its differences; without them if a content was forgotten."""
    if record.before == record.after:
        return FileVersion(record)
    before, after = (None if digest is None else history.content(digest) for digest in (record.before, record.after))
    if (before is None) is not (record.before is None) or (after is None) is not (record.after is None):
        return FileVersion(record)
    diff, is_cut = unified_diff(
        before,
        after,
        before_name=record.moved_from or record.path,
        after_name=record.path,
        most_bytes=MOST_DIFF_BYTES,
    )
    return FileVersion(record, diff, is_cut)
