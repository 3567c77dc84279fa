"""One sync run as an event log that any number of followers read at their own pace.

Everything here belongs to the event loop's thread. A progress event is a complete snapshot and replaces the one before
it; all other events are kept, so that a slow or a late follower misses none of them.
"""

import asyncio
import bisect
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from memoryd_server.errors import MemorydError
from memoryd_server.model import Degradation, DegradationKind, FileFailure
from memoryd_server.sync import SyncEstimate, SyncMode, SyncOutcome, SyncPhase, SyncProgress


class SyncTrigger(StrEnum):
    """The cause of a run; the names of the wire's enum."""

    MANUAL = "MANUAL"
    SESSION_START = "SESSION_START"
    POST_COMPACTION = "POST_COMPACTION"
    STARTUP = "STARTUP"
    WATCH = "WATCH"
    INTERVAL = "INTERVAL"
    RECONCILE = "RECONCILE"
    SEARCH = "SEARCH"
    APPEND = "APPEND"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run began; its first event, but for those of a wait before it.

    `start_time_ns` is Unix time. `attached` if the follower joined a run that was under way.
    """

    mode: SyncMode
    trigger: SyncTrigger
    start_time_ns: int
    revision: int
    dry_run: bool = False
    attached: bool = False


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of the run. `eta_seconds` is None while it cannot be estimated."""

    progress: SyncProgress
    elapsed_seconds: float
    eta_seconds: float | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """No other event has occurred for a while."""

    elapsed_seconds: float


