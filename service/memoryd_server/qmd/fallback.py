"""FallbackBackend: searches with qmd, and with the builtin engine while qmd fails; CircuitBreaker.

A failure of qmd opens the circuit breaker. While it is open, a background task probes qmd, and a probe that succeeds
closes it.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace

from memoryd_server.agent import Agent, BackendStatus, FileRange, ForgetRequest, SyncRun, SyncRunner, SyncTrigger
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import BackendUnavailable, RevisionNotReached
from memoryd_server.model import Clock, Degradation, DegradationKind
from memoryd_server.qmd.backend import NOT_READY, QmdBackend, QmdSyncRunner
from memoryd_server.qmd.client import TRANSIENT, QmdFailure, QmdFailureReason
from memoryd_server.qmd.config import QmdConfig
from memoryd_server.qmd.hits import scope_denied
from memoryd_server.qmd.host import QmdHost
from memoryd_server.search import SearchAnswer, SearchQuery
from memoryd_server.store import ALL_FILES
from memoryd_server.sync import SyncOutcome

# The part of the caller's time that is reserved for the builtin engine: the smaller of the two.
RESERVE_SECONDS = 1.0
RESERVE_SHARE = 0.25
# The longest pause between two probes after a failure that costs little to repeat, and after one that costs much.
CHEAP_PAUSE_SECONDS = 40.0
COSTLY_PAUSE_SECONDS = 600.0

_COSTLY = frozenset({QmdFailureReason.TIMEOUT, QmdFailureReason.TOO_LARGE})

OnChange = Callable[[bool, str], None]
"""Called with (True, "") when qmd answers again, and with False and the reason when it stops answering."""


class FallbackBackend:
    """Answers the searches of one agent from `start` to `stop`. For the event loop's thread."""

    def __init__(
        self,
        qmd: QmdBackend,
        builtin: Agent,
        on_change: OnChange,
        sync_runner: SyncRunner | None = None,
        *,
        breaker: "CircuitBreaker | None" = None,
        tasks: BackgroundTasks | None = None,
    ) -> None:
        self.sync_runner = sync_runner
        self._qmd = qmd
        self._builtin = builtin
        self._on_change = on_change
        self._breaker = breaker or CircuitBreaker(time.monotonic)
        self._tasks = tasks or BackgroundTasks()
        self._faults = self._tasks.errors("qmd probe")
        self._recovery: asyncio.Task[None] | None = None

    @property
    def _falls_back(self) -> bool:
        return self._qmd.config.fallback

    async def start(self, *, background: bool) -> None:
        """Start qmd's updates if `background`. Does not fail if the command is missing."""
        await self._qmd.updates.start(background=background)
        self._tasks.spawn("qmd version check", self._check_version())

    async def _check_version(self) -> None:
        try:
            await self._qmd.check_version()
        except QmdFailure as failure:
            self._record_failure(failure)

    async def stop(self) -> None:
        """Stop the updates and probes. The host ends running commands when it is closed."""
        await self._tasks.stop()
        await self._qmd.updates.stop()

    async def search(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Answer a query with qmd, or with the builtin engine and a degradation with the reason.

        Raises:
            RevisionNotReached: the deadline came before that revision.
            BackendUnavailable: qmd failed or cannot apply the query's filter, and the builtin engine may not answer.
        """
        if not self._qmd.permits(session_key):
            return scope_denied(query)
        if query.builtin_only or query.files != ALL_FILES or query.origins:
            return await self._search_builtin(query, session_key, min_revision)
        if self._breaker.open:
            return await self._fall_back(self._breaker.reason, query, session_key, min_revision)
        try:
            answer = await self._search_qmd(query, session_key, min_revision)
        except QmdFailure as failure:
            self._record_failure(failure)
            return await self._fall_back(failure.message, query, session_key, min_revision, failure.reason)
        return replace(answer, degradations=(*self._qmd.degradations(), *answer.degradations))

    async def _search_builtin(self, query: SearchQuery, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Answer with the builtin engine what qmd cannot: a recall, or a query with a filter."""
        reason = "qmd cannot recall" if query.builtin_only else "qmd cannot filter"
        if not self._falls_back:
            raise BackendUnavailable(
                f"{reason}, and memoryd keeps no index for this agent, because memoryd.qmdFallback is "
                '"none"; set it to "builtin"',
                metadata={"backend": "qmd"},
            )
        return await self._answer_builtin(reason, query, session_key, min_revision)

    async def _search_qmd(self, query: SearchQuery, session_key: str, min_revision: int | None) -> SearchAnswer:
        await self._wait_for_revision(query, session_key, min_revision)
        seconds = min(self._qmd.config.limits.timeout_seconds, self._seconds_for_qmd(query))
        snapshot = self._builtin.snapshot
        return await self._qmd.search(query, seconds=seconds, stale=snapshot.dirty or snapshot.pending_files > 0)

    def _seconds_for_qmd(self, query: SearchQuery) -> float:
        """Return the time that qmd may take, so that the builtin engine can still answer after it."""
        left = query.deadline - time.monotonic()
        return left - min(RESERVE_SECONDS, left * RESERVE_SHARE) if self._falls_back else left

    async def _wait_for_revision(self, query: SearchQuery, session_key: str, min_revision: int | None) -> None:
        """Wait until qmd's index includes the files of memoryd's index at `min_revision`."""
        if min_revision and not self._falls_back:
            raise RevisionNotReached(
                'memoryd keeps no index for this agent, because memoryd.qmdFallback is "none", and qmd\'s index has no '
                "revisions; search without min_revision, or call Sync first"
            )
        await self._builtin.prepare_search(session_key, min_revision, query.deadline)
        covered = self._qmd.covered
        if min_revision and (covered is None or covered.revision < min_revision):
            try:
                async with asyncio.timeout(self._seconds_for_qmd(query)):
                    await self._qmd.updates.update_now(embed=False)
            except TimeoutError:
                raise QmdFailure(
                    QmdFailureReason.NO_TIME, f"qmd's index did not reach revision {min_revision} in time"
                ) from None

    async def _fall_back(
        self,
        message: str,
        query: SearchQuery,
        session_key: str,
        min_revision: int | None,
        reason: QmdFailureReason | None = None,
    ) -> SearchAnswer:
        if not self._falls_back:
            raise BackendUnavailable(
                f'qmd does not answer: {message}. memoryd.qmdFallback is "none", so there is no other engine; run '
                "memoryd doctor to find the cause",
                metadata={"backend": "qmd", **({} if reason is None else {"cause": reason.name})},
                retry_after_seconds=max(1.0, self._breaker.next_probe_seconds),
            )
        return await self._answer_builtin(message, query, session_key, min_revision)

    async def _answer_builtin(
        self, message: str, query: SearchQuery, session_key: str, min_revision: int | None
    ) -> SearchAnswer:
        answer = await self._builtin.search_builtin(query, session_key=session_key, min_revision=min_revision)
        return replace(answer, degradations=(*self._fallback_degradations(message), *answer.degradations))

    def _fallback_degradations(self, message: str) -> Sequence[Degradation]:
        degradations = [Degradation(DegradationKind.BACKEND_FALLBACK, "qmd", "builtin", message)]
        if self._qmd.qmd_only_collections:
            names = ", ".join(self._qmd.qmd_only_collections)
            reason = "only qmd searches these collections"
            degradations.append(Degradation(DegradationKind.SOURCE_SKIPPED, names, "", reason))
        return degradations

    def _record_failure(self, failure: QmdFailure) -> None:
        """Open the breaker unless the failure is transient, and start to probe qmd."""
        if failure.reason in TRANSIENT:
            return
        was_open = self._breaker.open
        costly = failure.reason in _COSTLY
        self._breaker.failed(failure.message, COSTLY_PAUSE_SECONDS if costly else CHEAP_PAUSE_SECONDS)
        if not was_open:
            self._on_change(False, failure.message)
        if self._recovery is None or self._recovery.done():
            self._recovery = self._tasks.spawn("qmd recovery", self._recover())

    async def _recover(self) -> None:
        while self._breaker.open:
            await asyncio.sleep(self._breaker.next_probe_seconds)
            try:
                await self._probe()
            except Exception as error:  # noqa: BLE001 -- without another probe qmd would never answer again
                self._faults.failed(error)
            else:
                self._faults.worked()
            if self._breaker.open and not self._breaker.next_probe_seconds:
                # The failure was transient, so the reason has not changed.
                self._breaker.failed(self._breaker.reason, CHEAP_PAUSE_SECONDS)

    async def _probe(self) -> None:
        try:
            await self._qmd.probe()
        except QmdFailure as failure:
            self._record_failure(failure)
            return
        if self._breaker.open:
            self._breaker.succeeded()
            self._on_change(True, "")
            # qmd's index does not include changes made while qmd failed.
            self._qmd.updates.resume()

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange | None:
        """Return a line range of a file that only qmd searches; None for any other path."""
        return await self._qmd.read(path, start_line, line_count)

    async def forget(self, request: ForgetRequest, deadline: float) -> tuple[int, bool]:
        """Remove a session, and files that no longer exist, from qmd's index.

        Return the number of the session's documents, and whether all of it was done before `deadline`.
        """
        return await self._qmd.forget(request.session_id or "", deadline)

    async def check(self, deadline: float) -> None:
        """Probe qmd once, whether the breaker is open or not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self._probe()

    async def state(self) -> BackendStatus:
        """Return which engine would answer now, and the state of qmd."""
        reason = self._breaker.reason
        failure = self._qmd.updates.updating.failure
        if not reason and not await self._qmd.is_ready():
            reason = NOT_READY if failure is None else failure.message
        if not reason:
            active, degradations = "qmd", tuple(self._qmd.degradations())
        elif self._falls_back:
            active, degradations = "builtin", tuple(self._fallback_degradations(reason))
        else:
            active, degradations = "", (Degradation(DegradationKind.BACKEND_FALLBACK, "qmd", "", reason),)
        degradations = (*degradations, *self._qmd.lock_degradations())
        return BackendStatus(active, degradations, wanted="qmd", version=self._qmd.version, reason=reason)

    async def after_sync(self, run: SyncRun, outcome: SyncOutcome) -> SyncOutcome:
        """Update qmd's index after a sync run: now if a caller waits for the run, later otherwise.

        Raises:
            BackendUnavailable: the update failed, and there is no other index.
        """
        if run.trigger is not SyncTrigger.MANUAL:
            if outcome.indexed_files or outcome.removed_files:
                self._qmd.updates.request()
            return outcome
        try:
            counts = await self._qmd.updates.update_now()
        except QmdFailure as failure:
            if self._falls_back:
                # Status and every answer report the failure.
                return outcome
            raise BackendUnavailable(f"updating qmd's index failed: {failure.message}") from failure
        if self._falls_back:
            return outcome
        return replace(
            outcome,
            files=counts.documents,
            indexed_files=counts.new + counts.changed,
            unchanged_files=counts.unchanged,
            removed_files=counts.removed,
            changed=counts.new + counts.changed + counts.removed > 0,
        )


def make_qmd(
    memory: Agent,
    config: QmdConfig,
    host: QmdHost,
    *,
    threads: Executor,
    on_change: OnChange,
    failures: TaskFailures,
) -> FallbackBackend:
    """Return qmd as the search backend of `memory`. memoryd keeps an index only if `config.fallback` is true."""
    agent = memory.config
    qmd = QmdBackend(
        config,
        host,
        roots=agent.roots,
        ranking=lambda: memory.config.ranking,
        max_file_bytes=agent.sync.max_file_bytes,
        threads=threads,
        revision=(lambda: memory.snapshot.revision) if config.fallback else None,
        forgotten=memory.forgotten,
        tasks=BackgroundTasks(failures, agent.agent_id),
    )
    runner = None if config.fallback else QmdSyncRunner(agent.roots, lambda: qmd.covered_files, Clock())
    return FallbackBackend(qmd, memory, on_change, runner, tasks=BackgroundTasks(failures, agent.agent_id))


FIRST_PAUSE_SECONDS = 5.0


class CircuitBreaker:
    """Closed while the backend answers. A failure opens it; a probe that succeeds closes it.

    The pause between two probes doubles, up to the maximum that the caller sets with each failure. `monotonic` is a
    clock in seconds.
    """

    def __init__(self, monotonic: Callable[[], float], *, first_pause_seconds: float = FIRST_PAUSE_SECONDS) -> None:
        self._monotonic = monotonic
        self._first_pause_seconds = first_pause_seconds
        self._pause = 0.0
        self._failed_at = -math.inf
        self.reason = ""

    @property
    def open(self) -> bool:
        """Whether the backend is not called; `reason` says why."""
        return bool(self.reason)

    def failed(self, reason: str, max_pause_seconds: float) -> None:
        """Open the breaker, or keep it open for twice the last pause."""
        self.reason = reason
        self._failed_at = self._monotonic()
        self._pause = min(max_pause_seconds, self._pause * 2 or self._first_pause_seconds)

    def succeeded(self) -> None:
        """Close the breaker."""
        self.reason, self._pause = "", 0.0

    @property
    def next_probe_seconds(self) -> float:
        """The seconds until the next probe."""
        return max(0.0, self._failed_at + self._pause - self._monotonic())
