"""The degradations of an index that follow from its settings, its watched folders, and its last comparison."""

from collections.abc import Iterator, Sequence

from memoryd_server.agent.config import SyncConfig
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.sources import SESSIONS_FOLDER, Corpus, WatchedRoot, WatcherMode
from memoryd_server.store import Difference
from memoryd_server.sync import HiddenFiles


def built_otherwise(differences: Sequence[Difference], waits: str) -> Degradation:
    """Return that the index was built with other settings; `waits` is why its rebuild waits, empty if it does not."""
    changes = "; ".join(f"{field} was {old}, is {new}" for field, old, new in differences)
    reason = f"the index was built with other settings ({changes}): {waits or 'a sync rebuilds it'}"
    return Degradation(DegradationKind.IDENTITY_MISMATCH, "chunks of the settings", "the older chunks", reason)


def freshness(
    config: SyncConfig, watched: Sequence[WatchedRoot], hidden: Sequence[HiddenFiles], trouble: str
) -> Iterator[Degradation]:
    """Yield a degradation for each root whose changes are not noticed, and for each folder that hides indexed files.

    `trouble` is why the last reconcile pass failed, empty if it did not. A missing root is no fault of its watcher.
    """
    impaired = (WatcherMode.DEAD,) if config.poll else (WatcherMode.POLLING, WatcherMode.DEAD)
    for root in watched:
        if root.present and root.mode in impaired:
            wanted = f"native events for {root.root}"
            yield Degradation(DegradationKind.WATCHER_IMPAIRED, wanted, root.mode, root.reason)
    for place in hidden:
        reason = (
            f"{place.place} {place.reason}; the index keeps its {place.files} files, and they are found again when it "
            "is back. If they are gone for good, memoryd index --force forgets them"
        )
        yield Degradation(DegradationKind.SOURCE_SKIPPED, place.place, "", reason)
    if trouble:
        reason = f"the last reconcile pass failed ({trouble}); the next one tries again"
        yield Degradation(DegradationKind.WATCHER_IMPAIRED, "a reconcile pass", "file events alone", reason)


def unwatched(corpus: Corpus) -> tuple[WatchedRoot, ...]:
    """Return the roots of an agent that watches none."""
    roots = corpus.roots
    displays = [roots.display(folder) for folder in (roots.base(), *roots.extras())]
    displays += [SESSIONS_FOLDER] if corpus.sessions else []
    return tuple(WatchedRoot(display, WatcherMode.OFF, "watching is disabled in the settings") for display in displays)
