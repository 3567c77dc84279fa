"""Detection of changed memory files, for the subscriptions of clients.

One `FileWatch` per agent and token follows the agent's index with WatchIndex, while there are subscribers. After each
change of the index, it lists the files and compares their times and sizes with the previous list. It publishes the
changes on a subscription bus of the `mcp` package, from which `mcp_subscriptions` sends them to clients.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from memoryd_server.background_tasks import BackgroundTasks
from memoryd_server.errors import (
    AgentForbidden,
    AgentNotFound,
    FieldViolation,
    InvalidRequest,
    MemorydError,
    TokenInvalid,
    TokenMissing,
)
from memoryd_server.http.mcp_calls import McpCalls, SessionOwner
from memoryd_server.http.mcp_uris import make_uri, read_uri

MOST_FILES = 10_000
"""How many files of an agent are compared, in the order of their paths. Changes of further files are not reported."""
MOST_URIS = 256
"""How many files one stream or session can subscribe to."""
MOST_STREAMS = 64
"""How many streams and sessions can follow the files of one agent with one token."""
MOST_WATCHES = 256
"""How many pairs of an agent and a token are followed."""

_PAGE_SIZE = 1_000
_MOST_BUFFERED_EVENTS = 1_024
_HEARTBEAT = "60s"
# After a listing, the next one starts no earlier, and the listings take at most a twentieth of the time.
PAUSE_SECONDS = 1.0
_PAUSE_PER_LISTING = 20.0
# After an error, the next attempt starts after this number of pauses.
_RETRY_PAUSES = 5
_FINAL_ERRORS = (TokenInvalid, TokenMissing, AgentForbidden, AgentNotFound)

_State = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WatchKey:
    """What a watch is for: the caller's token, whose rights it has, and the agent."""

    token: bytes | None
    agent_id: str


class FileWatch:
    """Follows the files of one agent on behalf of one caller.

    `bus` has the events, and `streams` serves subscriptions/listen. `ended` is set when the caller may not follow the
    files any more.
    """

    def __init__(self, calls: McpCalls, owner: SessionOwner, pause_seconds: float) -> None:
        self.owner = owner
        self.bus = InMemorySubscriptionBus()
        self.streams = ListenHandler(
            self.bus, max_subscriptions=MOST_STREAMS, max_buffered_events=_MOST_BUFFERED_EVENTS
        )
        self.ended = asyncio.Event()
        self.users = 0
        self.task: asyncio.Task[Any] | None = None
        self._calls = calls
        self._pause_seconds = pause_seconds
        self._files: Mapping[str, _State] = {}
        self._uris: dict[str, Counter[str]] = {}
        self._seen: tuple[Any, ...] = ()

    @asynccontextmanager
    async def named(self, uris: Mapping[str, str]) -> AsyncIterator[None]:
        """Publish changes of files, by path, also under these URIs while the block runs."""
        for uri, path in uris.items():
            self._uris.setdefault(path, Counter())[uri] += 1
        try:
            yield
        finally:
            for uri, path in uris.items():
                self._uris[path][uri] -= 1
                if not +self._uris[path]:
                    del self._uris[path]

    async def start(self) -> None:
        """Read the list of files with which the first change is compared.

        Raises:
            MemorydError: as ListFiles.
        """
        self._files = await self._list()

    async def follow(self) -> None:
        """Publish changes until the stream of the index ends, and wait before the next attempt."""
        self._seen = ()
        try:
            request = {"agentId": self.owner.agent_id, "heartbeatInterval": _HEARTBEAT}
            updates = self._calls.local.stream("WatchIndex", request, self.owner.caller)
            async with aclosing(updates):
                async for update in updates:
                    state = tuple(update.get(name) for name in ("indexRevision", "dirty", "pendingFiles"))
                    if state != self._seen:
                        self._seen = state
                        await self._compare()
        except _FINAL_ERRORS:
            self.end()
        except MemorydError as error:
            await asyncio.sleep(max(error.retry_after_seconds or 0.0, self._pause_seconds * _RETRY_PAUSES))
        if self.ended.is_set():
            await asyncio.Event().wait()

    def end(self) -> None:
        """End all streams, with their last message."""
        self.ended.set()
        self.streams.close()

    async def _compare(self) -> None:
        began = time.monotonic()
        files = await self._list()
        before, self._files = self._files, files
        for path in before.keys() | files.keys():
            if before.get(path) != files.get(path):
                for uri in {make_uri(self.owner.agent_id, path), *self._uris.get(path, ())}:
                    await self.bus.publish(ResourceUpdated(uri))
        if before.keys() != files.keys():
            await self.bus.publish(ResourcesListChanged())
        await asyncio.sleep(max(self._pause_seconds, (time.monotonic() - began) * _PAUSE_PER_LISTING))

    async def _list(self) -> Mapping[str, _State]:
        found: dict[str, _State] = {}
        token = ""
        while len(found) < MOST_FILES:
            page = await self._calls.files(self.owner, token, _PAGE_SIZE)
            found |= {file["path"]: (file.get("modifiedTime", ""), file.get("sizeBytes", "")) for file in page.files}
            token = page.next_token
            if not token:
                break
        return found


