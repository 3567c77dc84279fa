"""Pacing of a remote provider: request rate, shared cooldown and request slots.

`Throttle` decides when a request may be sent: it limits the rate, applies one cooldown to all callers, and retries with
growing pauses. `RequestSlots` bounds the requests under way. Each runs on its own daemon thread, so that neither a
caller nor the end of the process has to wait for a request that hangs.
"""

import math
import random
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from memoryd_server.errors import EmbeddingOutage, EmbeddingUnavailable
from memoryd_server.threads import DaemonExecutor

RETRIES = 3
RATE_LIMIT_RETRIES = 5
"""Retries of a rate-limited call. A rejection while other calls succeed restarts the count."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
MAX_WAIT_SECONDS = 300.0
"""Longest wait; a server that requests a longer pause counts as unavailable."""
MAX_COOLDOWN_SECONDS = 3_600.0
"""Longest cooldown, even if the server requests a longer one."""

_POLL_SECONDS = 0.1
MAX_RETRY_AFTER_SECONDS = 86_400.0
"""Longest pause that a server can request. It is passed on to callers, so it must not be longer than they can wait."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][+-]?[0-9]{1,9})?")
# No date in the forms of HTTP has more characters.
_MAX_DATE_CHARS = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ThrottleConfig:
    """Limits of a remote provider: concurrent indexing requests, and requests per minute (0: unlimited)."""

    max_concurrent: int = 4
    requests_per_minute: int = 0
    first_pause_seconds: float = FIRST_PAUSE_SECONDS


class CallerStopped(Exception):
    """The caller cancelled the call."""


class TransientFailure(Exception):
    """A failure that a retry may resolve; `retry_after_seconds` is the pause that the server requested.

    `is_outage` is whether the failure concerns the provider as a whole, rather than possibly a single text.
    """

    def __init__(self, message: str, retry_after_seconds: float | None = None, *, is_outage: bool = True) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.is_outage = is_outage


