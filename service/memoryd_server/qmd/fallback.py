"""Qmd first, builtin when it fails; circuit breaker.

qmd first, the builtin engine when it cannot, and a way back without a restart.

When to leave a backend alone that has failed, and when to try it again.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace

from memoryd_server.agent import Agent, BackendStatus, FileRange, ForgetRequest, SyncRun, SyncRunner, SyncTrigger
from memoryd_server.background_tasks import ReportedErrors
from memoryd_server.errors import BackendUnavailable, RevisionNotReached
from memoryd_server.model import Clock, Degradation, DegradationKind
from memoryd_server.qmd.backend import NOT_READY, QmdBackend, QmdSyncRunner
from memoryd_server.qmd.client import PASSING, QmdFailure, QmdFailureReason
from memoryd_server.qmd.config import QmdConfig
from memoryd_server.qmd.hits import denied
from memoryd_server.qmd.host import QmdHost
from memoryd_server.search import SearchAnswer, SearchQuery
from memoryd_server.sync import SyncOutcome

# Kept for the builtin engine out of the caller's time, and as a share where that is short.
RESERVE_SECONDS = 1.0
RESERVE_SHARE = 0.25
# The longest pause between two trials: after failures that cost nothing to meet again, and after those that do.
CHEAP_PAUSE_SECONDS = 40.0
DEAR_PAUSE_SECONDS = 600.0

_DEAR = frozenset({QmdFailureReason.TIMEOUT, QmdFailureReason.TOO_LARGE})

# Hears of each change: True when qmd answers again, and why it does not when it does not.
OnChange = Callable[[bool, str], None]


class FallbackBackend:
    """Answers for one agent from `start` to `stop`. On the event loop's thread."""

    def __init__(
        self,
        qmd: QmdBackend,
        builtin: Agent,
        on_change: OnChange,
        sync_runner: SyncRunner | None = None,
        breaker: "CircuitBreaker | None" = None,
    ) -> None:
        self.sync_runner = sync_runner
        self._qmd = qmd
        self._builtin = builtin
        self._on_change = on_change
        self._breaker = breaker or CircuitBreaker(time.monotonic)
        self._faults = ReportedErrors("a trial of qmd")
        self._recovery: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def _falls_back(self) -> bool:
        return self._qmd.config.fallback

    async def start(self, *, background: bool) -> None:
        """Begins qmd's updates, unless told otherwise; a missing command keeps nobody from starting."""
        await self._qmd.updates.start(background=background)
        self._looking = asyncio.get_running_loop().create_task(self._first_look())

    async def _first_look(self) -> None:
        try:
            await self._qmd.look()
        except QmdFailure as failure:
            self._note(failure)
        except Exception as error:  # noqa: BLE001 -- the first search meets it as well
            self._faults.failed(error)

    async def stop(self) -> None:
        """Begins nothing more; what runs is ended with the host."""
        for task in (self._recovery, self._looking):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._qmd.updates.stop()

    async def search(self, query: SearchQuery, *, session_key: str, min_revision: int | None) -> SearchAnswer:
        """Answers a question, and says who did and why.

        Raises:
            RevisionNotReached: the deadline came before that revision.
            BackendUnavailable: qmd failed, and the builtin engine may not answer.
        """
        if not self._qmd.permits(session_key):
            return denied(query)
        if self._breaker.open:
            return await self._otherwise(self._breaker.reason, query, session_key, min_revision)
        try:
            answer = await self._ask_qmd(query, session_key, min_revision)
        except QmdFailure as failure:
            self._note(failure)
            return await self._otherwise(failure.message, query, session_key, min_revision, failure.reason)
        return replace(answer, degradations=(*self._qmd.degradations(), *answer.degradations))

    async def _ask_qmd(self, query: SearchQuery, session_key: str, min_revision: int | None) -> SearchAnswer:
        await self._reach(query, session_key, min_revision)
        seconds = min(self._qmd.config.limits.seconds, self._left(query))
        board = self._builtin.board.current
        return await self._qmd.search(query, seconds=seconds, stale=board.dirty or board.pending_files > 0)

    def _left(self, query: SearchQuery) -> float:
        """The time that qmd may take, so that the builtin engine can still answer after it."""
        left = query.deadline - time.monotonic()
        return left - min(RESERVE_SECONDS, left * RESERVE_SHARE) if self._falls_back else left

    async def _reach(self, query: SearchQuery, session_key: str, min_revision: int | None) -> None:
        """Waits until qmd holds what memoryd's own index held at `min_revision`."""
        if min_revision and not self._falls_back:
            raise RevisionNotReached(
                'memoryd keeps no index of its own for this agent (memoryd.qmdFallback is "none"), and qmd\'s has no '
                "revisions; search without min_revision, or call Sync first"
            )
        await self._builtin.reach(session_key, min_revision, query.deadline)
        covered = self._qmd.covered
        if min_revision and (covered is None or covered.revision < min_revision):
            try:
                async with asyncio.timeout(self._left(query)):
                    await self._qmd.updates.now(embed=False)
            except TimeoutError:
                raise QmdFailure(
                    QmdFailureReason.NO_TIME, f"qmd's index did not reach revision {min_revision} in time"
                ) from None

    async def _otherwise(
        self,
        why: str,
        query: SearchQuery,
        session_key: str,
        min_revision: int | None,
        reason: QmdFailureReason | None = None,
    ) -> SearchAnswer:
        if not self._falls_back:
            raise BackendUnavailable(
                f'qmd does not answer: {why}. memoryd.qmdFallback is "none", so nobody else does; memoryd doctor looks '
                "for the cause",
                metadata={"backend": "qmd", **({} if reason is None else {"cause": reason.name})},
                retry_after_seconds=max(1.0, self._breaker.next_trial_seconds),
            )
        answer = await self._builtin.search(query, session_key=session_key, min_revision=min_revision)
        return replace(answer, degradations=(*self._fallen_back(why), *answer.degradations))

    def _fallen_back(self, why: str) -> Sequence[Degradation]:
        found = [Degradation(DegradationKind.BACKEND_FALLBACK, "qmd", "builtin", why)]
        if self._qmd.unserved:
            names = ", ".join(self._qmd.unserved)
            reason = "only qmd searches these collections"
            found.append(Degradation(DegradationKind.SOURCE_SKIPPED, names, "", reason))
        return found

    def _note(self, failure: QmdFailure) -> None:
        """Opens the breaker for what the next call would meet as well, and begins to look for the way back."""
        if failure.reason in PASSING:
            return
        was_open = self._breaker.open
        dear = failure.reason in _DEAR
        self._breaker.failed(failure.message, DEAR_PAUSE_SECONDS if dear else CHEAP_PAUSE_SECONDS)
        if not was_open:
            self._on_change(False, failure.message)
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.get_running_loop().create_task(self._recover())

    async def _recover(self) -> None:
        while self._breaker.open:
            await asyncio.sleep(self._breaker.next_trial_seconds)
            try:
                await self._try()
            except Exception as error:  # noqa: BLE001 -- without another trial qmd would never answer again
                self._faults.failed(error)
            else:
                self._faults.worked()
            if self._breaker.open and not self._breaker.next_trial_seconds:
                # It failed in a way that says nothing, so the old reason stands.
                self._breaker.failed(self._breaker.reason, CHEAP_PAUSE_SECONDS)

    async def _try(self) -> None:
        try:
            await self._qmd.trial()
        except QmdFailure as failure:
            self._note(failure)
            return
        if self._breaker.open:
            self._breaker.succeeded()
            self._on_change(True, "")
            # What happened meanwhile is not in its index.
            self._qmd.updates.resume()

    async def read(self, path: str, start_line: int, line_count: int) -> FileRange | None:
        """Return a line range of a file that only qmd searches; None for any other path."""
        return await self._qmd.read(path, start_line, line_count)

    async def forget(self, request: ForgetRequest, deadline: float) -> tuple[int, bool]:
        """Remove a session, and files that no longer exist, from qmd's index.

        Return the number of the session's documents, and whether all of it was done before `deadline`.
        """
        return await self._qmd.forget(request.session_id, deadline)

    async def check(self, deadline: float) -> None:
        """Searches once through qmd, whatever it did before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self._try()

    async def state(self) -> BackendStatus:
        """Who would answer, and how qmd is doing."""
        why = self._breaker.reason
        failure = self._qmd.updates.updating.failure
        if not why and not await self._qmd.is_ready():
            why = NOT_READY if failure is None else failure.message
        if not why:
            active, degradations = "qmd", tuple(self._qmd.degradations())
        elif self._falls_back:
            active, degradations = "builtin", tuple(self._fallen_back(why))
        else:
            active, degradations = "", (Degradation(DegradationKind.BACKEND_FALLBACK, "qmd", "", why),)
        return BackendStatus(active, degradations, wanted="qmd", version=self._qmd.version, reason=why)

    async def after_sync(self, run: SyncRun, outcome: SyncOutcome) -> SyncOutcome:
        """Brings qmd's index in line after a run: at once where a caller waits for it, soon otherwise.

        Raises:
            BackendUnavailable: it could not be done, and there is no other index.
        """
        if run.trigger is not SyncTrigger.MANUAL:
            if outcome.indexed_files or outcome.removed_files:
                self._qmd.updates.ask()
            return outcome
        try:
            done = await self._qmd.updates.now()
        except QmdFailure as failure:
            if self._falls_back:
                # Status tells of it, and so does every answer.
                return outcome
            raise BackendUnavailable(f"qmd's index was not brought up to date: {failure.message}") from failure
        if self._falls_back:
            return outcome
        return replace(
            outcome,
            files=done.documents,
            indexed_files=done.new + done.changed,
            unchanged_files=done.unchanged,
            removed_files=done.removed,
            changed=done.new + done.changed + done.removed > 0,
        )


def make_qmd(
    memory: Agent, config: QmdConfig, host: QmdHost, *, threads: Executor, on_change: OnChange
) -> FallbackBackend:
    """Return qmd as the search backend of `memory`, whose index is kept only if it may have to answer."""
    agent = memory.config
    qmd = QmdBackend(
        config,
        host,
        roots=agent.roots,
        ranking=lambda: memory.config.ranking,
        max_file_bytes=agent.sync.max_file_bytes,
        threads=threads,
        revision=(lambda: memory.board.current.revision) if config.fallback else None,
        forgotten=memory.forgotten,
    )
    runner = None if config.fallback else QmdSyncRunner(agent.roots, lambda: qmd.covered_files, Clock())
    return FallbackBackend(qmd, memory, on_change, runner)


FIRST_PAUSE_SECONDS = 5.0


class CircuitBreaker:
    """Closed while the backend answers. A failure opens it, and a trial that succeeds closes it again.

    The pause between two trials doubles, up to what the failure is worth: the caller says how much. `monotonic` is a
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
        """Whether the backend is left alone; `reason` says why."""
        return bool(self.reason)

    def failed(self, reason: str, most_pause_seconds: float) -> None:
        """Opens it, or keeps it open for twice as long."""
        self.reason = reason
        self._failed_at = self._monotonic()
        self._pause = min(most_pause_seconds, self._pause * 2 or self._first_pause_seconds)

    def succeeded(self) -> None:
        """Closes it."""
        self.reason, self._pause = "", 0.0

    @property
    def next_trial_seconds(self) -> float:
        """Time until the next trial."""
        return max(0.0, self._failed_at + self._pause - self._monotonic())
