"""ReaderProcesses: the reader processes of the daemon, and the distribution of searches among them.

A search waits in the daemon until a process has room for it. The order of messages to one process is that of the calls
here, so a search that follows a commit finds the vectors of the commit. Whatever goes wrong with a process, its
searches end without an answer, and the daemon runs them.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from memoryd_server.agent.reader_handle import (
    MOST_UNANSWERED,
    READER_COMMAND,
    Notice,
    PendingSearch,
    ReaderHandle,
    ReaderLimits,
)
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.observe import Log, ReaderMetrics
from memoryd_server.readers import INTERNAL, IndexOptions, Search, SearchFailure
from memoryd_server.search import SearchAnswer

OUTCOMES: Final = ("answered", "failed", "late", "ended", "unavailable")
"""How searches of reader processes end. For all outcomes except the first, the daemon runs the search."""

STEADY_SECONDS = 60.0
"""A process that runs at least this long resets the pause before the next restart."""

MOST_PAUSE_SECONDS = 60.0

OwnSearch = Callable[[], Coroutine[Any, Any, SearchAnswer]]
"""The daemon's own search for what was passed to the processes."""

_CHECK_SECONDS = 0.1
_KILLED_SECONDS = 2.0


class SearchQueue:
    """The searches that no process has room for. The indexes take turns, each with its searches in order."""

    def __init__(self) -> None:
        self._by_key: dict[str, deque[PendingSearch]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def __iter__(self) -> Iterator[PendingSearch]:
        return itertools.chain.from_iterable(self._by_key.values())

    def add(self, search: PendingSearch) -> None:
        """Append a search to those of its index."""
        self._by_key.setdefault(search.message.key, deque()).append(search)

    def take(self) -> PendingSearch:
        """Remove and return the search whose turn it is."""
        key, searches = next(iter(self._by_key.items()))
        del self._by_key[key]
        search = searches.popleft()
        if searches:
            self._by_key[key] = searches
        return search

    def end(self, outcome: str, key: str | None = None) -> None:
        """Remove the searches of an index, or all, and end them without an answer."""
        for each in [*self._by_key] if key is None else [key]:
            for search in self._by_key.pop(each, ()):
                search.end(None, outcome)


class ReaderProcesses:
    """`count` processes from `start` to `stop`; each that ends is restarted.

    Methods are for the event loop's thread, except `close_index` and `notify`. `command` is that of a process, without
    the descriptor of its socket.
    """

    def __init__(
        self,
        count: int,
        log: Log,
        failures: TaskFailures | None = None,
        *,
        command: Sequence[str] = READER_COMMAND,
        limits: ReaderLimits = ReaderLimits(),  # noqa: B008 -- it is frozen
    ) -> None:
        self.count = count
        self._log, self._command, self._limits = log, command, limits
        self._tasks = BackgroundTasks(failures)
        self._numbers = itertools.count(1)
        self._waiting = SearchQueue()
        self._notices: deque[Notice] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._check: asyncio.TimerHandle | None = None
        self._reported: set[str] = set()
        self._searches = dict.fromkeys(OUTCOMES, 0)
        # Replaced and never changed, because other threads iterate over it.
        self._handles: tuple[ReaderHandle, ...] = ()

    def start(self) -> None:
        """Start the processes, without waiting for them."""
        self._loop = asyncio.get_running_loop()
        for _ in range(self.count):
            self._tasks.spawn("reader process", self._keep())

    async def stop(self) -> None:
        """End every process. Later searches are run by the daemon."""
        self._stopping.set()
        self._waiting.end("unavailable")
        for handle in self._handles:
            handle.disconnect()
        await self._tasks.wait()

    @property
    def is_available(self) -> bool:
        """Whether a process is expected to answer searches soon."""
        return any(handle.is_available for handle in self._handles)

    def measured(self) -> ReaderMetrics | None:
        """Return the current metrics; None if `count` is 0. May be called on any thread."""
        if not self.count:
            return None
        return ReaderMetrics(sum(handle.is_ready for handle in self._handles), dict(self._searches))

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the processes that are ready."""
        return tuple(handle.pid for handle in self._handles if handle.is_ready)

    async def _keep(self) -> None:
        """Keep one process running until `stop`."""
        short_lives = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            how = await self._run()
            if self._stopping.is_set():
                return
            short_lives = 0 if time.monotonic() - began >= STEADY_SECONDS else short_lives + 1
            pause = 0.0 if short_lives < 2 else min(MOST_PAUSE_SECONDS, 2.0 ** (short_lives - 2))  # noqa: PLR2004 -- the second
            self._log.warning("restart-reader", ended_with=how, pause_s=pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    async def _run(self) -> str:
        """Start one process, wait for its end, and return how it ended."""
        try:
            handle = await ReaderHandle.start(self._command, self._distribute, self._report)
        except (OSError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"
        self._handles = (*self._handles, handle)
        try:
            if not self._stopping.is_set():
                await self._follow(handle)
        finally:
            # Until the process has ended, it may have files of an index open.
            how = await handle.end()
            self._handles = tuple(each for each in self._handles if each is not handle)
        return how

    async def _follow(self, handle: ReaderHandle) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.start_seconds):
                await handle.started.wait()
        if handle.is_ready:
            self._log.info("start-reader", pid=handle.pid)
        else:
            handle.kill()
        await handle.ended.wait()

    def new_number(self) -> int:
        """Return the number of the next message that is answered."""
        return next(self._numbers)

    async def search(self, options: IndexOptions, message: Search, own: OwnSearch) -> SearchAnswer:
        """Return the answer of a process, or that of `own`, which is the daemon's own search. Raises as `own`.

        `options` are those of the message's index. The same object has to be passed until they change.
        """
        search = PendingSearch(options, message, asyncio.get_running_loop().create_future())
        self._waiting.add(search)
        self._distribute()
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check_deadlines)
        answer = await search.answer
        self._searches[search.outcome] += 1
        if answer is not None:
            return answer
        if search.late_answer is not None:
            return await self._first_of(search.late_answer, own)
        return await own()

    async def _first_of(self, late: "asyncio.Future[SearchAnswer | None]", own: OwnSearch) -> SearchAnswer:
        """Return the late answer of a process, or that of `own` if it comes first or the process gives none."""
        searching = self._tasks.spawn("search that a reader process answers late", own(), expected=(Exception,))
        try:
            await asyncio.wait((searching, late), return_when=asyncio.FIRST_COMPLETED)
            answer = late.result() if late.done() else None
            return await searching if answer is None else answer
        finally:
            searching.cancel()
            late.cancel()

    def _distribute(self) -> None:
        """Pass waiting searches to the processes that have room; end them if no process is expected to answer."""
        while self._waiting:
            free = [each for each in self._handles if each.is_available and each.unanswered < MOST_UNANSWERED]
            if not free:
                break
            search = self._waiting.take()
            # Skip searches whose caller has left or whose deadline has passed.
            if not search.answer.done():
                self._send_notices()
                min(free, key=lambda each: each.unanswered).pass_on(search)
        if self._waiting and not self.is_available:
            self._waiting.end("unavailable")

    def _check_deadlines(self) -> None:
        """Handle searches and processes that take too long, until there are no searches."""
        now = time.monotonic()
        for handle in self._handles:
            handle.check(now, self._limits)
        for search in self._waiting:
            if now > search.message.query.deadline:
                search.end(None, "late")
        self._distribute()
        busy = self._waiting or any(handle.unanswered for handle in self._handles)
        self._check = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check_deadlines) if busy else None

    def _report(self, failed: SearchFailure) -> None:
        """Log the first failure of each kind that is a bug. The message may quote texts."""
        if failed.kind == INTERNAL and (error := failed.error.partition(":")[0]) not in self._reported:
            self._reported.add(error)
            self._log.error("fail-reader-search", error=error, used="daemon")

    def notify(self, notice: Notice) -> None:
        """Send a notice to every process that has the index open, ahead of the searches that are passed later.

        From any thread; does not wait.
        """
        if self._loop is not None and not self._stopping.is_set():
            self._notices.append(notice)
            self._call(self._send_notices)

    def _send_notices(self) -> None:
        while self._notices:
            notice = self._notices.popleft()
            for handle in self._handles:
                handle.notify(notice)

    def _call(self, work: Callable[[], None]) -> bool:
        """Call `work` on the event loop's thread; return False if the loop is closed."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            return False
        return True

    def close_index(self, key: str) -> None:
        """Close an index in every process. Blocks; not for the event loop's thread.

        A process that has not closed it within `close_seconds` is killed. The caller passes no search of this index
        until it may be opened again.
        """
        closed: Future[None] = Future()
        if not self._call(lambda: self._begin_close(key, closed)):
            return
        try:
            closed.result(self._limits.close_seconds + 2 * _KILLED_SECONDS)
        except TimeoutError:
            # The event loop is blocked. A killed process reads no file any more.
            for handle in self._handles:
                handle.kill()

    def _begin_close(self, key: str, closed: "Future[None]") -> None:
        self._send_notices()
        self._waiting.end("unavailable", key)
        closings: Mapping[ReaderHandle, asyncio.Future[None]] = {
            handle: closing
            for handle in self._handles
            if (closing := handle.close_index(self.new_number(), key)) is not None
        }
        if closings:
            self._tasks.spawn("close of an index in reader processes", self._finish_close(closings, closed))
        else:
            closed.set_result(None)

    async def _finish_close(
        self, closings: "Mapping[ReaderHandle, asyncio.Future[None]]", closed: "Future[None]"
    ) -> None:
        try:
            await asyncio.wait(closings.values(), timeout=self._limits.close_seconds)
            late = {handle: closing for handle, closing in closings.items() if not closing.done()}
            for handle in late:
                self._log.warning("kill-reader", pid=handle.pid, reason="close-timeout")
                handle.kill()
            if late:
                await asyncio.wait(late.values(), timeout=_KILLED_SECONDS)
        finally:
            closed.set_result(None)