class RateLimited(TransientFailure):
    """The server accepts no more calls for now, at least with this key."""


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """How long a caller waits: until `deadline` (in `time.monotonic()`), or until `should_stop` returns True."""

    deadline: float
    should_stop: Callable[[], bool]

    def left(self) -> float:
        """Return the seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def endless(self) -> bool:
        """Whether there is no deadline, as for indexing."""
        return self.deadline == math.inf


class Throttle:
    """Paces the calls of one provider for all callers. Thread-safe.

    At most `requests_per_minute` calls are started, evenly spaced; 0 means unlimited. A query, which has a deadline,
    does not wait for its turn; the next call without a deadline waits longer instead. `jitter` returns numbers from 0
    to 1.
    """

    def __init__(
        self,
        name: str,
        requests_per_minute: int = 0,
        jitter: Callable[[], float] = random.random,
        *,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        self._name = name
        self._first_pause_seconds, self._longest_pause_seconds = first_pause_seconds, longest_pause_seconds
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._jitter = jitter
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._next_turn = 0.0
        self._succeeded = 0
        self._closed = threading.Event()
        self.retries = 0

    def attempt(self, call: Callable[[], T], wait_limit: WaitLimit) -> T:
        """Return the result of `call`, retried while it raises `TransientFailure` and `wait_limit` allows.

        Raises:
            EmbeddingOutage: no attempt succeeded in time.
            EmbeddingUnavailable: the provider is closed, or sends no valid reply.
            CallerStopped: the caller cancelled the call.
        """
        failures = 0
        while True:
            self._take_turn(wait_limit)
            succeeded = self._succeeded
            try:
                answer = call()
            except TransientFailure as failure:
                # Rejected while other calls succeeded: the server works, so the failures start from 1 again.
                others_succeeded = isinstance(failure, RateLimited) and self._succeeded > succeeded
                failures = 1 if others_succeeded else failures + 1
                self._pause(failures, failure, wait_limit)
            else:
                with self._lock:
                    self._succeeded += 1
                return answer

    def _take_turn(self, wait_limit: WaitLimit) -> None:
        """Wait until the cooldown has ended and, for a call without a deadline, the rate allows another call."""
        while True:
            with self._lock:
                now = time.monotonic()
                cooldown = self._not_before - now
                turn = self._next_turn - now if wait_limit.endless else 0.0
                if max(cooldown, turn) <= 0:
                    self._next_turn = max(self._next_turn, now) + self._interval
                    return
            reason = "the server requested a pause" if cooldown > 0 else "the requests per minute are used up"
            self._wait(max(cooldown, turn), wait_limit, reason)

    def _pause(self, failures: int, failure: TransientFailure, wait_limit: WaitLimit) -> None:
        requested = failure.retry_after_seconds
        max_pause = min(self._longest_pause_seconds, self._first_pause_seconds * 2 ** (failures - 1))
        pause = max_pause * (1 + self._jitter()) / 2 if requested is None else requested
        limited = isinstance(failure, RateLimited)
        tries = 1 + (RATE_LIMIT_RETRIES if limited else RETRIES)
        with self._lock:
            if limited or requested is not None:
                cooldown = min(pause, MAX_COOLDOWN_SECONDS)
                self._not_before = max(self._not_before, time.monotonic() + cooldown)
            self.retries += failures < tries
        if failures >= tries:
            kind = EmbeddingOutage if failure.is_outage else EmbeddingUnavailable
            raise kind(f"{failure}; tried {failures} times", retry_after_seconds=requested) from failure
        self._wait(pause, wait_limit, str(failure))

    def _wait(self, seconds: float, wait_limit: WaitLimit, reason: str) -> None:
        self._check_open()
        if seconds > min(wait_limit.left(), MAX_WAIT_SECONDS):
            raise EmbeddingOutage(
                reason if reason.startswith(self._name) else f"{self._name}: {reason}", retry_after_seconds=seconds
            )
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if wait_limit.should_stop():
                raise CallerStopped
            if self._closed.wait(min(left, _POLL_SECONDS)):
                break
        self._check_open()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise EmbeddingUnavailable(f"{self._name} is closed")

    def close(self) -> None:
        """End all waiting."""
        self._closed.set()


def retry_after(value: str | None) -> float | None:
    """Return the pause in seconds that a `Retry-After` header requests as a number or a date.

    The pause is at most `MAX_RETRY_AFTER_SECONDS`. None if the header is missing or is neither.
    """
    if not value:
        return None
    seconds = seconds_in(value)
    if seconds is not None or len(value) > _MAX_DATE_CHARS or not value.isascii():
        return seconds
    try:
        date = parsedate_to_datetime(value)
        return _bounded((date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError, LookupError, TypeError):
        return None


def seconds_in(text: str) -> float | None:
    """Return a number of seconds from 0 to `MAX_RETRY_AFTER_SECONDS`; None if `text` is not a decimal number."""
    number = text.strip()
    return _bounded(float(number)) if _NUMBER.fullmatch(number) else None


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS)


@dataclass(frozen=True, slots=True)
class OrphanedRequest:
    """A request still under way when its run ended. Its answer is kept, because the provider charges for it anyway."""

    texts: tuple[str, ...]
    answer: Future[Any]


class RequestSlots:
    """Slots for the indexing requests of all callers; queries do not use them. Thread-safe."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._executor = DaemonExecutor(count, "embedding")
        self._lock = threading.Lock()
        self._abandoned: list[OrphanedRequest] = []

    def start(self, call: Callable[[], T], should_stop: Callable[[], bool]) -> "Future[T]":
        """Return a future of the result of `call`, which starts when a slot is free. Until then it can be cancelled.

        The future raises `CallerStopped` if `should_stop` returns True at that moment. A request whose run has ended
        keeps its slot, so a server that hangs never holds more than `count` requests.
        """

        def run() -> T:
            if should_stop():
                raise CallerStopped
            return call()

        return self._executor.submit(run)

    def abandon(self, texts: tuple[str, ...], answer: "Future[Any]") -> None:
        """Keep a request whose run has ended for the next run."""
        with self._lock:
            self._abandoned.append(OrphanedRequest(texts, answer))

    def take_abandoned(self) -> list[OrphanedRequest]:
        """Return the abandoned requests, each of them once."""
        with self._lock:
            taken, self._abandoned = self._abandoned, []
        return taken
