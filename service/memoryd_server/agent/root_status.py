"""RootStatus: how many files of a root are on disk, indexed, pending and failed, and how long changes have waited."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from memoryd_server.agent.config import AgentConfig
from memoryd_server.model import FileFailure, Source, SourceFile
from memoryd_server.sources import SESSIONS_FOLDER, RootFinder
from memoryd_server.store import FileRow
from memoryd_server.sync import DiskComparison, hidden_rows


@dataclass(frozen=True, slots=True)
class RootStatus:
    """The files of one root. `root` is a display path: "." is the workspace, `sessions` the folder of the transcripts.

    A file counts for the root whose discovery finds it. The sums over all roots of a source are those of the source.
    """

    root: str
    source: Source
    files_on_disk: int = 0
    files_indexed: int = 0
    pending_files: int = 0
    files_failed: int = 0
    oldest_unindexed_age_seconds: float | None = None


_File = TypeVar("_File", SourceFile, FileRow, FileFailure)
_Key = tuple[str, Source]
"""The display path of a root, and the source of its files."""


def root_statuses(
    config: AgentConfig,
    disk: DiskComparison,
    failed: Sequence[FileFailure],
    age_of: Callable[[Sequence[SourceFile], Sequence[FileRow]], float | None],
) -> tuple[RootStatus, ...]:
    """Return the status of each configured root, in the order of discovery; then of others that the index has files of.

    `age_of` is `oldest_age` with the other arguments bound. Blocks: a `.memoryignore` is read if roots contain each
    other.
    """
    finder = RootFinder(config.roots)
    key = partial(_key, finder)
    on_disk = _grouped(disk.discovery.files, key)
    indexed = _grouped((row for row in disk.rows.values() if row.error is None), key)
    failures = _grouped(failed, key)
    changed = _grouped(disk.plan.changed, key)
    absent = _grouped([*disk.plan.removed, *hidden_rows(disk.plan, disk.discovery, disk.rows)], key)
    every = dict.fromkeys([*_configured(config), *on_disk, *indexed, *failures, *changed, *absent])
    return tuple(
        RootStatus(
            root=each[0],
            source=each[1],
            files_on_disk=len(on_disk.get(each, ())),
            files_indexed=len(indexed.get(each, ())),
            pending_files=len(changed.get(each, ())) + len(absent.get(each, ())),
            files_failed=len(failures.get(each, ())),
            oldest_unindexed_age_seconds=age_of(changed.get(each, ()), absent.get(each, ())),
        )
        for each in every
    )


def oldest_age(
    disk: DiskComparison, changed: Sequence[SourceFile], absent: Sequence[object], *, now_ns: int, last_sync_ns: int
) -> float | None:
    """Return how long the longest-waiting file has waited, in seconds; None if no file waits.

    A file waits since its last change, but not since before disk and index last agreed: a file that was moved here may
    be old. A file that is absent waits since this agreement, or since the last sync.
    """
    agreed = disk.agreed_ns or 0
    waiting = [max(file.stat.mtime_ns, file.stat.ctime_ns, agreed) for file in changed]
    if absent:
        waiting.append(agreed or last_sync_ns)
    return max(0.0, (now_ns - min(waiting)) / 1e9) if waiting else None


def _configured(config: AgentConfig) -> list[_Key]:
    roots = config.roots
    folders = [roots.base(), *roots.extras()] if Source.MEMORY in config.sources else []
    sessions = [(SESSIONS_FOLDER, Source.SESSIONS)] if Source.SESSIONS in config.sources else []
    return [*((roots.display(folder), Source.MEMORY) for folder in folders), *sessions]


def _key(finder: RootFinder, file: SourceFile | FileRow | FileFailure) -> _Key:
    root = SESSIONS_FOLDER if file.source is Source.SESSIONS else finder.root_of(file.path)
    return root, file.source


def _grouped(files: Iterable[_File], key: Callable[[_File], _Key]) -> Mapping[_Key, Sequence[_File]]:
    groups: dict[_Key, list[_File]] = {}
    for file in files:
        groups.setdefault(key(file), []).append(file)
    return groups
