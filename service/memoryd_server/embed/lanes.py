"""Requests under way: a bounded number for each provider, each on a thread of its own that nobody has to wait for.

The threads are daemons, as a call that hangs must not keep the process from ending.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from memoryd_server.embed.pacing import Stopped

_LOOK_UP_SECONDS = 0.1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A request that was left to itself when its run ended; what comes of it is paid for all the same."""

    texts: tuple[str, ...]
    answer: Future[Any]


class Lanes:
    """Where the requests of indexing run, whoever makes them; questions do not come here. Thread-safe."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = threading.Semaphore(count)
        self._lock = threading.Lock()
        self._abandoned: list[Abandoned] = []

    def start(self, call: Callable[[], T], should_stop: Callable[[], bool]) -> "Future[T]":
        """What `call` will return, once a lane is free for it; `Stopped` when `should_stop` said so before that.

        A request whose run has ended keeps its lane, so that a server that hangs never holds more than these.
        """

        def take_lane() -> T:
            while not self._free.acquire(timeout=_LOOK_UP_SECONDS):
                if should_stop():
                    raise Stopped
            try:
                return call()
            finally:
                self._free.release()

        return on_thread("embedding", take_lane)

    def abandon(self, texts: tuple[str, ...], answer: "Future[Any]") -> None:
        """Leaves a request to itself; the next run asks what came of it."""
        with self._lock:
            self._abandoned.append(Abandoned(texts, answer))

    def take_abandoned(self) -> list[Abandoned]:
        """The requests that were left to themselves, each given away once."""
        with self._lock:
            taken, self._abandoned = self._abandoned, []
        return taken


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
