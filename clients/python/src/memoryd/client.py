"""A thin client: the service's methods with keyword arguments, deadlines and typed errors.

    with connect("unix:.memoryd/memoryd.sock") as client:
        for result in client.search(query="who owns the cache?").results:
            print(result.path, result.start_line, result.snippet)

Each method takes the fields of its request as keyword arguments, or one request message.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
from google.protobuf.message import Message

from memoryd._request import request_of
from memoryd.entry_client import EntryClient
from memoryd.failure import MemorydError, Violation, typed_errors
from memoryd.tls import Tls, content
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs

__all__ = ["MemorydClient", "MemorydError", "Stream", "Tls", "Violation", "connect"]

_Event = TypeVar("_Event")

# The documented deadlines of the service, in seconds.
_SEARCH = 5.0
_GET = 2.0
_STATUS = 2.0
_STATUS_WITH_PROBE = 10.0
_FLUSH = 1.0
_APPEND = 5.0
_LIST = 2.0
_FORGET = 10.0
_CONTEXT = 2.0
_ARCHIVE = 10.0

# A proxy from the environment is for the web, not for a daemon on this machine.
_OPTIONS = (("grpc.enable_http_proxy", 0),)


def connect(
    address: str, token: str | None = None, timeout: float | None = None, *, tls: Tls | None = None
) -> "MemorydClient":
    """Returns a client of the daemon at `unix:PATH` or `HOST:PORT`. The connection is made by the first call.

    `timeout` in seconds replaces the documented deadline of each call that has one. `token` is sent as bearer token;
    without `tls` it travels in the clear, which is for this machine alone.

    Raises:
        OSError: a file of `tls` cannot be read.
    """
    return MemorydClient(_channel(address, tls), token=token, timeout=timeout)


def _channel(address: str, tls: Tls | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(content(tls.ca_file), content(tls.key_file), content(tls.cert_file))
    name = (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()
    return grpc.secure_channel(address, credentials, options=(*_OPTIONS, *name))


class MemorydClient:
    """Calls one daemon; may be shared by threads. Every method raises `MemorydError` for a status that is not OK.

    `entries` has the calls that concern entries.
    """

    def __init__(self, channel: grpc.Channel, token: str | None = None, timeout: float | None = None) -> None:
        self._channel = channel
        self._stub: Any = stubs.MemoryServiceStub(channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._timeout = timeout
        self.entries = EntryClient(channel, self._call)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls under way end as cancelled."""
        self._channel.close()

    def search(
        self, request: pb.MemorySearchRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.MemorySearchResponse:
        """Finds the parts of an agent's memory that answer `query`, best first."""
        message = request_of(pb.MemorySearchRequest, request, fields)
        return self._call(self._stub.MemorySearch, message, _SEARCH, timeout)  # type: ignore[no-any-return]

    def get(
        self, request: pb.MemoryGetRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.MemoryGetResponse:
        """Reads a line range of the memory file `path`."""
        message = request_of(pb.MemoryGetRequest, request, fields)
        return self._call(self._stub.MemoryGet, message, _GET, timeout)  # type: ignore[no-any-return]

    def status(
        self, request: pb.StatusRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.StatusResponse:
        """Tells how an agent's memory is doing."""
        message = request_of(pb.StatusRequest, request, fields)
        documented = _STATUS_WITH_PROBE if message.probe else _STATUS
        return self._call(self._stub.Status, message, documented, timeout)  # type: ignore[no-any-return]

    def sync(
        self, request: pb.SyncRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> "Stream[pb.SyncResponse]":
        """Starts a sync run, or joins the one under way, and returns its events; the last one is `completed`."""
        return self._follow(self._stub.Sync, request_of(pb.SyncRequest, request, fields), timeout)

    def watch(
        self, request: pb.WatchIndexRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> "Stream[pb.WatchIndexResponse]":
        """Returns an agent's index state at once and after each change, until the stream is closed."""
        return self._follow(self._stub.WatchIndex, request_of(pb.WatchIndexRequest, request, fields), timeout)

    def flush_decision(
        self, request: pb.FlushDecisionRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.FlushDecisionResponse:
        """Decides whether the agent should write lasting notes before its context is compacted."""
        message = request_of(pb.FlushDecisionRequest, request, fields)
        return self._call(self._stub.FlushDecision, message, _FLUSH, timeout)  # type: ignore[no-any-return]

    def append(
        self, request: pb.MemoryAppendRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.MemoryAppendResponse:
        """Appends `text` to today's log, or to `path`; with an `idempotency_key`, trying again is safe."""
        message = request_of(pb.MemoryAppendRequest, request, fields)
        return self._call(self._stub.MemoryAppend, message, _APPEND, timeout)  # type: ignore[no-any-return]

    def forget(
        self, request: pb.MemoryForgetRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.MemoryForgetResponse:
        """Removes the file `path`, the session `session_id` or the `text` from every derived store, and counts it."""
        message = request_of(pb.MemoryForgetRequest, request, fields)
        return self._call(self._stub.MemoryForget, message, _FORGET, timeout)  # type: ignore[no-any-return]

    def session_context(
        self, request: pb.SessionContextRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.SessionContextResponse:
        """Tells which files a session loads at its start, with their text, and how its agent recalls."""
        message = request_of(pb.SessionContextRequest, request, fields)
        return self._call(self._stub.SessionContext, message, _CONTEXT, timeout)  # type: ignore[no-any-return]

    def session_archive(
        self, request: pb.SessionArchiveRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.SessionArchiveResponse:
        """Turns the last messages of `transcript` into a memory file; trying again is safe."""
        message = request_of(pb.SessionArchiveRequest, request, fields)
        return self._call(self._stub.SessionArchive, message, _ARCHIVE, timeout)  # type: ignore[no-any-return]

    def list_agents(
        self, request: pb.ListAgentsRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.ListAgentsResponse:
        """Lists a page of the agents that the caller may use."""
        message = request_of(pb.ListAgentsRequest, request, fields)
        return self._call(self._stub.ListAgents, message, _LIST, timeout)  # type: ignore[no-any-return]

    def list_files(
        self, request: pb.ListFilesRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.ListFilesResponse:
        """Lists a page of an agent's memory files."""
        message = request_of(pb.ListFilesRequest, request, fields)
        return self._call(self._stub.ListFiles, message, _LIST, timeout)  # type: ignore[no-any-return]

    def _call(self, method: Any, message: Message, documented: float, timeout: float | None) -> Any:
        seconds = next(value for value in (timeout, self._timeout, documented) if value is not None)
        with typed_errors():
            return method(message, timeout=seconds, metadata=self._metadata)

    def _follow(self, method: Any, message: Message, timeout: float | None) -> "Stream[Any]":
        with typed_errors():
            return Stream(method(message, timeout=timeout, metadata=self._metadata))


class Stream(Generic[_Event]):
    """The events of a streaming call, as they come. Leaving its `with` block, or `close`, ends the call."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[_Event]:
        return self

    def __next__(self) -> _Event:
        with typed_errors():
            return next(self._call)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the call; a sync run goes on unless its request asked otherwise."""
        self._call.cancel()
