"""Subscriptions to changes of memory files, in all versions of MCP.

From 2026-07-28 on, the client sends a request subscriptions/listen, which stays open and carries the changes. In
earlier versions, a session subscribes to a file with resources/subscribe and gets notifications of its changes. It is
also notified of changes of the list of files, if it has read the list before.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import MemorydError
from memoryd_server.http.mcp_calls import McpCalls, McpContext, SessionOwner, owner_of
from memoryd_server.http.mcp_changes import MOST_URIS, FileWatch, FileWatches, watched_paths

_STATE = "memoryd-subscriptions"


def connection_of(context: McpContext) -> Connection:
    """Return the connection of a request, which lasts as long as its session."""
    connection: Connection = context.session._connection  # noqa: SLF001 -- the package has no public name for it
    return connection


class McpSubscriptions:
    """Answers subscriptions/listen, resources/subscribe and resources/unsubscribe."""

    def __init__(self, calls: McpCalls, watches: FileWatches, tasks: BackgroundTasks) -> None:
        self._calls = calls
        self._watches = watches
        self._tasks = tasks

    async def listen(
        self, context: McpContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Send the changes that the client asks for, until it or the daemon ends the stream.

        Raises:
            MCPError: there are too many streams.
            MemorydError: a URI is not valid, or the caller may not list the files.
        """
        owner = await self._calls.with_agent(owner_of(context))
        paths = watched_paths(list(params.notifications.resource_subscriptions or ()), owner)
        async with self._watches.use(owner) as watch, watch.named(paths):
            return await watch.streams(context, params)

    async def subscribe(self, context: McpContext, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Notify the session of changes of a file from now on.

        Raises:
            MCPError: the session has too many subscriptions.
            MemorydError: as `listen`.
        """
        session = await self._session(context)
        await session.add(params.uri)
        return types.EmptyResult()

    async def unsubscribe(self, context: McpContext, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Stop notifying the session of changes of a file."""
        session = connection_of(context).state.get(_STATE)
        if isinstance(session, SessionSubscriptions):
            await session.remove(params.uri)
        return types.EmptyResult()

    async def follow_list(self, context: McpContext) -> None:
        """Notify the session when its list of files changes, if its version of the protocol has no other way.

        A session that cannot have the notification does without.
        """
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        try:
            session = await self._session(context)
        except (MCPError, MemorydError):
            return
        session.follows_list = True

    async def _session(self, context: McpContext) -> "SessionSubscriptions":
        connection = connection_of(context)
        known = connection.state.get(_STATE)
        if isinstance(known, SessionSubscriptions) and not known.ended:
            return known
        owner = await self._calls.with_agent(owner_of(context))
        stack = AsyncExitStack()
        watch = await stack.enter_async_context(self._watches.use(owner))
        session = SessionSubscriptions(context.session, watch, owner, stack)
        other = connection.state.get(_STATE)
        if isinstance(other, SessionSubscriptions) and not other.ended:
            await stack.aclose()
            return other
        connection.state[_STATE] = session
        session.start(self._tasks)
        connection.exit_stack.push_async_callback(session.close)
        return session


class SessionSubscriptions:
    """The subscriptions of one session of an earlier version, and the task that sends it the changes.

    A change that happens again before it is sent is sent once, so that there are never more of them than subscriptions.
    """

    def __init__(self, session: Any, watch: FileWatch, owner: SessionOwner, stack: AsyncExitStack) -> None:
        self.follows_list = False
        self._session = session
        self._watch = watch
        self._owner = owner
        self._stack = stack
        self._uris: dict[str, AsyncExitStack] = {}
        self._unsent: dict[ServerEvent, None] = {}
        self._changed = asyncio.Event()
        self._sending: asyncio.Task[Any] | None = None

    @property
    def ended(self) -> bool:
        """Whether no more changes are sent."""
        return self._watch.ended.is_set()

    def start(self, tasks: BackgroundTasks) -> None:
        """Send changes until `close`."""
        self._stack.callback(self._watch.bus.subscribe(self._receive))
        self._sending = tasks.repeat("MCP notifications", self._send_next, fault_pause_seconds=1.0)

    async def add(self, uri: str) -> None:
        """Subscribe to a file.

        Raises:
            MCPError, InvalidRequest: there are too many subscriptions, or the URI is not one of a file of the agent.
        """
        if uri in self._uris:
            return
        if len(self._uris) >= MOST_URIS:
            raise MCPError(types.INVALID_PARAMS, f"this session has {MOST_URIS} subscriptions, the most allowed")
        stack = AsyncExitStack()
        paths = watched_paths([uri], self._owner)
        self._uris[uri] = stack
        await stack.enter_async_context(self._watch.named(paths))

    async def remove(self, uri: str) -> None:
        """Unsubscribe from a file."""
        stack = self._uris.pop(uri, None)
        if stack is not None:
            await stack.aclose()

    async def close(self) -> None:
        """End all subscriptions."""
        if self._sending is not None:
            self._sending.cancel()
        for uri in list(self._uris):
            await self.remove(uri)
        await self._stack.aclose()

    def _receive(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated):
            wanted = event.uri in self._uris
        else:
            wanted = isinstance(event, ResourcesListChanged) and self.follows_list
        if wanted:
            self._unsent[event] = None
            self._changed.set()

    async def _send_next(self) -> None:
        while not self._unsent:
            self._changed.clear()
            await self._changed.wait()
        event = next(iter(self._unsent))
        del self._unsent[event]
        if isinstance(event, ResourceUpdated):
            await self._session.send_resource_updated(event.uri)
        else:
            await self._session.send_resource_list_changed()
