"""import_all: imports what a reader yields, one conversation at a time, and reports what became of each."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from memoryd_server.errors import FileBusy, FileReplaced, PathNotAllowed
from memoryd_server.imports.conversation import Conversation, Document, Imported, Unreadable


class Effect(Enum):
    """What became of a conversation or document.

    An `OLDER` one is in the target with a newer state; a `CONFLICT` is not written, because its file was edited or
    cannot be written; an `UNSUITABLE` one is a document, which cannot be a session.
    """

    NEW = "new"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    OLDER = "older"
    FORGOTTEN = "forgotten"
    CONFLICT = "conflict"
    UNSUITABLE = "unsuitable"
    BEFORE_SINCE = "before_since"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one conversation or document.

    `paths` are the files that were written, or would be in a dry run; for a conflict, the file that was kept for the
    `reason`.
    """

    effect: Effect
    paths: tuple[str, ...] = ()
    written_bytes: int = 0
    reason: str = ""


class ImportTarget(Protocol):
    """Where conversations are imported to: notes or transcripts. Blocks."""

    def add(self, item: Conversation | Document) -> Outcome:
        """Write an item if it is new or has changed, and return what was done.

        Raises:
            PathNotAllowed, FileBusy, FileReplaced: it cannot be written, but others may be.
            FileNotFound, WorkspaceReadOnly, DiskFull, IndexUnavailable, IndexBusy, IndexReadOnly: none can be written.
        """


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Which conversations to import: those with a message at or after `since`, or with an unknown time.

    `progress` is called after each of them. Whether something is written is a property of the target.
    """

    since: datetime | None = None
    progress: Callable[[], None] = lambda: None


@dataclass(slots=True)
class ImportReport:
    """What an import did.

    `counts` are the numbers of conversations and documents. `messages` is the number of messages of the new and updated
    conversations, `paths` are their files. `conflicts` are files that were kept, with the reason. In a dry run, the
    report is about what would be done.
    """

    counts: Counter[Effect] = field(default_factory=Counter)
    messages: int = 0
    written_bytes: int = 0
    paths: list[str] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether no part of the input was unreadable, and no file was kept that differs."""
        return not (self.conflicts or self.unreadable)


def import_all(items: Iterable[Imported], target: ImportTarget, options: ImportOptions) -> ImportReport:
    """Import items one after the other. Holds only one of them in memory.

    Raises:
        FileNotFound, WorkspaceReadOnly, DiskFull, IndexUnavailable, IndexBusy, IndexReadOnly: the target cannot be
            written. What was imported before is complete; a repeated import continues.
        OSError: the input cannot be read.
    """
    report = ImportReport()
    for item in items:
        if isinstance(item, Unreadable):
            report.unreadable.append(item)
        else:
            is_before = _is_before(item, options.since)
            _record(item, Outcome(Effect.BEFORE_SINCE) if is_before else _added(item, target), report)
        options.progress()
    return report


def _is_before(item: Conversation | Document, since: datetime | None) -> bool:
    time = item.updated or item.created
    return since is not None and time is not None and time < since


def _added(item: Conversation | Document, target: ImportTarget) -> Outcome:
    try:
        return target.add(item)
    except (PathNotAllowed, FileBusy, FileReplaced) as error:
        path = error.metadata.get("path", item.origin)
        return Outcome(Effect.CONFLICT, (path,), reason=f"cannot be used: {error.message}")


def _record(item: Conversation | Document, outcome: Outcome, report: ImportReport) -> None:
    report.counts[outcome.effect] += 1
    if outcome.effect is Effect.CONFLICT:
        report.conflicts.update(dict.fromkeys(outcome.paths, outcome.reason))
        return
    report.paths += outcome.paths
    report.written_bytes += outcome.written_bytes
    if outcome.effect in {Effect.NEW, Effect.UPDATED} and isinstance(item, Conversation):
        report.messages += len(item.messages)