class FileWatches:
    """The watches in use. A watch starts with its first user and ends with its last one."""

    def __init__(self, calls: McpCalls, tasks: BackgroundTasks, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._calls = calls
        self._tasks = tasks
        self._pause_seconds = pause_seconds
        self._watches: dict[WatchKey, FileWatch] = {}
        self._closed = False

    @property
    def running(self) -> int:
        """The number of watches in use."""
        return len(self._watches)

    @asynccontextmanager
    async def use(self, owner: SessionOwner) -> AsyncIterator[FileWatch]:
        """Yield the watch for the owner, whose agent must be named. Changes after this moment are reported.

        Raises:
            MCPError: there are too many subscribers.
            MemorydError: as ListFiles.
        """
        watch = await self._started(owner)
        watch.users += 1
        try:
            yield watch
        finally:
            watch.users -= 1
            if not watch.users:
                self._stop(watch)

    async def _started(self, owner: SessionOwner) -> FileWatch:
        key = WatchKey(owner.caller.token, owner.agent_id)
        watch = self._current(key)
        if watch is None:
            self._refuse_if_closed()
            if len(self._watches) >= MOST_WATCHES:
                raise MCPError(types.INTERNAL_ERROR, "there are too many subscriptions in this daemon; try again later")
            new = FileWatch(self._calls, owner, self._pause_seconds)
            await new.start()
            self._refuse_if_closed()
            watch = self._current(key)
        if watch is None:
            watch = self._watches[key] = new
            pause_seconds = self._pause_seconds * _RETRY_PAUSES
            watch.task = self._tasks.repeat("MCP file watch", watch.follow, fault_pause_seconds=pause_seconds)
        if watch.users >= MOST_STREAMS:
            raise MCPError(
                types.INTERNAL_ERROR, f"{MOST_STREAMS} sessions with this token follow this agent, the most allowed"
            )
        return watch

    def _current(self, key: WatchKey) -> FileWatch | None:
        watch = self._watches.get(key)
        return None if watch is None or watch.ended.is_set() else watch

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise MCPError(types.INTERNAL_ERROR, "the daemon is stopping; subscribe again after its restart")

    def _stop(self, watch: FileWatch) -> None:
        key = WatchKey(watch.owner.caller.token, watch.owner.agent_id)
        if self._watches.get(key) is watch:
            del self._watches[key]
        if watch.task is not None:
            watch.task.cancel()

    def close(self) -> None:
        """End all streams, and refuse further ones."""
        self._closed = True
        for watch in self._watches.values():
            watch.end()


def watched_paths(uris: list[str], owner: SessionOwner) -> dict[str, str]:
    """Return the paths of the files that these URIs name, by URI.

    Raises:
        InvalidRequest: there are too many, or one of them is not a file of the owner's agent.
    """
    if len(uris) > MOST_URIS:
        raise InvalidRequest([FieldViolation("resourceSubscriptions", f"has more than {MOST_URIS} URIs")])
    names = {uri: read_uri(uri) for uri in uris}
    for name in names.values():
        if name.agent_id.strip().lower() not in {"", owner.agent_id}:
            why = f"names another agent than that of this session, {owner.agent_id!r}"
            raise InvalidRequest([FieldViolation("uri", why)])
    return {uri: name.path for uri, name in names.items()}
