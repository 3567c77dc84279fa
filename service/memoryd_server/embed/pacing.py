"""When to ask a remote provider again: one cooldown for all callers, and pauses that grow."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from memoryd_server.errors import EmbeddingUnavailable

RETRIES = 3
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
LONGEST_COOLDOWN_SECONDS = 300.0
"""A server that asks for more patience than this is not waited for."""

_LOOK_UP_SECONDS = 0.1

T = TypeVar("T")


class Stopped(Exception):
    """The caller wants no more."""


class Transient(Exception):
    """A failure that another try may mend; `retry_after_seconds` is what the server asked for."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits: until `deadline` (in `time.monotonic()`), and until `should_stop`."""

    deadline: float
    should_stop: Callable[[], bool]

    def left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())


class Pacer:
    """Holds the cooldown that all calls of a provider share. `jitter` gives numbers from 0 to 1. Thread-safe."""

    def __init__(self, name: str, jitter: Callable[[], float] = random.random) -> None:
        self._name = name
        self._jitter = jitter
        self._not_before = 0.0
        self._closed = threading.Event()
        self.retries = 0

    def attempt(self, call: Callable[[], T], patience: Patience) -> T:
        """What `call` returns, tried again while it raises `Transient` and the patience lasts.

        Raises:
            EmbeddingUnavailable: it did not succeed.
            Stopped: the caller wants no more.
        """
        for number in range(RETRIES + 1):
            self._wait(self._not_before - time.monotonic(), patience, "it asked for a pause")
            try:
                return call()
            except Transient as failure:
                self._pause(number, failure, patience)
        raise AssertionError("the last pause returned")

    def _pause(self, number: int, failure: Transient, patience: Patience) -> None:
        asked = failure.retry_after_seconds
        if asked is not None:
            self._not_before = max(self._not_before, time.monotonic() + asked)
        if number == RETRIES:
            raise EmbeddingUnavailable(f"{failure}; tried {RETRIES + 1} times", retry_after_seconds=asked) from failure
        self.retries += 1
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**number)
        self._wait(longest * (1 + self._jitter()) / 2 if asked is None else asked, patience, str(failure))

    def _wait(self, seconds: float, patience: Patience, why: str) -> None:
        self._check_open()
        if seconds > min(patience.left(), LONGEST_COOLDOWN_SECONDS):
            raise EmbeddingUnavailable(
                why if why.startswith(self._name) else f"{self._name}: {why}", retry_after_seconds=seconds
            )
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if patience.should_stop():
                raise Stopped
            if self._closed.wait(min(left, _LOOK_UP_SECONDS)):
                break
        self._check_open()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise EmbeddingUnavailable(f"{self._name} is closed")

    def close(self) -> None:
        """Ends all waiting."""
        self._closed.set()


def retry_after(value: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for: a number of them, or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
