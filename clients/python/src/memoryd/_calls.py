"""Descriptors for the methods of a service, shared by the blocking and the asyncio client.

    class MemoryMethods:
        get = Unary("MemoryGet", pb.MemoryGetRequest, pb.MemoryGetResponse, 2.0, "Read a line range ...")

`client.get(path="...")` returns the answer if the client's class is a `Blocking`, and is awaited if it is an
`Asynchronous`. Both clients are typed, and have the same methods.
"""

import uuid
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

from google.protobuf.message import Message

from memoryd._request import request_of
from memoryd.failure import typed_errors
from memoryd.stream import AsyncStream, Stream

_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer", bound=Message)

_KEY = "idempotency_key"


class _Caller:
    """A stub of one service, and the metadata of its calls. `timeout` replaces the documented deadlines.

    `addresses` are those of the stub's channel, for error messages.
    """

    def __init__(
        self,
        stub: Any,
        metadata: tuple[tuple[str, str], ...],
        timeout: float | None,
        addresses: tuple[str, ...] = (),
    ) -> None:
        self._stub = stub
        self._metadata = metadata
        self._timeout = timeout
        self._addresses = addresses


class Blocking(_Caller):
    """A client whose methods return their answers."""


class Asynchronous(_Caller):
    """A client whose methods are awaited."""


class _Method(Generic[_Request, _Answer]):
    """A method of a service. Read from a client it is a call; read from the class it is this descriptor."""

    def __init__(self, rpc: str, request: type[_Request], answer: type[_Answer], doc: str) -> None:
        self.rpc = rpc
        self.request = request
        self.answer = answer
        self.__doc__ = doc


class Unary(_Method[_Request, _Answer]):
    """A method with one answer. `seconds` is its documented deadline, or a function of the request that returns it.

    If the request has an idempotency key and the caller sets none, a random key is set, which makes retries safe.
    """

    def __init__(
        self,
        rpc: str,
        request: type[_Request],
        answer: type[_Answer],
        seconds: float | Callable[[_Request], float],
        doc: str,
    ) -> None:
        super().__init__(rpc, request, answer, doc)
        self._seconds = seconds

    @overload
    def __get__(self, caller: None, owner: type) -> Self: ...
    @overload
    def __get__(self, caller: Blocking, owner: type) -> "UnaryCall[_Request, _Answer]": ...
    @overload
    def __get__(self, caller: Asynchronous, owner: type) -> "AsyncUnaryCall[_Request, _Answer]": ...
    def __get__(self, caller: _Caller | None, owner: type) -> Any:
        """Return the call for a blocking or asyncio client."""
        if caller is None:
            return self
        return (AsyncUnaryCall if isinstance(caller, Asynchronous) else UnaryCall)(self, caller)

    def prepare(self, given: _Request | None, fields: dict[str, Any]) -> _Request:
        """Return the request to send. A request that the caller passes is not modified.

        Raises:
            TypeError: both a request and fields are given.
        """
        message: Any = request_of(self.request, given, fields)
        if _KEY in message.DESCRIPTOR.fields_by_name and not message.idempotency_key:
            copy: Any = self.request()
            copy.CopyFrom(message)
            copy.idempotency_key = str(uuid.uuid4())
            message = copy
        return message  # type: ignore[no-any-return]

    def seconds(self, message: _Request) -> float:
        """Return the documented deadline of a request, in seconds."""
        return self._seconds(message) if callable(self._seconds) else self._seconds


class Streaming(_Method[_Request, _Answer]):
    """A method with a stream of events. It has no deadline unless the caller sets one."""

    @overload
    def __get__(self, caller: None, owner: type) -> Self: ...
    @overload
    def __get__(self, caller: Blocking, owner: type) -> "StreamCall[_Request, _Answer]": ...
    @overload
    def __get__(self, caller: Asynchronous, owner: type) -> "AsyncStreamCall[_Request, _Answer]": ...
    def __get__(self, caller: _Caller | None, owner: type) -> Any:
        """Return the call for a blocking or asyncio client."""
        if caller is None:
            return self
        return (AsyncStreamCall if isinstance(caller, Asynchronous) else StreamCall)(self, caller)


class _Call:
    def __init__(self, method: Any, caller: Any) -> None:
        self._method = method
        self._caller = caller
        self.__doc__ = method.__doc__

    @property
    def _addresses(self) -> tuple[str, ...]:
        return self._caller._addresses  # type: ignore[no-any-return]  # noqa: SLF001 -- of this module

    def _unary(self, request: Any, fields: dict[str, Any], timeout: float | None) -> Any:
        message = self._method.prepare(request, fields)
        choices = (timeout, self._caller._timeout, self._method.seconds(message))  # noqa: SLF001 -- of this module
        seconds = next(value for value in choices if value is not None)
        return self._start(message, seconds)

    def _stream(self, request: Any, fields: dict[str, Any], timeout: float | None) -> Any:
        return self._start(request_of(self._method.request, request, fields), timeout)

    def _start(self, message: Message, seconds: float | None) -> Any:
        stub, metadata = self._caller._stub, self._caller._metadata  # noqa: SLF001
        return getattr(stub, self._method.rpc)(message, timeout=seconds, metadata=metadata)


class UnaryCall(_Call, Generic[_Request, _Answer]):
    """A call that accepts the fields of its request, or one request message, and returns the answer.

    `timeout`, in seconds, replaces the deadline.

    Raises:
        MemorydError: the status is not OK.
    """

    def __call__(self, request: _Request | None = None, /, *, timeout: float | None = None, **fields: Any) -> _Answer:
        """Call the daemon."""
        with typed_errors(self._addresses):
            return self._unary(request, fields, timeout)  # type: ignore[no-any-return]


class AsyncUnaryCall(_Call, Generic[_Request, _Answer]):
    """The asyncio form of `UnaryCall`, to be awaited."""

    async def __call__(
        self,
        request: _Request | None = None,
        /,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 -- the deadline that is sent to the daemon
        **fields: Any,
    ) -> _Answer:
        """Call the daemon."""
        with typed_errors(self._addresses):
            return await self._unary(request, fields, timeout)  # type: ignore[no-any-return]


class StreamCall(_Call, Generic[_Request, _Answer]):
    """A call that accepts the fields of its request, or one request message, and returns a stream of events.

    `timeout`, in seconds, is the deadline of the whole stream; by default there is none.
    """

    def __call__(
        self, request: _Request | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> Stream[_Answer]:
        """Open the stream."""
        with typed_errors(self._addresses):
            return Stream(self._stream(request, fields, timeout), self._addresses)


class AsyncStreamCall(_Call, Generic[_Request, _Answer]):
    """The asyncio form of `StreamCall`, for `async for`. Do not await the call."""

    def __call__(
        self, request: _Request | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> AsyncStream[_Answer]:
        """Open the stream."""
        with typed_errors(self._addresses):
            return AsyncStream(self._stream(request, fields, timeout), self._addresses)
