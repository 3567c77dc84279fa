"""ProviderFailover: which provider makes an index's vectors, the configured one or its fallback, and which one queries.

Each change takes a rebuild. Therefore the fallback takes over only when the configured provider has failed twice in a
row, including retries, and stays for a minimum time, which doubles each time that the configured provider fails again
within a day.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from memoryd_server.embedding.embedder import Embedder
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers import EmbeddingSpec
from memoryd_server.store import JsonRecord, VectorIdentity, VectorView, Writer

FIRST_STAY_MS = 10 * 60 * 1_000
"""The fallback's first minimum time; twice as long each further time within a day."""
LONGEST_STAY_MS = 6 * 60 * 60 * 1_000
_DAY_MS = 24 * 60 * 60 * 1_000
PROBE_INTERVAL_MS = 60 * 1_000
"""How long a provider that failed a probe is not probed again."""


@dataclass(frozen=True, slots=True)
class FailoverRecord(JsonRecord):
    """A change of provider as stored in the index; `active` while the fallback makes the vectors.

    `since_ms` is the time of the last change (Unix milliseconds). `times` counts the failovers that each came within a
    day of the one before.
    """

    active: bool
    reason: str
    since_ms: int
    times: int

    @property
    def min_stay_ms(self) -> int:
        """The minimum time of the fallback in milliseconds."""
        return min(LONGEST_STAY_MS, FIRST_STAY_MS << min(self.times - 1, 16))


@dataclass(frozen=True, slots=True)
class ProviderChange:
    """A change that is due: the embedder to change to, and the record to store in the index."""

    to: Embedder
    record: FailoverRecord


