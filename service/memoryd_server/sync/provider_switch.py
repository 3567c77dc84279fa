"""The switch of an index to another embedding provider.

All chunks are embedded into a second index, which replaces the first when it is complete. Until then, and if the other
provider fails too, searches use the old vectors.
"""

from collections.abc import Callable
from dataclasses import replace

from memoryd_server.embedding import ProviderChange, ProviderFailover, provider_and_model
from memoryd_server.errors import SyncCancelled
from memoryd_server.store import Store, Writer
from memoryd_server.sync.progress import (
    EmbeddingReporter,
    HiddenCommits,
    RunOptions,
    SyncObserver,
    SyncOutcome,
    SyncProgress,
    YieldingObserver,
)


class _ProviderFailed(Exception):
    """The other provider failed before all vectors were made."""


class ProviderSwitch:
    """Rebuilds one index with the vectors of another provider. For the writer thread.

    `index_files` writes the files into an empty index; `has_hidden_files` returns whether some folder cannot be read.
    `monotonic` is a clock in seconds.
    """

    def __init__(
        self,
        store: Store,
        failover: ProviderFailover,
        index_files: Callable[[Writer, SyncObserver, Callable[[], bool]], SyncOutcome],
        has_hidden_files: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._failover = failover
        self._index_files = index_files
        self._has_hidden_files = has_hidden_files
        self._monotonic = monotonic

    def run(self, change: ProviderChange, options: RunOptions) -> SyncOutcome | None:
        """Carry out the change; return what the run did, or None if it failed, with the reason stored in the failover.

        `yielded` is set if the change was postponed for files that have changed; the vectors made are in the cache.

        Raises:
            SyncCancelled: `should_stop` returned true; the index has not changed.
        """
        obstacle = self._obstacle(change, options)
        if obstacle:
            self._record_refusal(change, obstacle)
            return None
        # Without a cache for all vectors, each attempt would start with the first vector again.
        cacheable = change.to.fits_cache(self._store.writer().count_chunks())
        should_yield = options.should_yield if cacheable else _never
        watch = YieldingObserver(HiddenCommits(options.observer), options.should_stop, should_yield, self._monotonic)
        try:
            outcome = self._rebuild(change, options, watch)
        except _ProviderFailed as failed:
            self._record_refusal(change, str(failed))
            return None
        except SyncCancelled:
            if options.should_stop() or not watch.yielded:
                raise
            return self._postpone(change, watch.cached)
        self._failover.apply(change)
        self._failover.load_state(self._store.writer(), outcome.embedding_reason)
        revision = self._store.writer().revision()
        options.observer.committed(revision)
        return replace(outcome, revision=revision, changed=True)

    def _obstacle(self, change: ProviderChange, options: RunOptions) -> str:
        """Return the reason why the change cannot be carried out now; empty if it can."""
        if self._has_hidden_files():
            return "a folder of the memory cannot be read, and a rebuild would remove its files from the index"
        return "" if options.confirmed else change.to.refusal(change.to.tokens_to_send(self._store.writer()))

    def _record_refusal(self, change: ProviderChange, reason: str) -> None:
        self._failover.record_refusal(f"{provider_and_model(change.to.provider.spec)} does not take over: {reason}")

    def _rebuild(self, change: ProviderChange, options: RunOptions, watch: YieldingObserver) -> SyncOutcome:
        with self._store.rebuild() as writer:
            outcome = self._index_files(writer, HiddenCommits(options.observer), options.should_stop)
            reporter = EmbeddingReporter(watch, outcome.indexed_files)
            done = change.to.run(writer, reporter, confirmed=True, rebuilding=True, should_stop=watch.should_stop)
            if change.to.fault:
                raise _ProviderFailed(change.to.fault)
            writer.record_failover(change.record.to_json())
            options.observer.progress(SyncProgress.swapping(outcome.indexed_files, outcome.chunks))
        return replace(
            outcome, cached_chunks=done.cached, pending_embeddings=done.pending, embedding_reason=done.reason
        )

    def _postpone(self, change: ProviderChange, cached: int) -> SyncOutcome:
        self._failover.postpone(change)
        pending = self._failover.active.state.pending
        return SyncOutcome(
            self._store.writer().revision(), cached_chunks=cached, pending_embeddings=pending, yielded=True
        )


def _never() -> bool:
    return False
