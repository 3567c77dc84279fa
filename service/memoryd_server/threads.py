"""Executors and a lock for threads.

- `SharedPool`: threads shared by several users, each of which occupies at most some of them.
- `DaemonExecutor`: daemon threads for calls that may hang, such as those to embedding providers.
- `SerialExecutor`: one call at a time, in order, for example the writes to one index.
- `RWLock`: many readers or one writer.

An `asyncio.Semaphore` cannot limit calls that may hang: a caller that is cancelled would release it while the call
still occupies its thread. The executors therefore count calls until they end.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from memoryd_server.errors import EmbeddingUnavailable

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Call:
    """A call that runs or is cancelled, once.

    The frames in the traceback of its exception refer to it and to the future, which has the exception. A call that has
    run therefore refers to nothing, and `_run` releases the future; else each exception would stay in memory until the
    garbage collector finds the cycle.
    """

    __slots__ = ("future", "work")

    def __init__(self, future: "Future[Any]", work: Callable[[], Any]) -> None:
        self.future = future
        self.work = work

    def run(self) -> None:
        """Run the call, unless its future was cancelled."""
        future, work = self.future, self.work
        del self.future, self.work
        if future.set_running_or_notify_cancel():
            _run(future, work)
        del future


class _IdleThread(Generic[_T]):
    """Where a thread waits for its next task."""

    __slots__ = ("_given", "_task")

    def __init__(self) -> None:
        self._given = threading.Lock()
        self._given.acquire()
        self._task: _T | None = None

    def give(self, task: _T | None) -> None:
        """Wake the thread with its next task, or with None to end it. The caller has removed it from the idle ones."""
        self._task = task
        self._given.release()

    def wait(self, seconds: float, lock: threading.Lock, idle: "list[_IdleThread[_T]]") -> _T | None:
        """Return the next task; None if the thread has to end, after `seconds` at the latest.

        The thread is in the list of idle threads, which `lock` guards, and is removed from it if it ends by itself.
        """
        if not self._given.acquire(timeout=seconds):
            with lock:
                if self in idle:
                    idle.remove(self)
                    return None
            # Another thread has just removed it.
            self._given.acquire()
        return self._taken()

    def next(self) -> _T | None:
        """Return the task that is given next, without a limit on the time."""
        self._given.acquire()
        return self._taken()

    def _taken(self) -> _T | None:
        task, self._task = self._task, None
        return task


IDLE_SECONDS = 5.0
"""How long an idle thread waits for another call. A process that exits without `SharedPool.shutdown` waits as long."""


class SharedPool:
    """Up to `count` threads for several users, each with at most `each` of them.

    A user whose calls hang leaves the remaining threads to the others. Each user has at most `each` calls in the common
    queue, so the users take turns. The thread that became idle last runs the next call, because its data is likely to
    be in a processor cache still. A thread ends after `idle_seconds` without a call.
    """

    def __init__(self, count: int, each: int, name: str, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._count = count
        self._each = each
        self._name = name
        self._idle_seconds = idle_seconds
        # Guards the users' shares, too.
        self.lock = threading.Lock()
        self._threads = 0
        self._idle: list[_IdleThread[_Task]] = []
        self._queue: deque[tuple[_Share, _Call]] = deque()
        self.closed = False

    def share(self) -> Executor:
        """Return an executor for one user, for example one agent. It runs calls in the order of `submit`."""
        return _Share(self, self._each)

    def shutdown(self) -> None:
        """Accept no more calls and cancel the queued ones of all users. Does not wait for running calls."""
        with self.lock:
            self.closed = True
            queued, self._queue = list(self._queue), deque()
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.give(None)
        for share, call in queued:
            call.future.cancel()
            share.cancel_waiting()

    def begin(self, share: "_Share", call: _Call) -> None:
        """Run a call on a thread, or queue it. The caller holds `lock`.

        Raises:
            RuntimeError: the system cannot start the first thread.
        """
        if self._idle:
            self._idle.pop().give((share, call))
            return
        if self._threads < self._count:
            try:
                self._start(share, call)
            except RuntimeError:
                if not self._threads:
                    raise
            else:
                return
        self._queue.append((share, call))

    def _start(self, share: "_Share", call: _Call) -> None:
        own: _IdleThread[_Task] = _IdleThread()
        own.give((share, call))
        threading.Thread(target=self._work, args=(own,), name=self._name).start()
        self._threads += 1

    def _work(self, own: "_IdleThread[_Task]") -> None:
        task = own.next()
        while task is not None:
            share, call = task
            call.run()
            task = self._next(share)
            # An idle thread refers to no call.
            del share, call
            if task is None:
                task = self._wait(own)

    def _next(self, share: "_Share") -> "_Task | None":
        """Return the call that a thread runs after a call of `share`; None if none is queued."""
        with self.lock:
            following = share.next_call()
            if following is not None and not self.closed:
                self._queue.append((share, following))
                following = None
            task = self._queue.popleft() if self._queue else None
        if following is not None:
            following.future.cancel()
            share.cancel_waiting()
        return task

    def _wait(self, own: "_IdleThread[_Task]") -> "_Task | None":
        """Return the next call for a thread that has none; None if the thread has to end."""
        with self.lock:
            if self._queue:
                return self._queue.popleft()
            if self.closed:
                return None
            self._idle.append(own)
        task = own.wait(self._idle_seconds, self.lock, self._idle)
        if task is None:
            with self.lock:
                # A call that came in the meantime was queued, because this thread still counted.
                if self._queue:
                    return self._queue.popleft()
                self._threads -= 1
        return task


_Task = tuple["_Share", _Call]


class _Share(Executor):
    """Passes at most `limit` calls at a time to the pool. Further calls wait in this object, in order."""

    def __init__(self, pool: SharedPool, limit: int) -> None:
        self._pool = pool
        self._limit = limit
        self._in_pool = 0
        self._waiting: deque[_Call] = deque()

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """Return the future of `fn`. A shutdown of the pool cancels it.

        Raises:
            RuntimeError: the pool was shut down, or the system cannot start a thread.
        """
        future: Future[_T] = Future()
        call = _Call(future, partial(fn, *args, **kwargs) if args or kwargs else fn)
        with self._pool.lock:
            if self._in_pool >= self._limit:
                if self._pool.closed:
                    future.cancel()
                else:
                    self._waiting.append(call)
            elif self._pool.closed:
                raise RuntimeError("the thread pool was shut down")
            else:
                self._pool.begin(self, call)
                self._in_pool += 1
        return future

    def next_call(self) -> _Call | None:
        """Return the next waiting call after one has run; None if none waits. The caller holds the pool's lock."""
        if self._waiting:
            return self._waiting.popleft()
        self._in_pool -= 1
        return None

    def cancel_waiting(self) -> None:
        """Cancel all waiting calls, after a shutdown of the pool."""
        with self._pool.lock:
            waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.future.cancel()