class ProviderFailover:
    """The embedder of the configured provider, and that of its fallback.

    `fallback` is None if there is none; `fallback_problem` says why a configured fallback cannot be used. `former`
    returns the embedder of an earlier model that the settings still permit, None if they do not. `now_ms` is the wall
    clock in Unix milliseconds. `active`, `answering` and `active_failover` may be read from any thread; everything else
    belongs to the writer thread.
    """

    def __init__(
        self,
        primary: Embedder,
        fallback: Embedder | None = None,
        fallback_problem: str = "",
        *,
        former: Callable[[VectorIdentity], Embedder | None] = lambda _identity: None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.primary = primary
        self._find_former = former
        self._former: Embedder | None = None
        self.fallback = fallback
        self._fallback_problem = fallback_problem
        self._now_ms = now_ms
        self._record: FailoverRecord | None = None
        self._probed_ms: int | None = None
        self._refusal = ""
        self._postponed: tuple[ProviderChange, int] | None = None
        self.active = primary

    def refresh(self) -> None:
        """Make the providers check again what they need on this machine. Blocks."""
        self.primary.refresh()
        if self.fallback is not None:
            self.fallback.refresh()

    def load_state(self, vectors: VectorView, reason: str = "") -> None:
        """Read from the index which provider made its vectors, at start and after a swap.

        `reason` says why some are missing.
        """
        self.refresh()
        self._record = FailoverRecord.from_json(vectors.failover_record())
        stored = vectors.vector_identity()
        fallback = self.fallback
        made_by_fallback = fallback is not None and stored is not None and not stored.differences(fallback.identity)
        is_active = self._record is not None and self._record.active
        self.active = fallback if fallback is not None and made_by_fallback and is_active else self.primary
        self.active.load_state(vectors, reason)
        stored = self.active.state.stored
        self._former = None if stored is None or self.active.identity.matches(stored) else self._maker_of(stored)

    def _maker_of(self, stored: VectorIdentity) -> Embedder | None:
        """Return an embedder whose query vectors fit vectors of this identity; None if there is none."""
        known = (each.embedder_of(stored) for each in (self.primary, self.fallback) if each)
        return next(filter(None, known), None) or self._find_former(stored)

    @property
    def answering(self) -> Embedder:
        """The embedder of the queries: that of an earlier model while its vectors are in use, else the active one."""
        active, former = self.active, self._former
        stored = active.state.stored
        if former is None or active.identity.matches(stored) or not former.identity.matches(stored):
            return active
        return former

    @property
    def active_failover(self) -> FailoverRecord | None:
        """Why the fallback makes the vectors instead of the configured provider; None if it does not."""
        record = self._record
        if record is None or self.active is self.primary:
            return None
        return replace(record, reason="; ".join(filter(None, (record.reason, self._refusal))))

    def due_failover(self, should_stop: Callable[[], bool]) -> ProviderChange | None:
        """Return the change to the fallback if the configured provider failed in the last run and fails a probe."""
        if self.is_postponed:
            return self._take_postponed(self.fallback)
        if self.active is not self.primary or not self.primary.fault or should_stop():
            return None
        if self.fallback is None:
            self.record_refusal(self._fallback_problem)
            return None
        reason = self._probe(self.primary, should_stop)
        if not reason or should_stop():
            return None
        now, before = self._now_ms(), self._record
        times = before.times + 1 if before is not None and now - before.since_ms < _DAY_MS else 1
        return ProviderChange(self.fallback, FailoverRecord(active=True, reason=reason, since_ms=now, times=times))

    def due_failback(self, should_stop: Callable[[], bool], *, now: bool) -> ProviderChange | None:
        """Return the change back if the configured provider passes a probe; None before its time, except with `now`.

        The first call after a start probes without waiting, because the settings may have been corrected.
        """
        if self.is_postponed:
            return self._take_postponed(self.primary)
        record = self._record
        if self.active is self.primary or record is None or not (now or self._may_probe(record)):
            return None
        self._probed_ms = self._now_ms()
        self._refusal = self._probe(self.primary, should_stop)
        if self._refusal or should_stop():
            return None
        return ProviderChange(self.primary, replace(record, active=False, since_ms=self._now_ms()))

    def postpone(self, change: ProviderChange) -> None:
        """Postpone a change that is due, for files that have changed."""
        self._postponed = change, self._now_ms()

    @property
    def is_postponed(self) -> bool:
        """Whether a change was postponed within the last `PROBE_INTERVAL_MS`, so that no probe is needed."""
        return self._postponed is not None and self._now_ms() < self._postponed[1] + PROBE_INTERVAL_MS

    def _take_postponed(self, to: Embedder | None) -> ProviderChange | None:
        if self._postponed is None or self._postponed[0].to is not to:
            return None
        (change, _), self._postponed = self._postponed, None
        return change

    def _may_probe(self, record: FailoverRecord) -> bool:
        if self._probed_ms is None:
            return True
        now = self._now_ms()
        return now >= max(record.since_ms + record.min_stay_ms, self._probed_ms + PROBE_INTERVAL_MS)

    def _probe(self, embedder: Embedder, should_stop: Callable[[], bool]) -> str:
        """Return why the provider makes no vector now; empty if it does, or if stopped."""
        try:
            embedder.probe(should_stop)
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            return "" if should_stop() else error.message
        return ""

    def apply(self, change: ProviderChange) -> None:
        """Make the other embedder the active one, after its vectors were swapped in."""
        self._record = change.record
        self._refusal = ""
        self._probed_ms = self._now_ms()
        self.active = change.to

    def copy_record(self, writer: Writer) -> None:
        """Store the failover record in a rebuilt index."""
        if self._record is not None:
            writer.record_failover(self._record.to_json())

    def record_refusal(self, reason: str) -> None:
        """Record why a change that was due is not carried out."""
        if self.active is self.primary:
            self.primary.add_reason(reason)
        else:
            self._refusal = reason


def provider_and_model(spec: EmbeddingSpec) -> str:
    """Return the provider and its model for messages: "provider/model", or the provider if it has no model."""
    return f"{spec.provider}/{spec.model}" if spec.model else spec.provider