@dataclass(frozen=True, slots=True)
class VectorReport:
    """The vectors of an index when a run ends.

    `pending` chunks want a vector and have none that can be used; the provider refused the texts of `refused` of them.
    `missing` is set when `pending` is above 0 or a rebuild waits for approval of its cost. `degradations` say why.
    """

    pending: int = 0
    refused: int = 0
    missing: bool = False
    degradations: tuple[Degradation, ...] = ()

    def with_refusal(self, refusal: str) -> "VectorReport":
        """Return the report of a dry run; `refusal` is why a run would send nothing, empty when nothing prevents it."""
        if not refusal or any(refusal in degradation.reason for degradation in self.degradations):
            return self
        pending = Degradation(DegradationKind.VECTORS_PENDING, "vectors", "keyword leg", refusal)
        return replace(self, degradations=(*self.degradations, pending))


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The run completed; always its last event."""

    outcome: SyncOutcome
    elapsed_seconds: float
    vectors: VectorReport
    estimate: SyncEstimate | None = None


EventBody = RunStarted | RunProgress | FileFailure | Heartbeat | RunCompleted


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """An event with its place in the run. `time_ns` is Unix time."""

    sync_id: str
    sequence: int
    time_ns: int
    body: EventBody


@dataclass(frozen=True, slots=True)
class ActiveSync:
    """A run under way at one moment."""

    sync_id: str
    mode: SyncMode
    trigger: SyncTrigger
    progress: RunProgress


# Enough batches of vectors that one slow answer does not change the estimate much.
RATE_SNAPSHOTS = 16


class RemainingTime:
    """Estimates how long the phase of a run still takes.

    INDEXING is estimated from all files of the run. EMBEDDING is estimated from the rate of the last snapshots, because
    vectors from the cache cost no time, and the rate of a provider changes.
    """

    def __init__(self) -> None:
        self._chunks: deque[tuple[float, int]] = deque(maxlen=RATE_SNAPSHOTS)

    def estimate(self, progress: SyncProgress, elapsed_seconds: float) -> float | None:
        """Return the seconds that the phase still takes; None if that is not known yet."""
        if progress.phase is SyncPhase.EMBEDDING:
            return self._embedding(progress, elapsed_seconds)
        self._chunks.clear()
        if progress.phase is not SyncPhase.INDEXING or not progress.completed_files:
            return None
        return elapsed_seconds * (progress.total_files - progress.completed_files) / progress.completed_files

    def _embedding(self, progress: SyncProgress, elapsed_seconds: float) -> float | None:
        done = progress.completed_chunks
        if progress.batch_jobs or (self._chunks and done < self._chunks[-1][1]):
            # The time of batch jobs is that of the provider's queue.
            self._chunks.clear()
        if progress.batch_jobs:
            return None
        if not self._chunks or done > self._chunks[-1][1]:
            self._chunks.append((elapsed_seconds, done))
        (began, first), (ended, last) = self._chunks[0], self._chunks[-1]
        if last == first:
            return None
        return (ended - began) / (last - first) * (progress.total_chunks - done)


class SyncRun:
    """A run, under way or ended. `now_ns` and `monotonic` are its clocks.

    `failure` is why it did not complete. `followers` is how many callers follow it. `stop_requested` ends it at the
    next file boundary.
    """

    def __init__(
        self,
        sync_id: str,
        mode: SyncMode,
        trigger: SyncTrigger,
        *,
        now_ns: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self.sync_id = sync_id
        self.mode = mode
        self.trigger = trigger
        self.start_time_ns = now_ns()
        self.finished = asyncio.Event()
        self.failure: MemorydError | None = None
        self.outcome: SyncOutcome | None = None
        self.vectors = VectorReport()
        self.followers = 0
        self.stop_requested = False
        self._now_ns = now_ns
        self._monotonic = monotonic
        self._began = monotonic()
        self._sequence = 0
        self._kept: list[SyncEvent] = []
        self._latest: SyncEvent | None = None
        self._remaining = RemainingTime()
        self._changed = asyncio.Event()

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the run began."""
        return self._monotonic() - self._began

    @property
    def progress(self) -> RunProgress:
        """The latest snapshot."""
        body = self._latest.body if self._latest is not None else None
        return body if isinstance(body, RunProgress) else RunProgress(SyncProgress(), self.elapsed_seconds, None)

    def summary(self) -> ActiveSync:
        """Return the run at this moment."""
        return ActiveSync(self.sync_id, self.mode, self.trigger, self.progress)

    def started(self, revision: int, *, dry_run: bool = False) -> None:
        """Add the first event. The run's time counts from here, not from a wait before it."""
        self.start_time_ns, self._began, self._latest = self._now_ns(), self._monotonic(), None
        self._keep(RunStarted(self.mode, self.trigger, self.start_time_ns, revision, dry_run))

    def waiting(self) -> None:
        """Show that the run waits for the end of another one, before it starts."""
        self.progressed(SyncProgress(phase=SyncPhase.WAITING))

    def progressed(self, progress: SyncProgress) -> None:
        """Replace the snapshot."""
        elapsed = self.elapsed_seconds
        self._latest = self._event(RunProgress(progress, elapsed, self._remaining.estimate(progress, elapsed)))
        self._wake()

    def file_failed(self, failure: FileFailure) -> None:
        """Add a file that could not be indexed."""
        self._keep(failure)

    def completed(self, outcome: SyncOutcome, estimate: SyncEstimate | None = None) -> None:
        """Add the last event; `vectors` has been set before."""
        self.outcome = outcome
        self._keep(RunCompleted(outcome, self.elapsed_seconds, self.vectors, estimate))
        self._end()

    def failed(self, error: MemorydError) -> None:
        """End the run without completing it."""
        self.failure = error
        self._end()

    def _end(self) -> None:
        self.finished.set()
        self._wake()

    def _keep(self, body: EventBody) -> None:
        self._kept.append(self._event(body))
        self._wake()

    def _event(self, body: EventBody) -> SyncEvent:
        self._sequence += 1
        return SyncEvent(self.sync_id, self._sequence, self._now_ns(), body)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def follow(self, after: int, heartbeat_seconds: float) -> AsyncGenerator[SyncEvent, None]:
        """Yield every kept event later than sequence `after`, the latest snapshots between them, and heartbeats.

        A follower always gets the last event of a completed run, even if it has had it before.

        Raises:
            MemorydError: the run did not complete.
        """
        last = min(after, self._sequence if self.outcome is None else self._kept[-1].sequence - 1)
        while True:
            changed = self._changed
            for event in self._later_than(last):
                last = event.sequence
                yield event
            if self.finished.is_set() and not self._later_than(last):
                break
            if changed.is_set():
                continue
            try:
                async with asyncio.timeout(heartbeat_seconds):
                    await changed.wait()
            except TimeoutError:
                yield SyncEvent(self.sync_id, last, self._now_ns(), Heartbeat(self.elapsed_seconds))
        if self.failure is not None:
            raise self.failure

    def _later_than(self, sequence: int) -> list[SyncEvent]:
        kept = self._kept[bisect.bisect_right(self._kept, sequence, key=lambda event: event.sequence) :]
        if self._latest is not None and self._latest.sequence > sequence:
            bisect.insort(kept, self._latest, key=lambda event: event.sequence)
        return kept
