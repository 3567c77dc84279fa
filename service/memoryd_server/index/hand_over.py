"""Makes an index's vectors anew with another provider, in a file beside the index that is swapped in when it is whole.

Until then, and where the other provider fails as well, the old vectors stay in use.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from memoryd_server.errors import SyncCancelled
from memoryd_server.index.lineup import Change, Lineup, named
from memoryd_server.index.progress import EmbeddingReporter, SyncObserver, SyncOutcome, SyncPhase, SyncProgress
from memoryd_server.index.yielding import Yielding
from memoryd_server.store.protocol import Store, Writer


class _Failed(Exception):
    """The other provider made not all of the vectors."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run was asked to do. `confirmed` when it may cost whatever it costs."""

    observer: SyncObserver
    should_stop: Callable[[], bool]
    should_yield: Callable[[], bool]
    confirmed: bool


class HandOver:
    """Hands one index over, for the writer thread.

    `index_files` brings the files into an empty index; `is_hidden` tells that some cannot be seen now. `monotonic` is a
    clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        lineup: Lineup,
        index_files: Callable[[Writer, SyncObserver, Callable[[], bool]], SyncOutcome],
        is_hidden: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._lineup = lineup
        self._index_files = index_files
        self._is_hidden = is_hidden
        self._monotonic = monotonic

    def carry_out(self, change: Change, asked: Asked) -> SyncOutcome | None:
        """What the run did; None where the change did not come about, which the lineup says with its reason.

        `yielded` is set where it was put off for files that have changed; what was made is in the cache.

        Raises:
            SyncCancelled: `should_stop` said so; the index is as it was.
        """
        why_not = self._why_not(change, asked)
        if why_not:
            self._stays(change, why_not)
            return None
        # Without a cache that keeps them all, each attempt would begin with the first vector.
        keeps = change.to.remembers(self._store.writer().count_chunks())
        should_yield = asked.should_yield if keeps else _never
        watch = Yielding(Beside(asked.observer), asked.should_stop, should_yield, self._monotonic)
        try:
            outcome = self._rebuild(change, asked, watch)
        except _Failed as failed:
            self._stays(change, str(failed))
            return None
        except SyncCancelled:
            if asked.should_stop() or not watch.yielded:
                raise
            return self._put_off(change, watch.cached)
        self._lineup.changed(change)
        self._lineup.look(self._store.writer(), outcome.embedding_reason)
        revision = self._store.writer().revision()
        asked.observer.committed(revision)
        return replace(outcome, revision=revision, changed=True)

    def _why_not(self, change: Change, asked: Asked) -> str:
        if self._is_hidden():
            return (
                "some folder of the memory cannot be looked into, and a rebuild would lose what the index holds of it"
            )
        return "" if asked.confirmed else change.to.refusal(change.to.price_of_index(self._store.writer()).tokens)

    def _stays(self, change: Change, why: str) -> None:
        self._lineup.stays(f"{named(change.to.provider.spec)} does not take over: {why}")

    def _rebuild(self, change: Change, asked: Asked, watch: Yielding) -> SyncOutcome:
        with self._store.rebuild() as writer:
            outcome = self._index_files(writer, Beside(asked.observer), asked.should_stop)
            reporter = EmbeddingReporter(watch, outcome.indexed_files)
            done = change.to.run(writer, reporter, confirmed=True, beside=True, should_stop=watch.should_stop)
            if change.to.fault:
                raise _Failed(change.to.fault)
            writer.note_failover(change.note.to_json())
            count = outcome.indexed_files
            asked.observer.progress(SyncProgress(SyncPhase.SWAPPING, count, count, outcome.chunks, outcome.chunks))
        return replace(
            outcome, cached_chunks=done.cached, pending_embeddings=done.pending, embedding_reason=done.reason
        )

    def _put_off(self, change: Change, cached: int) -> SyncOutcome:
        self._lineup.put_off(change)
        pending = self._lineup.active.state.pending
        return SyncOutcome(
            self._store.writer().revision(), cached_chunks=cached, pending_embeddings=pending, yielded=True
        )


class Beside:
    """Passes on what a rebuild tells, but for its commits, which nobody can see before the swap."""

    def __init__(self, observer: SyncObserver) -> None:
        self.progress = observer.progress
        self.file_failed = observer.file_failed

    def committed(self, revision: int) -> None:
        """Keeps silent."""


def _never() -> bool:
    return False
