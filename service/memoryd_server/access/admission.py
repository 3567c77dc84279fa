"""Credentials of a running daemon, and limits on its calls and streams; independent of the transport.

`Credentials` keeps tokens and certificates in line with their files. `RateLimiter` bounds concurrent calls and streams
and the bytes of unread replies, in total and per token, and the rate of calls per token. A refusal says when to retry.
Calls on the Unix socket count only against the totals. `confine` limits a request to the agents of its caller.
"""

import asyncio
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from memoryd_server.access.certificates import Certificates
from memoryd_server.access.grants import DEFAULT_AGENT, Grant
from memoryd_server.access.tokens import TokenVerifier
from memoryd_server.background_tasks import BackgroundTasks, TaskFailures
from memoryd_server.errors import AgentForbidden, TooManyRequests

# Each call on TCP checks the token files and each handshake checks the certificate files. This interval is for the log
# and for Status while there are no calls.
LOOK_SECONDS = 5.0


class _Look:
    """One read of the token files. Callers share it until it begins; later callers need another one."""

    end: asyncio.Future[None]

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self.has_begun = False

    def run(self) -> None:
        """Read the files, on the thread of the executor."""
        self.has_begun = True
        self._refresh()


class Credentials:
    """The token verifier and, with TLS, the certificates. Files are never read on the event loop's thread."""

    def __init__(
        self,
        keyring: TokenVerifier,
        certificates: Certificates | None,
        *,
        look_seconds: float | None = None,
        failures: TaskFailures | None = None,
    ) -> None:
        self.certificates = certificates
        self._keyring = keyring
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="access")
        self._look_seconds = LOOK_SECONDS if look_seconds is None else look_seconds
        self._tasks = BackgroundTasks(failures)
        self._look: _Look | None = None

    def start(self) -> None:
        """Check the files at intervals until `stop`. The second call has no effect."""
        if self._tasks.running:
            return
        self._look_at_intervals(self.refresh_tokens, "token file check")
        if self.certificates is not None:
            self._look_at_intervals(partial(self._on_thread, self.certificates.current), "certificate check")

    def _look_at_intervals(self, look: Callable[[], Awaitable[object]], name: str) -> None:
        seconds = self._look_seconds
        self._tasks.repeat(name, look, interval_seconds=seconds, delay_seconds=seconds)

    async def _on_thread(self, work: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of a new connection; None without TLS.

        Raises:
            OSError: the certificates could not be loaded.
        """
        if self.certificates is None:
            return None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.certificates.context)

    async def stop(self) -> None:
        """Stop the periodic checks and their thread."""
        await self._tasks.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def refresh_tokens(self) -> None:
        """Return when the tokens in memory match the files.

        Callers share a read that has not begun, so that many concurrent calls do not build up a queue of reads.
        """
        look = self._look
        if look is None or look.has_begun:
            look = self._look = _Look(self._keyring.refresh)
            look.end = asyncio.get_running_loop().run_in_executor(self._thread, look.run)
        await asyncio.shield(look.end)

    def grant(self, token: bytes) -> Grant | None:
        """Return the grant of a token as of the last read of the files; None if the token is unknown or has expired."""
        return self._keyring.grant(token)

    def problems(self) -> tuple[str, ...]:
        """Return which credential files are not used and why, for the operator."""
        problems = (self._keyring.problem, "" if self.certificates is None else self.certificates.problem)
        return tuple(problem for problem in problems if problem)


# The bucket of a token holds the calls of this many seconds, which an idle token may make in one burst.
BURST_SECONDS = 2.0

# A place becomes free when a call ends, and a reply is sent when its client reads it. Neither can be predicted.
_PLACE_RETRY_SECONDS = 0.5
_STREAM_RETRY_SECONDS = 5.0

# In calls. Lets a caller in that waits exactly as long as the refusal says, in spite of rounding.
_ROUNDING = 1e-6

# Above this number of shares, those of idle tokens are removed.
_MAX_SHARES = 1_024


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits on concurrent calls and streams, unread replies, and calls per second, named as in `memoryd.limits`.

    A rate of 0 means no limit on the rate.
    """

    max_concurrent_calls: int = 256
    max_concurrent_streams: int = 2_048
    token_concurrent_calls: int = 64
    token_concurrent_streams: int = 512
    token_calls_per_second: float = 500.0
    max_unread_reply_bytes: int = 64 * 2**20
    token_unread_reply_bytes: int = 16 * 2**20
    reply_seconds: float = 60.0
    stream_reply_seconds: float = 300.0


class _Share:
    """The calls and streams that one token has in progress, the bytes of its unread replies, and its token bucket."""

    def __init__(self, now: float, tokens: float) -> None:
        self.calls = 0
        self.streams = 0
        self.reply_bytes = 0
        self._left = tokens
        self._filled_at = now

    def wait(self, rate: float, now: float) -> float:
        """Take one call from the bucket and return 0, or return the seconds until a call is available, in whole ms."""
        most = max(1.0, rate * BURST_SECONDS)
        self._left = min(most, self._left + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._left < 1.0 - _ROUNDING:
            return math.ceil((1.0 - self._left) / rate * 1000) / 1000
        self._left -= 1.0
        return 0.0

    def is_idle(self, now: float) -> bool:
        """Return whether the share can be removed without effect on the limits."""
        return not (self.calls or self.streams or self.reply_bytes) and now - self._filled_at > BURST_SECONDS


class RateLimiter:
    """Counts calls and streams in progress and the bytes of their unread replies, and enforces the limits.

    Use it only on the event loop's thread. `limits` may be replaced at any time. `begun` is the number of calls and
    streams since the start. Calls about the health do not count in it.
    """

    def __init__(
        self, limits: CallLimits, now: Callable[[], float] = time.monotonic, *, max_idle_shares: int = _MAX_SHARES
    ) -> None:
        self.limits = limits
        self._max_idle_shares = max_idle_shares
        self.calls = 0
        self.streams = 0
        self.begun = 0
        self.reply_bytes = 0
        self._now = now
        self._shares: dict[str, _Share] = {}

    @contextmanager
    def call(self, grant: Grant) -> Iterator[None]:
        """Hold a place among the calls until the block ends.

        Raises:
            TooManyRequests: there is no free place, the caller's token exceeds its rate, or too many bytes of replies
                are unread.
        """
        share = self._take_call(grant)
        self._refuse_unread(share, 0)
        _refuse_above(self.calls, self.limits.max_concurrent_calls, "calls", "maxConcurrentCalls")
        if share is not None:
            _refuse_above(share.calls, self.limits.token_concurrent_calls, "calls", "tokenConcurrentCalls")
            share.calls += 1
        self.calls += 1
        self.begun += 1
        try:
            yield
        finally:
            self.calls -= 1
            if share is not None:
                share.calls -= 1

    @contextmanager
    def stream(self, grant: Grant, *, about_health: bool) -> Iterator[None]:
        """Hold a place among the streams until the block ends; a health watch counts only against its token's streams.

        Raises:
            TooManyRequests: there is no free place, the caller's token exceeds its rate, or too many bytes of replies
                are unread.
        """
        share = self._take_call(grant)
        if not about_health:
            self._refuse_unread(share, 0)
            _refuse_above(self.streams, self.limits.max_concurrent_streams, "streams", "maxConcurrentStreams")
        with self._hold_stream(share):
            self.streams += not about_health
            self.begun += not about_health
            try:
                yield
            finally:
                self.streams -= not about_health

    @contextmanager
    def token_place(self, grant: Grant) -> Iterator[None]:
        """Hold a place among the streams of the caller's token, without a limit on the rate.

        Health calls hold no other place, so that they are served when all places are taken. Requests over HTTP hold
        none, because the calls that they make count themselves.

        Raises:
            TooManyRequests: the token has no free place.
        """
        with self._hold_stream(self._share_of(grant)):
            yield

    @contextmanager
    def reply(self, grant: Grant, size: int, *, refusable: bool) -> Iterator[None]:
        """Count the `size` bytes of a reply until the block ends, that is, until the reply is sent.

        Raises:
            TooManyRequests: the reply is `refusable`, and it would exceed a limit on the bytes of unread replies. A
                reply that is the only one is never refused.
        """
        share = self._share_of(grant)
        if refusable:
            self._refuse_unread(share, size)
        self.reply_bytes += size
        if share is not None:
            share.reply_bytes += size
        try:
            yield
        finally:
            self.reply_bytes -= size
            if share is not None:
                share.reply_bytes -= size

    def _refuse_unread(self, share: _Share | None, size: int) -> None:
        """Refuse a reply of `size` bytes, or with a size of 0, refuse a call while a limit is reached."""
        if share is not None:
            limit = self.limits.token_unread_reply_bytes
            _refuse_bytes(share.reply_bytes, size, limit, " of this token", "tokenUnreadReplyBytes")
        _refuse_bytes(self.reply_bytes, size, self.limits.max_unread_reply_bytes, "", "maxUnreadReplyBytes")

    @contextmanager
    def _hold_stream(self, share: _Share | None) -> Iterator[None]:
        """Hold a place among the streams of one token; do nothing without a token."""
        if share is None:
            yield
            return
        _refuse_above(share.streams, self.limits.token_concurrent_streams, "streams", "tokenConcurrentStreams")
        share.streams += 1
        try:
            yield
        finally:
            share.streams -= 1

    def _take_call(self, grant: Grant) -> _Share | None:
        """Take one call from the rate of the caller's token and return its share; None for a caller without a token."""
        share, rate = self._share_of(grant), self.limits.token_calls_per_second
        wait = share.wait(rate, self._now()) if share is not None and rate else 0.0
        if wait:
            raise TooManyRequests(
                f"this token has made more than {rate:g} calls a second; make fewer, or raise "
                "memoryd.limits.tokenCallsPerSecond",
                retry_after_seconds=wait,
                metadata={"limit": "tokenCallsPerSecond"},
            )
        return share

    def _share_of(self, grant: Grant) -> _Share | None:
        """Return the share of the caller's token; None for a caller without a token."""
        name, now = grant.share, self._now()
        if name and name not in self._shares:
            if len(self._shares) >= self._max_idle_shares:
                self._shares = {known: share for known, share in self._shares.items() if not share.is_idle(now)}
            self._shares[name] = _Share(now, max(1.0, self.limits.token_calls_per_second * BURST_SECONDS))
        return self._shares.get(name)


def _refuse_above(count: int, limit: int, what: str, key: str) -> None:
    if count < limit:
        return
    whose = " of this token" if key.startswith("token") else ""
    raise TooManyRequests(
        f"{count} {what}{whose} are in progress, and memoryd.limits.{key} allows {limit}; try again when one has ended",
        retry_after_seconds=_PLACE_RETRY_SECONDS if what == "calls" else _STREAM_RETRY_SECONDS,
        metadata={"limit": key},
    )


def _refuse_bytes(unread: int, size: int, limit: int, whose: str, key: str) -> None:
    if not unread or unread + max(size, 1) <= limit:
        return
    raise TooManyRequests(
        f"{unread:,} bytes of replies{whose} are not read yet, and memoryd.limits.{key} allows {limit:,}; read the "
        "replies of earlier calls, then try again",
        retry_after_seconds=_PLACE_RETRY_SECONDS,
        metadata={"limit": key},
    )


_MOST_SHOWN_CHARS = 64


def confine(request: Any, grant: Grant) -> None:
    """Refuse a request for an agent that the caller may not use, and replace an empty agent id with the default agent.

    Raises:
        AgentForbidden: the caller may not use the agent; its existence has not been checked.
    """
    if not grant.limited or not hasattr(request, "agent_id"):
        return
    agent_id = request.agent_id.strip().lower() or DEFAULT_AGENT
    if not grant.allows(agent_id):
        shown = agent_id[:_MOST_SHOWN_CHARS]
        raise AgentForbidden(
            f"this token does not allow the agent {shown!r}; ListAgents returns the agents that it allows",
            metadata={"agent_id": shown},
        )
    request.agent_id = agent_id
