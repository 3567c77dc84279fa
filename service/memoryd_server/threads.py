"""DaemonExecutor, SerialExecutor, RWLock.

A lock that many searches hold together and a change holds alone.
"""

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
    """At most `most` calls at once, the others in the order in which they came."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._under_way: set[Future[Any]] = set()
        self._closed = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """What `fn` will return. Once shut down, `EmbeddingUnavailable`."""
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
                    # The system has no thread left. Those that wait may find one.
                    self._under_way.remove(future)
                    future.set_exception(error)
                else:
                    return

    def _run(self, future: "Future[Any]", call: Callable[[], Any]) -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 -- it is the asker's, who raises it
            error = raised
        with self._lock:
            if future in self._under_way:
                self._under_way.remove(future)
                self._start_next()
            else:
                # The shutdown has answered in its place.
                return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 -- never waits
        """Ends the waiting of all who asked, and waits for no call."""
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
    """Does what was asked for, unless nobody wants it any more."""
    future, work = job
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 -- it is the asker's, who raises it
        future.set_exception(error)
    else:
        future.set_result(result)


LINGER_SECONDS = 0.2
"""How long a thread that has nothing to do waits for more: to start one costs more than many a call."""


class SerialExecutor(Executor):
    """One call at a time, in order, on a thread that ends soon after there is nothing more to do."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._at_work = False
        self._closed = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """What `fn` will return.

        Raises:
            RuntimeError: it was shut down, or the system has no thread left.
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
            # Neither what was done nor who asked for it is kept from here on.
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
        """Takes no more calls. Those that were taken are carried out unless they are cancelled; waits for none."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            if cancel_futures:
                for future, _ in self._waiting:
                    future.cancel()
                self._waiting.clear()


def on_thread(name: str, call: Callable[[], T]) -> "Future[T]":
    """What `call` will return, from a daemon thread of its own."""
    future: Future[T] = Future()
    threading.Thread(target=_settle, args=(future, call), name=name, daemon=True).start()
    return future


def at_once(call: Callable[[], T], _should_stop: Callable[[], bool]) -> "Future[T]":
    """What `call` returns, made by the calling thread: for those who wait for nothing else."""
    future: Future[T] = Future()
    _settle(future, call)
    return future


def _settle(future: "Future[T]", call: Callable[[], T]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 -- it is the asker's, who raises it
        future.set_exception(error)
    else:
        future.set_result(result)


class RWLock:
    """Readers pass together; a writer waits for those inside and goes before those that come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._writers_waiting = 0
        self._writing = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the gate together with other readers. Not to be taken twice by one thread."""
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
        """Holds the gate alone."""
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
