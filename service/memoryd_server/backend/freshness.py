"""What keeps an agent's index from following its files and settings, in words for whoever asks how it is doing."""

from collections.abc import Iterator, Sequence

from memoryd_server.backend.config import SyncConfig
from memoryd_server.index.plan import Hidden
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.sources import WatchedRoot, WatcherMode
from memoryd_server.sources.corpus import Corpus
from memoryd_server.sources.transcripts import SESSIONS_FOLDER
from memoryd_server.store.identity import Difference


def freshness(
    config: SyncConfig, watched: Sequence[WatchedRoot], hidden: Sequence[Hidden], trouble: str
) -> Iterator[Degradation]:
    """Yields one degradation for each root whose changes are not told, and for each place that hides indexed files.

    `trouble` is why the last reconcile pass failed, empty when it did not. A root that is not there is no watcher's
    fault, and not repeated as one.
    """
    unwanted = (WatcherMode.DEAD,) if config.poll else (WatcherMode.POLLING, WatcherMode.DEAD)
    for root in watched:
        if root.present and root.mode in unwanted:
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


def built_otherwise(differences: Sequence[Difference], waits: str) -> list[Degradation]:
    """One degradation where an index was built with other settings; `waits` is why its rebuild does, if it does."""
    if not differences:
        return []
    told = "; ".join(f"{field} was {old}, is {new}" for field, old, new in differences)
    reason = f"the index was built with other settings ({told}): {waits or 'a sync rebuilds it'}"
    return [Degradation(DegradationKind.IDENTITY_MISMATCH, "chunks of the settings", "the older chunks", reason)]


def unwatched(corpus: Corpus) -> tuple[WatchedRoot, ...]:
    """Returns the roots where nothing is to be watched."""
    reason = "watching is switched off in the settings"
    roots = corpus.roots
    displays = [roots.display(folder) for folder in (roots.base(), *roots.extras())]
    displays += [SESSIONS_FOLDER] if corpus.sessions else []
    return tuple(WatchedRoot(display, WatcherMode.OFF, reason) for display in displays)
