"""Who makes an index's vectors: the configured provider or, where that fails for good, the one that may stand in.

Both ways cost a rebuild. So nobody stands in before the configured provider has failed twice in a row, retries and all,
and it comes back only after a while, which is longer each time that it fails again within a day.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from memoryd_server.embedding.embedder import Embedder
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers import EmbeddingSpec
from memoryd_server.store import JsonRecord, VectorView, Writer

FIRST_STAY_MS = 10 * 60 * 1_000
"""How long the one that stands in stays at least; twice as long each time within a day."""
LONGEST_STAY_MS = 6 * 60 * 60 * 1_000
A_DAY_MS = 24 * 60 * 60 * 1_000
ASK_AGAIN_MS = 60 * 1_000
"""How long a provider that was found still away is not asked again."""


@dataclass(frozen=True, slots=True)
class FailoverRecord(JsonRecord):
    """That one provider stood in for another, as the index remembers it; `active` while it does.

    `since_ms` is Unix time, of the last change. `times` counts how often it came to that, each within a day of the one
    before.
    """

    active: bool
    reason: str
    since_ms: int
    times: int

    @property
    def stay_ms(self) -> int:
        """How long it stays at least."""
        return min(LONGEST_STAY_MS, FIRST_STAY_MS << min(self.times - 1, 16))


@dataclass(frozen=True, slots=True)
class ProviderChange:
    """A change that is due: to whom, and what the index is to remember of it."""

    to: Embedder
    note: FailoverRecord


class ProviderFailover:
    """The embedder of the configured provider, and the one that may stand in for it.

    `second` is None where nobody may; `no_second` says why, where somebody should. `now_ms` is Unix time. `active` and
    `stands_in` may be read from any thread; the rest belongs to the writer thread.
    """

    def __init__(
        self,
        first: Embedder,
        second: Embedder | None = None,
        no_second: str = "",
        *,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.first = first
        self.second = second
        self._no_second = no_second
        self._now_ms = now_ms
        self._note: FailoverRecord | None = None
        self._asked_ms: int | None = None
        self._remark = ""
        self._put_off: tuple[ProviderChange, int] | None = None
        self.active = first

    def refresh(self) -> None:
        """Have the providers look again at what they need on this machine. Blocks."""
        self.first.refresh()
        if self.second is not None:
            self.second.refresh()

    def look(self, vectors: VectorView, reason: str = "") -> None:
        """Takes from the index who made its vectors, at start and after a swap; `reason` says why some are missing."""
        self.refresh()
        self._note = FailoverRecord.from_json(vectors.failover_record())
        stored = vectors.vector_identity()
        second = self.second
        taken = second is not None and stored is not None and not stored.differences(second.identity)
        self.active = second if second is not None and taken and self._is_noted else self.first
        self.active.look(vectors, reason)

    @property
    def _is_noted(self) -> bool:
        return self._note is not None and self._note.active

    @property
    def stands_in(self) -> FailoverRecord | None:
        """Why the second stands in for the first; None where it does not."""
        note = self._note
        if note is None or self.active is self.first:
            return None
        return replace(note, reason="; ".join(filter(None, (note.reason, self._remark))))

    def due_failover(self, should_stop: Callable[[], bool]) -> ProviderChange | None:
        """The change that a run calls for in which the first has failed; None where it answers after all."""
        if self.is_postponed:
            return self._taken_up(self.second)
        if self.active is not self.first or not self.first.fault or should_stop():
            return None
        if self.second is None:
            self.stays(self._no_second)
            return None
        reason = self._why_away(self.first, should_stop)
        if not reason or should_stop():
            return None
        now, before = self._now_ms(), self._note
        times = before.times + 1 if before is not None and now - before.since_ms < A_DAY_MS else 1
        return ProviderChange(self.second, FailoverRecord(active=True, reason=reason, since_ms=now, times=times))

    def due_failback(self, should_stop: Callable[[], bool], *, now: bool) -> ProviderChange | None:
        """The change back, where the first has answered again; None before its time, unless it is asked for `now`.

        After a start the first is asked at once: whoever has mended the settings waits for nothing.
        """
        if self.is_postponed:
            return self._taken_up(self.first)
        note = self._note
        if self.active is self.first or note is None or not (now or self._may_ask(note)):
            return None
        self._asked_ms = self._now_ms()
        self._remark = self._why_away(self.first, should_stop)
        if self._remark or should_stop():
            return None
        return ProviderChange(self.first, replace(note, active=False, since_ms=self._now_ms()))

    def put_off(self, change: ProviderChange) -> None:
        """A change that is due has to wait for files that have changed."""
        self._put_off = change, self._now_ms()

    @property
    def is_postponed(self) -> bool:
        """Whether a change has been put off so lately that nobody need be asked again whether it is due."""
        return self._put_off is not None and self._now_ms() < self._put_off[1] + ASK_AGAIN_MS

    def _taken_up(self, by: Embedder | None) -> ProviderChange | None:
        if self._put_off is None or self._put_off[0].to is not by:
            return None
        (change, _), self._put_off = self._put_off, None
        return change

    def _may_ask(self, note: FailoverRecord) -> bool:
        if self._asked_ms is None:
            return True
        now = self._now_ms()
        return now >= max(note.since_ms + note.stay_ms, self._asked_ms + ASK_AGAIN_MS)

    def _why_away(self, embedder: Embedder, should_stop: Callable[[], bool]) -> str:
        """Why it makes no vector now; empty when it does, or when stopped."""
        try:
            embedder.ask(should_stop)
        except (EmbeddingUnavailable, EmbeddingQuotaExceeded) as error:
            return "" if should_stop() else error.message
        return ""

    def changed(self, change: ProviderChange) -> None:
        """The index has the vectors of another one now."""
        self._note = change.note
        self._remark = ""
        self._asked_ms = self._now_ms()
        self.active = change.to

    def carry(self, writer: Writer) -> None:
        """Has a rebuilt index remember what this one does."""
        if self._note is not None:
            writer.record_failover(self._note.to_json())

    def stays(self, why: str) -> None:
        """A change that was due did not come about."""
        if self.active is self.first:
            self.first.remark(why)
        else:
            self._remark = why


def provider_and_model(spec: EmbeddingSpec) -> str:
    """A provider and its model, as people are told of it."""
    return f"{spec.provider}/{spec.model}" if spec.model else spec.provider
