"""Threads that wait for embedding providers: each has its own, so that one that hangs delays no other's callers.

They are daemons, as a provider that hangs must not keep the process from ending.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from memoryd_server.embed import EmbeddingProvider
from memoryd_server.errors import EmbeddingUnavailable

THREADS_A_PROVIDER = 8

_P = ParamSpec("_P")
_T = TypeVar("_T")


class EmbedThreads:
    """Hands out one executor a provider; agents that share a provider share its threads. Thread-safe.

    An executor starts its threads one by one, when there is something to wait for.
    """

    def __init__(self, each: int = THREADS_A_PROVIDER) -> None:
        self._each = each
        self._lock = threading.Lock()
        self._executors: dict[EmbeddingProvider, _DaemonThreads] = {}

    def of(self, provider: EmbeddingProvider) -> Executor:
        """The threads of this provider."""
        with self._lock:
            threads = self._executors.get(provider)
            if threads is None:
                name = f"embed-{len(self._executors)}"
                threads = self._executors[provider] = _DaemonThreads(self._each, name)
            return threads

    def shutdown(self) -> None:
        """Takes no more calls; who waits for one has `EmbeddingUnavailable` at once."""
        with self._lock:
            for threads in self._executors.values():
                threads.shutdown()


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