class DaemonExecutor(Executor):
    """Run up to `limit` calls concurrently, each on a daemon thread, and queue the others in order.

    A call that hangs neither keeps the process from exiting nor, after `shutdown`, its caller waiting. A thread ends
    after `idle_seconds` without a call.
    """

    def __init__(self, limit: int, name: str, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self.limit = limit
        self._name = name
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._running: set[Future[Any]] = set()
        self._idle: list[_IdleThread[_Taken]] = []
        self._closed = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """Return the future of `fn`.

        The future fails with `EmbeddingUnavailable` after `shutdown`, and with `RuntimeError` if the system cannot
        start a thread.
        """
        future: Future[_T] = Future()
        with self._lock:
            if not self._closed:
                self._waiting.append(_Call(future, partial(fn, *args, **kwargs)))
                if len(self._running) < self.limit:
                    self._start_next()
                return future
        future.set_exception(_stopping())
        return future

    def _start_next(self) -> None:
        while (taken := self._take()) is not None:
            if self._idle:
                self._idle.pop().give(taken)
                return
            # Not an argument of the thread, which would refer to it until the thread ends.
            own: _IdleThread[_Taken] = _IdleThread()
            own.give(taken)
            try:
                threading.Thread(target=self._work, args=(own,), name=self._name, daemon=True).start()
            except RuntimeError as error:
                # The system cannot start another thread. A queued call may succeed later.
                self._running.remove(taken[0])
                taken[0].set_exception(error)
            else:
                return

    def _take(self) -> "_Taken | None":
        """Return the next call, which counts as running from now on; None if none waits. The caller has the lock."""
        while self._waiting:
            call = self._waiting.popleft()
            if call.future.set_running_or_notify_cancel():
                self._running.add(call.future)
                return call.future, call.work
        return None

    def _work(self, own: "_IdleThread[_Taken]") -> None:
        taken = own.next()
        while taken is not None:
            (future, work), taken = taken, None
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 -- passed to the caller
                error = raised
            with self._lock:
                if future not in self._running:
                    # `shutdown` has already failed this future.
                    return
                self._running.remove(future)
                # On another thread: a callback of this future may block.
                self._start_next()
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
            # See `_Call`.
            del future, work, result, error
            with self._lock:
                taken = self._take() if len(self._running) < self.limit else None
                if taken is None:
                    if self._closed:
                        return
                    self._idle.append(own)
            if taken is None:
                taken = own.wait(self._idle_seconds, self._lock, self._idle)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 -- never waits
        """Fail all queued and running futures with `EmbeddingUnavailable`. Does not wait for running calls."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = list(self._waiting), deque()
            running, self._running = self._running, set()
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.give(None)
        futures = [call.future for call in waiting if call.future.set_running_or_notify_cancel()]
        for future in [*futures, *running]:
            future.set_exception(_stopping())


_Taken = tuple["Future[Any]", Callable[[], Any]]


def _stopping() -> EmbeddingUnavailable:
    return EmbeddingUnavailable("the daemon is stopping and no longer waits for embedding providers")


LINGER_SECONDS = 0.2
"""How long an idle thread waits for another call. Starting a thread costs more than most calls."""


class SerialExecutor(Executor):
    """Run one call at a time, in order, on a thread that ends soon after the queue is empty."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self._has_thread = False
        self._closed = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """Return the future of `fn`.

        Raises:
            RuntimeError: the executor was shut down, or the system cannot start a thread.
        """
        future: Future[_T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name} was shut down")
            self._waiting.append(_Call(future, partial(fn, *args, **kwargs)))
            if self._has_thread:
                self._changed.notify()
            else:
                self._start()
        return future

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name)
        try:
            thread.start()
        except RuntimeError:
            self._waiting.pop()
            raise
        self._has_thread = True

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            # Release the call's arguments and its future while the thread is idle.
            del call

    def _next(self) -> _Call | None:
        with self._changed:
            if not (self._waiting or self._closed):
                self._changed.wait(LINGER_SECONDS)
            if self._waiting:
                return self._waiting.popleft()
            self._has_thread = False
            return None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 -- never waits
        """Accept no more calls. Queued calls still run, unless `cancel_futures` is set. Does not wait for them."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            if cancel_futures:
                for call in self._waiting:
                    call.future.cancel()
                self._waiting.clear()


def on_thread(name: str, work: Callable[[], _T]) -> "Future[_T]":
    """Start `work` on a new daemon thread and return its future."""
    future: Future[_T] = Future()
    threading.Thread(target=_run, args=(future, work), name=name, daemon=True).start()
    return future


def run_inline(work: Callable[[], _T]) -> "Future[_T]":
    """Run `work` in the calling thread and return its completed future."""
    future: Future[_T] = Future()
    _run(future, work)
    return future


def _run(future: "Future[Any]", work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 -- passed to the caller
        future.set_exception(error)
        # See `_Call`.
        del future
    else:
        future.set_result(result)


class RWLock:
    """A lock for many readers or one writer. A waiting writer takes precedence over readers that arrive later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._writers_waiting = 0
        self._writing = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock together with other readers. Not reentrant."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._writers_waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock exclusively."""
        with self._changed:
            self._writers_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._readers)
                self._writing = True
            finally:
                self._writers_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
