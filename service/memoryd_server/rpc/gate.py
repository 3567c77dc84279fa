"""Who is let in, and what they may use."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from memoryd_server.access import DEFAULT_AGENT, EVERYTHING, AccessFiles, Grant
from memoryd_server.errors import AgentForbidden, ShuttingDown, TokenInvalid, TokenMissing
from memoryd_server.rpc.admission import Admission, CallLimits
from memoryd_server.rpc.grpc_types import Context

# A watch on the daemon's health gets this long to tell that it is stopping.
LAST_WORD_SECONDS = 0.2

# A stream on which nothing happens ends this long after its token was revoked, at the latest.
RECHECK_SECONDS = 2.0

_MOST_SHOWN_CHARS = 64


class Gate:
    """Which calls are let in. Tokens are asked for on TCP only; a caller on the Unix socket is the owner.

    `admission` says how many.
    """

    def __init__(self, access: AccessFiles, limits: CallLimits) -> None:
        self._access = access
        self.admission = Admission(limits)
        self._stopping = asyncio.Event()

    def close(self) -> None:
        """Lets no further call in but those that ask for the daemon's health."""
        self._stopping.set()

    async def until_closed(self, watch: Awaitable[None], context: Context) -> None:
        """Carries out what has no end of its own, a watch on the daemon's health, until the gate closes.

        Raises:
            ShuttingDown: the gate has closed, and the watch has had the time to say so.
            TokenInvalid: the caller's token is no longer good.
        """
        work, closed = asyncio.ensure_future(watch), asyncio.ensure_future(self._stopping.wait())
        try:
            while not work.done() and not closed.done():
                await self.identify(context)
                await asyncio.wait((work, closed), timeout=RECHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((work,), timeout=LAST_WORD_SECONDS)
            if not work.done():
                raise _shutting_down()
            work.result()
        finally:
            work.cancel()
            closed.cancel()

    async def admit(self, context: Context, *, about_health: bool) -> Grant:
        """Lets a call in or refuses it. Calls that ask for the health are let in while the daemon stops.

        Raises:
            ShuttingDown, TokenMissing, TokenInvalid: why it is refused.
        """
        if self._stopping.is_set() and not about_health:
            raise _shutting_down()
        return await self.identify(context)

    async def identify(self, context: Context) -> Grant:
        """What the caller may use at this moment, by the tokens' files as they are now.

        Raises:
            TokenMissing, TokenInvalid: the caller is nobody we know.
        """
        if not asks_for_token(context):
            return EVERYTHING
        await self._access.refresh_tokens()
        return self.grant_of(context)

    def grant_of(self, context: Context) -> Grant:
        """What the caller may use, by the tokens as they were last read.

        Raises:
            TokenMissing, TokenInvalid: the caller is nobody we know.
        """
        if not asks_for_token(context):
            return EVERYTHING
        authorization = dict(context.invocation_metadata() or ()).get("authorization")
        if not authorization:
            raise TokenMissing('this listener asks for a token; send the metadata "authorization: Bearer <token>"')
        given = authorization.encode() if isinstance(authorization, str) else authorization
        scheme, _, token = given.partition(b" ")
        grant = self._access.grant(token.strip())
        if scheme.lower() != b"bearer" or grant is None:
            raise TokenInvalid("the bearer token is not, or no longer, one of this daemon's")
        return grant


def asks_for_token(context: Context) -> bool:
    """Whether the call came in where tokens are asked for."""
    return not context.peer().startswith("unix:")


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


def _shutting_down() -> ShuttingDown:
    return ShuttingDown("the daemon is stopping; try again when it is back", retry_after_seconds=5.0)
