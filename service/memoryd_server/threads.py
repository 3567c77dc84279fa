"""Executors and locks for threads: `SerialExecutor`, `RWLock`, and helpers that return futures."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from memoryd_server.errors import EmbeddingUnavailable

T = TypeVar("T")

_T = TypeVar("_T")

_P = ParamSpec("_P")


class _DaemonThreads(Executor):
    """Run up to `most` calls concurrently, each on its own daemon thread, and queue the others in order."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._under_way: set[Future[Any]] = set()
        self._closed = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """Return the future of `fn`. After `shutdown` the future fails with `EmbeddingUnavailable`."""
        future: Future[_T] = Future()
        with self._lock:
            if not self._closed:
                self._waiting.append((future, lambda: fn(*args, **kwargs)))
                if len(self._under_way) < self._most:
                    self._start_next()
                return future
        future.set_exception(_stopping())
        return future

    def _start_next(self) -> None:
        while self._waiting:
            future, call = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                self._under_way.add(future)
                try:
                    threading.Thread(target=self._run, args=(future, call), name=self._name, daemon=True).start()
                except RuntimeError as error:
                    # The system cannot start another thread. A queued call may succeed later.
                    self._under_way.remove(future)
                    future.set_exception(error)
                else:
                    return

    def _run(self, future: "Future[Any]", call: Callable[[], Any]) -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 -- passed to the caller
            error = raised
        with self._lock:
            if future in self._under_way:
                self._under_way.remove(future)
                self._start_next()
            else:
                # `shutdown` has already failed this future.
                return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 -- never waits
        """Fail all pending and running futures with `EmbeddingUnavailable`. Does not wait for running calls."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = list(self._waiting), deque()
            under_way, self._under_way = self._under_way, set()
        futures = [future for future, _ in waiting if future.set_running_or_notify_cancel()]
        for future in [*futures, *under_way]:
            future.set_exception(_stopping())


def _stopping() -> EmbeddingUnavailable:
    return EmbeddingUnavailable("the daemon is stopping and waits for no provider")


_Job = tuple["Future[Any]", Callable[[], Any]]


def _carry_out(job: _Job) -> None:
    """Run the job unless its future was cancelled."""
    future, work = job
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 -- passed to the caller
        future.set_exception(error)
    else:
        future.set_result(result)


LINGER_SECONDS = 0.2
"""How long an idle thread waits for another call. Starting a thread costs more than most calls."""


class SerialExecutor(Executor):
    """Run one call at a time, in order, on a thread that ends soon after the queue is empty."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._at_work = False
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
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            if self._at_work:
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
        self._at_work = True

    def _run(self) -> None:
        while (job := self._next()) is not None:
            _carry_out(job)
            # Release the call's arguments and its future while the thread is idle.
            del job

    def _next(self) -> _Job | None:
        with self._changed:
            if not (self._waiting or self._closed):
                self._changed.wait(LINGER_SECONDS)
            if self._waiting:
                return self._waiting.popleft()
            self._at_work = False
            return None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 -- never waits
        """Accept no more calls. Queued calls still run, unless `cancel_futures` is set. Does not wait for them."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            if cancel_futures:
                for future, _ in self._waiting:
                    future.cancel()
                self._waiting.clear()


def on_thread(name: str, call: Callable[[], T]) -> "Future[T]":
    """Run `call` on a new daemon thread and return its future."""
    future: Future[T] = Future()
    threading.Thread(target=_settle, args=(future, call), name=name, daemon=True).start()
    return future


def at_once(call: Callable[[], T], _should_stop: Callable[[], bool]) -> "Future[T]":
    """Run `call` in the calling thread and return its completed future."""
    future: Future[T] = Future()
    _settle(future, call)
    return future


def _settle(future: "Future[T]", call: Callable[[], T]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 -- passed to the caller
        future.set_exception(error)
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
