"""Who is let in, and what they may use."""

from typing import Any

from memoryd_server.access import DEFAULT_AGENT, EVERYTHING, AccessFiles, Grant
from memoryd_server.errors import AgentForbidden, ShuttingDown, TokenInvalid, TokenMissing
from memoryd_server.rpc.admission import Admission, CallLimits
from memoryd_server.rpc.grpc_types import Context

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
        self._stopping = False

    def close(self) -> None:
        """Lets no further call in but those that ask for the daemon's health."""
        self._stopping = True

    async def admit(self, context: Context, *, about_health: bool) -> Grant:
        """Lets a call in or refuses it. Calls that ask for the health are let in while the daemon stops.

        Raises:
            ShuttingDown, TokenMissing, TokenInvalid: why it is refused.
        """
        if self._stopping and not about_health:
            raise shutting_down()
        return await self.identify(context)

    async def identify(self, context: Context) -> Grant:
        """What the caller may use at this moment, by the tokens' files as they are now.

        Raises:
            TokenMissing, TokenInvalid: the caller is nobody we know.
        """
        if not asks_for_token(context):
            return EVERYTHING
        token = _presented(context)
        await self._access.refresh_tokens()
        return self._granted(token)

    def grant_of(self, context: Context) -> Grant:
        """Return what the caller may use, by the tokens as they were last read.

        Raises:
            TokenMissing, TokenInvalid: the call has no token, or one that is not valid.
        """
        return self._granted(_presented(context)) if asks_for_token(context) else EVERYTHING

    def _granted(self, token: bytes) -> Grant:
        grant = self._access.grant(token)
        if grant is None:
            raise _not_ours()
        return grant


def _presented(context: Context) -> bytes:
    """Return the bearer token of a call.

    Raises:
        TokenMissing, TokenInvalid: there is none, or the authorization has another scheme.
    """
    authorization = dict(context.invocation_metadata() or ()).get("authorization")
    if not authorization:
        raise TokenMissing('this listener asks for a token; send the metadata "authorization: Bearer <token>"')
    given = authorization.encode() if isinstance(authorization, str) else authorization
    scheme, _, token = given.partition(b" ")
    if scheme.lower() != b"bearer":
        raise _not_ours()
    return token.strip()


def _not_ours() -> TokenInvalid:
    return TokenInvalid("the bearer token is not, or no longer, one of this daemon's")


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


def shutting_down() -> ShuttingDown:
    """Return the error of calls that come, or are still open, while the daemon stops."""
    return ShuttingDown("the daemon is stopping; try again when it is back", retry_after_seconds=5.0)
