"""Rate, cooldown, request slots, key rotation.

When a remote provider may be asked: its rate, one cooldown for all callers, and pauses that grow.

The keys of one provider. The next one is taken when the server limits the one in use.

Requests under way: a bounded number for each provider, each on a thread of its own that nobody has to wait for.

The threads are daemons, as a call that hangs must not keep the process from ending.
"""

import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from memoryd_server.errors import EmbeddingOutage, EmbeddingUnavailable
from memoryd_server.threads import on_thread

RETRIES = 3
RATE_LIMIT_RETRIES = 5
"""How often a call is made again that was one too many; turns while others get through do not count."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
LONGEST_COOLDOWN_SECONDS = 300.0
"""A server that asks for more patience than this is not waited for."""
LONGEST_BELIEVED_SECONDS = 3_600.0
"""After so long it is asked again, whatever it said."""

_LOOK_UP_SECONDS = 0.1
# What a server asks for is passed on to callers, as a duration, which has bounds.
_MOST_ASKED_SECONDS = 100_000_000_000.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ThrottleConfig:
    """How much a remote provider may be asked: requests of indexing at once, and requests a minute, 0 being any."""

    at_once: int = 4
    requests_per_minute: int = 0


class CallerStopped(Exception):
    """The caller wants no more."""


class TransientFailure(Exception):
    """A failure that another try may mend; `retry_after_seconds` is what the server asked for.

    `is_outage` is whether it concerns the provider as a whole, and not perhaps this one text.
    """

    def __init__(self, message: str, retry_after_seconds: float | None = None, *, is_outage: bool = True) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.is_outage = is_outage


class RateLimited(TransientFailure):
    """The server takes no more calls for now, at least not with this key."""


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """How long a caller waits: until `deadline` (in `time.monotonic()`), and until `should_stop`."""

    deadline: float
    should_stop: Callable[[], bool]

    def left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def endless(self) -> bool:
        """Whether there is no deadline, as when indexing."""
        return self.deadline == math.inf


class Throttle:
    """Paces the calls of one provider, whoever makes them. Thread-safe.

    At most `requests_per_minute` are begun, evenly spread, 0 being any number; a question, which has a deadline, does
    not wait for its turn, and the next of the others waits the longer. `jitter` gives numbers from 0 to 1.
    """

    def __init__(self, name: str, requests_per_minute: int = 0, jitter: Callable[[], float] = random.random) -> None:
        self._name = name
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._jitter = jitter
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._next_turn = 0.0
        self._passed = 0
        self._closed = threading.Event()
        self.retries = 0

    def attempt(self, call: Callable[[], T], patience: WaitLimit) -> T:
        """What `call` returns, tried again while it raises `TransientFailure` and the patience lasts.

        Raises:
            EmbeddingOutage: it did not succeed.
            EmbeddingUnavailable: the provider is closed, or sends no valid reply.
            CallerStopped: the caller wants no more.
        """
        failures = 0
        while True:
            self._take_turn(patience)
            passed = self._passed
            try:
                answer = call()
            except TransientFailure as failure:
                # Turned away while others got through: it is the next who has to wait.
                overtaken = isinstance(failure, RateLimited) and self._passed > passed
                failures = 1 if overtaken else failures + 1
                self._pause(failures, failure, patience)
            else:
                with self._lock:
                    self._passed += 1
                return answer

    def _take_turn(self, patience: WaitLimit) -> None:
        """Returns when the cooldown is over and, for whoever has time, the rate allows one more."""
        while True:
            with self._lock:
                now = time.monotonic()
                cooldown = self._not_before - now
                turn = self._next_turn - now if patience.endless else 0.0
                if max(cooldown, turn) <= 0:
                    self._next_turn = max(self._next_turn, now) + self._interval
                    return
            why = "it asked for a pause" if cooldown > 0 else "the requests per minute are used up"
            self._wait(max(cooldown, turn), patience, why)

    def _pause(self, failures: int, failure: TransientFailure, patience: WaitLimit) -> None:
        asked = failure.retry_after_seconds
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (failures - 1))
        pause = longest * (1 + self._jitter()) / 2 if asked is None else asked
        limited = isinstance(failure, RateLimited)
        tries = 1 + (RATE_LIMIT_RETRIES if limited else RETRIES)
        with self._lock:
            if limited or asked is not None:
                rest = min(pause, LONGEST_BELIEVED_SECONDS)
                self._not_before = max(self._not_before, time.monotonic() + rest)
            self.retries += failures < tries
        if failures >= tries:
            kind = EmbeddingOutage if failure.is_outage else EmbeddingUnavailable
            raise kind(f"{failure}; tried {failures} times", retry_after_seconds=asked) from failure
        self._wait(pause, patience, str(failure))

    def _wait(self, seconds: float, patience: WaitLimit, why: str) -> None:
        self._check_open()
        if seconds > min(patience.left(), LONGEST_COOLDOWN_SECONDS):
            raise EmbeddingOutage(
                why if why.startswith(self._name) else f"{self._name}: {why}", retry_after_seconds=seconds
            )
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if patience.should_stop():
                raise CallerStopped
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
    """Seconds that a `Retry-After` header asks for: a number of them, or a date. At most 3,000 years."""
    if not value:
        return None
    try:
        seconds = float(value)
        return min(max(0.0, seconds), _MOST_ASKED_SECONDS) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(value)
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _MOST_ASKED_SECONDS)


REST_SECONDS = 60.0
"""How long a key rests when the server does not say."""
QUOTA_REST_SECONDS = 3600.0
"""How long a key rests whose quota is used up."""

_SHORTEST_REST_SECONDS = 1.0

Header = Mapping[str, str]


class ApiKeyPool:
    """The headers that carry the keys, in order of preference; without a key, one without headers. Thread-safe."""

    def __init__(self, headers: Sequence[Header]) -> None:
        self._headers: Sequence[Header] = headers or ({},)
        self._lock = threading.Lock()
        self._rests_until = [0.0] * len(self._headers)

    def __len__(self) -> int:
        return len(self._headers)

    def current(self) -> int:
        """The number of the first key that does not rest, else of the one that rests no longer than the others."""
        now = time.monotonic()
        with self._lock:
            return min(range(len(self)), key=lambda number: max(now, self._rests_until[number]))

    def header(self, number: int) -> Header:
        """What carries the key of this number."""
        return self._headers[number]

    def rest(self, number: int, seconds: float) -> bool:
        """Lets a key rest. Whether another one can be used now."""
        now = time.monotonic()
        with self._lock:
            self._rests_until[number] = now + max(seconds, _SHORTEST_REST_SECONDS)
            return min(self._rests_until) <= now


@dataclass(frozen=True, slots=True)
class OrphanedRequest:
    """A request that was left to itself when its run ended; what comes of it is paid for all the same."""

    texts: tuple[str, ...]
    answer: Future[Any]


class RequestSlots:
    """Where the requests of indexing run, whoever makes them; questions do not come here. Thread-safe."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = threading.Semaphore(count)
        self._lock = threading.Lock()
        self._abandoned: list[OrphanedRequest] = []

    def start(self, call: Callable[[], T], should_stop: Callable[[], bool]) -> "Future[T]":
        """What `call` will return, once a lane is free for it; `CallerStopped` when `should_stop` said so before that.

        A request whose run has ended keeps its lane, so that a server that hangs never holds more than these.
        """

        def take_lane() -> T:
            while not self._free.acquire(timeout=_LOOK_UP_SECONDS):
                if should_stop():
                    raise CallerStopped
            try:
                return call()
            finally:
                self._free.release()

        return on_thread("embedding", take_lane)

    def abandon(self, texts: tuple[str, ...], answer: "Future[Any]") -> None:
        """Leaves a request to itself; the next run asks what came of it."""
        with self._lock:
            self._abandoned.append(OrphanedRequest(texts, answer))

    def take_abandoned(self) -> list[OrphanedRequest]:
        """The requests that were left to themselves, each given away once."""
        with self._lock:
            taken, self._abandoned = self._abandoned, []
        return taken
