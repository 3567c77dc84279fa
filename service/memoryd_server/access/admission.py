"""Authorizer with its RateLimiter; knows no transport.

Tokens and certificates of a running daemon, kept in line with their files.

How much is taken on: calls and streams at once in all, and of each token besides, which may not call too often.

Whoever is refused is told when to try again. The owner on the Unix socket is held to the totals alone.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from memoryd_server.access.certificates import Certificates
from memoryd_server.access.tokens import DEFAULT_AGENT, Grant, TokenVerifier
from memoryd_server.background_tasks import ReportedErrors, repeat
from memoryd_server.errors import AgentForbidden, TooManyRequests

# Each call on TCP looks at the tokens by itself, and each handshake at the certificates. This look is for the log and
# for Status, when nobody calls.
LOOK_SECONDS = 5.0


class _Look:
    """One reading of the tokens' files, which callers share until it has begun; later callers need another one."""

    end: asyncio.Future[None]

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self.has_begun = False

    def run(self) -> None:
        """Read the files, on the thread for that."""
        self.has_begun = True
        self._refresh()


class Credentials:
    """The keyring and, where there is TLS, the certificates. No file is touched on the event loop's thread."""

    def __init__(
        self, keyring: TokenVerifier, certificates: Certificates | None, *, look_seconds: float | None = None
    ) -> None:
        self.certificates = certificates
        self._keyring = keyring
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="access")
        self._look_seconds = LOOK_SECONDS if look_seconds is None else look_seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._look: _Look | None = None

    def start(self) -> None:
        """Look at the files at intervals until `stop`."""
        self._look_at_intervals(self.refresh_tokens, "the check of the token files")
        if self.certificates is not None:
            self._look_at_intervals(
                partial(self._on_thread, self.certificates.current), "the check of the certificates"
            )

    def _look_at_intervals(self, look: Callable[[], Awaitable[object]], name: str) -> None:
        seconds = self._look_seconds
        looks = repeat(look, ReportedErrors(name), interval_seconds=seconds, delay_seconds=seconds)
        self._tasks.append(asyncio.get_running_loop().create_task(looks))

    async def _on_thread(self, work: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def stop(self) -> None:
        """End the looks and their thread."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def refresh_tokens(self) -> None:
        """Return when the tokens are those that their files hold now.

        Callers that wait for a look that has not begun share it, so that a flood of calls does not queue up.
        """
        look = self._look
        if look is None or look.has_begun:
            look = self._look = _Look(self._keyring.refresh)
            look.end = asyncio.get_running_loop().run_in_executor(self._thread, look.run)
        await asyncio.shield(look.end)

    def grant(self, token: bytes) -> Grant | None:
        """What a token opens, as the files were last read; None where it is not one of ours."""
        return self._keyring.grant(token)

    def problems(self) -> tuple[str, ...]:
        """What of the files is not used, and why; for whoever runs the daemon."""
        found = (self._keyring.problem, "" if self.certificates is None else self.certificates.problem)
        return tuple(problem for problem in found if problem)


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


class RateLimiter:
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


_MOST_SHOWN_CHARS = 64


def confine(request: Any, grant: Grant) -> None:
    """Holds a request to the agents that its caller may use, and fills in what an empty agent id means to them.

    Raises:
        AgentForbidden: the caller may not use the agent; whether it exists has not been looked at.
    """
    if not grant.limited or not hasattr(request, "agent_id"):
        return
    agent_id = request.agent_id.strip().lower() or DEFAULT_AGENT
    if not grant.allows(agent_id):
        shown = agent_id[:_MOST_SHOWN_CHARS]
        raise AgentForbidden(
            f"this token does not name the agent {shown!r}; name one that it may use, which ListAgents tells",
            metadata={"agent_id": shown},
        )
    request.agent_id = agent_id
