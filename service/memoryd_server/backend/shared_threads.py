"""Threads that all agents share, and of which no agent can take all."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

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


class SharedThreads:
    """`count` threads, of which each share has `each` at most, so that one whose disk hangs leaves the others some.

    Those who wait come in turn: a share has no more than `each` calls in the common queue, whatever it was given.
    """

    def __init__(self, count: int, each: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._each = each

    def share(self) -> Executor:
        """An executor for one agent."""
        return _Share(self._pool, self._each)

    def shutdown(self) -> None:
        """Takes no more calls, cancels those that wait, and waits for none that is at work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Share(Executor):
    """Calls beyond `most` wait here, in the order in which they came."""

    def __init__(self, pool: ThreadPoolExecutor, most: int) -> None:
        self._pool = pool
        self._most = most
        self._lock = threading.Lock()
        self._given = 0
        self._waiting: deque[_Job] = deque()

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """What `fn` will return.

        Raises:
            RuntimeError: the threads were shut down.
        """
        future: Future[_T] = Future()
        job = (future, partial(fn, *args, **kwargs))
        with self._lock:
            if self._given < self._most:
                self._give(job)
                self._given += 1
            else:
                self._waiting.append(job)
        return future

    def _give(self, job: _Job) -> None:
        self._pool.submit(self._run, job).add_done_callback(partial(self._given_up, job))

    def _run(self, job: _Job) -> None:
        _carry_out(job)
        with self._lock:
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            job = self._waiting.popleft()
            try:
                return self._give(job)
            except RuntimeError:
                job[0].cancel()
        self._given -= 1
        return None

    def _given_up(self, job: _Job, given: "Future[None]") -> None:
        """Passes on that a shutdown has cancelled what it found in the common queue."""
        if not given.cancelled():
            return
        job[0].cancel()
        with self._lock:
            for future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()


LINGER_SECONDS = 0.2
"""How long a thread that has nothing to do waits for more: to start one costs more than many a call."""


class SerialThread(Executor):
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
