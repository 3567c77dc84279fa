"""How much is taken on: calls and streams at once in all, and of each token besides, which may not call too often.

Whoever is refused is told when to try again. The owner on the Unix socket is held to the totals alone.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from memoryd_server.access import Grant
from memoryd_server.errors import TooManyRequests

# A token that was quiet may make so many seconds' worth of calls at once.
BURST_SECONDS = 2.0

# Places become free when a call ends, and nobody knows when that is.
_PLACE_RETRY_SECONDS = 0.5
_STREAM_RETRY_SECONDS = 5.0

# Of a call, so that who waits exactly as long as told is let in.
_ROUNDING = 1e-6

# So many tokens are looked after before those that have been quiet are let go.
_MOST_QUIET = 1_024


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What is allowed at once, and of a token in a second; the names of `memoryd.limits`. A rate of 0 is any."""

    max_concurrent_calls: int = 256
    max_concurrent_streams: int = 2_048
    token_concurrent_calls: int = 64
    token_concurrent_streams: int = 512
    token_calls_per_second: float = 500.0


class _Share:
    """What one token has under way, and what is left of its rate."""

    def __init__(self, now: float, tokens: float) -> None:
        self.calls = 0
        self.streams = 0
        self._left = tokens
        self._filled_at = now

    def wait(self, rate: float, now: float) -> float:
        """Takes one call from the rate; returns 0, or the seconds until there will be one again, in whole ms."""
        most = max(1.0, rate * BURST_SECONDS)
        self._left = min(most, self._left + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._left < 1.0 - _ROUNDING:
            return math.ceil((1.0 - self._left) / rate * 1000) / 1000
        self._left -= 1.0
        return 0.0

    def is_quiet(self, now: float) -> bool:
        """Whether nothing would change if it were forgotten."""
        return not (self.calls or self.streams) and now - self._filled_at > BURST_SECONDS


class Admission:
    """Counts calls in and out. On the event loop's thread alone; `limits` may be replaced at any time."""

    def __init__(self, limits: CallLimits, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.calls = 0
        self.streams = 0
        self._now = now
        self._shares: dict[str, _Share] = {}

    @contextmanager
    def call(self, grant: Grant) -> Iterator[None]:
        """Holds a place among the calls until the block ends.

        Raises:
            TooManyRequests: there is none, or the caller's token calls too often.
        """
        share = self._paced(grant)
        _refuse_above(self.calls, self.limits.max_concurrent_calls, "calls", "maxConcurrentCalls")
        if share is not None:
            _refuse_above(share.calls, self.limits.token_concurrent_calls, "calls", "tokenConcurrentCalls")
            share.calls += 1
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            if share is not None:
                share.calls -= 1

    @contextmanager
    def stream(self, grant: Grant, *, about_health: bool) -> Iterator[None]:
        """Holds a place among the streams likewise; a watch on the health takes none but its token's.

        Raises:
            TooManyRequests: as `call`.
        """
        share = self._paced(grant)
        if not about_health:
            _refuse_above(self.streams, self.limits.max_concurrent_streams, "streams", "maxConcurrentStreams")
        with self._stream_of(share):
            self.streams += not about_health
            try:
                yield
            finally:
                self.streams -= not about_health

    @contextmanager
    def health_call(self, grant: Grant) -> Iterator[None]:
        """Hold a place among the streams of the caller's token, without a limit on the rate.

        Calls for the health hold no other place, so that they are answered when all places are taken.

        Raises:
            TooManyRequests: the token has no place left.
        """
        with self._stream_of(self._known(grant)):
            yield

    @contextmanager
    def _stream_of(self, share: _Share | None) -> Iterator[None]:
        """Hold a place among the streams of one token, if there is a token."""
        if share is None:
            yield
            return
        _refuse_above(share.streams, self.limits.token_concurrent_streams, "streams", "tokenConcurrentStreams")
        share.streams += 1
        try:
            yield
        finally:
            share.streams -= 1

    def _paced(self, grant: Grant) -> _Share | None:
        """The share of the caller's token, from whose rate a call was taken; None for one without a token."""
        share, rate = self._known(grant), self.limits.token_calls_per_second
        wait = share.wait(rate, self._now()) if share is not None and rate else 0.0
        if wait:
            raise TooManyRequests(
                f"this token has made more than {rate:g} calls a second; make fewer, or raise "
                "memoryd.limits.tokenCallsPerSecond",
                retry_after_seconds=wait,
                metadata={"limit": "tokenCallsPerSecond"},
            )
        return share

    def _known(self, grant: Grant) -> _Share | None:
        """Return the share of the caller's token; None for a caller without one."""
        name, now = grant.share, self._now()
        if name and name not in self._shares:
            if len(self._shares) >= _MOST_QUIET:
                self._shares = {known: share for known, share in self._shares.items() if not share.is_quiet(now)}
            self._shares[name] = _Share(now, max(1.0, self.limits.token_calls_per_second * BURST_SECONDS))
        return self._shares.get(name)


def _refuse_above(count: int, limit: int, what: str, key: str) -> None:
    if count < limit:
        return
    whose = " of this token" if key.startswith("token") else ""
    raise TooManyRequests(
        f"{count} {what}{whose} are under way, and memoryd.limits.{key} allows {limit}; try again when one has ended",
        retry_after_seconds=_PLACE_RETRY_SECONDS if what == "calls" else _STREAM_RETRY_SECONDS,
        metadata={"limit": key},
    )
