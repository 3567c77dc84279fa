"""A call of the contract, as an attribute that the blocking client and the asynchronous one share.

    class MemoryMethods:
        get = Unary("MemoryGet", pb.MemoryGetRequest, pb.MemoryGetResponse, 2.0, "Reads a line range ...")

On a client whose class is a `Blocking`, `client.get(path="...")` returns the answer; on an `Asynchronous` one it is
awaited. So the two cannot drift apart, and both are typed.
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
    """A client's stub of one service, with what all of its calls carry; `timeout` replaces the documented deadlines."""

    def __init__(self, stub: Any, metadata: tuple[tuple[str, str], ...], timeout: float | None) -> None:
        self._stub = stub
        self._metadata = metadata
        self._timeout = timeout


class Blocking(_Caller):
    """Its calls return their answers."""


class Asynchronous(_Caller):
    """Its calls are awaited."""


class _Method(Generic[_Request, _Answer]):
    """A method of the contract. Asked of a class, it is this description of itself."""

    def __init__(self, rpc: str, request: type[_Request], answer: type[_Answer], doc: str) -> None:
        self.rpc = rpc
        self.request = request
        self.answer = answer
        self.__doc__ = doc


class Unary(_Method[_Request, _Answer]):
    """A method with one answer. `seconds` is its documented deadline, or what tells it of a request.

    Where a request can be named by an idempotency key, it is: trying again is safe then.
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
        """The call, of the kind that the client makes."""
        if caller is None:
            return self
        return (AsyncUnaryCall if isinstance(caller, Asynchronous) else UnaryCall)(self, caller)

    def prepare(self, given: _Request | None, fields: dict[str, Any]) -> _Request:
        """The request to send; one that was given stays as it is.

        Raises:
            TypeError: a request and fields were given.
        """
        message: Any = request_of(self.request, given, fields)
        if _KEY in message.DESCRIPTOR.fields_by_name and not message.idempotency_key:
            named: Any = self.request()
            named.CopyFrom(message)
            named.idempotency_key = str(uuid.uuid4())
            message = named
        return message  # type: ignore[no-any-return]

    def seconds(self, message: _Request) -> float:
        """The documented deadline of a request."""
        return self._seconds(message) if callable(self._seconds) else self._seconds


class Streaming(_Method[_Request, _Answer]):
    """A method with a stream of events. It has no deadline unless the caller names one."""

    @overload
    def __get__(self, caller: None, owner: type) -> Self: ...
    @overload
    def __get__(self, caller: Blocking, owner: type) -> "StreamCall[_Request, _Answer]": ...
    @overload
    def __get__(self, caller: Asynchronous, owner: type) -> "AsyncStreamCall[_Request, _Answer]": ...
    def __get__(self, caller: _Caller | None, owner: type) -> Any:
        """The call, of the kind that the client makes."""
        if caller is None:
            return self
        return (AsyncStreamCall if isinstance(caller, Asynchronous) else StreamCall)(self, caller)


class _Call:
    def __init__(self, method: Any, caller: Any) -> None:
        self._method = method
        self._caller = caller
        self.__doc__ = method.__doc__

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
    """Takes the fields of its request, or one request message, and returns the answer.

    `timeout` in seconds replaces the deadline.

    Raises:
        MemorydError: the status is not OK.
    """

    def __call__(self, request: _Request | None = None, /, *, timeout: float | None = None, **fields: Any) -> _Answer:
        """Calls the daemon."""
        with typed_errors():
            return self._unary(request, fields, timeout)  # type: ignore[no-any-return]


class AsyncUnaryCall(_Call, Generic[_Request, _Answer]):
    """As `UnaryCall`, to be awaited."""

    async def __call__(
        self,
        request: _Request | None = None,
        /,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 -- the deadline that the daemon is told
        **fields: Any,
    ) -> _Answer:
        """Calls the daemon."""
        with typed_errors():
            return await self._unary(request, fields, timeout)  # type: ignore[no-any-return]


class StreamCall(_Call, Generic[_Request, _Answer]):
    """Takes the fields of its request, or one request message, and returns the events as they come.

    `timeout` in seconds is the deadline of all of them together; there is none without it.
    """

    def __call__(
        self, request: _Request | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> Stream[_Answer]:
        """Opens the stream."""
        with typed_errors():
            return Stream(self._stream(request, fields, timeout))


class AsyncStreamCall(_Call, Generic[_Request, _Answer]):
    """As `StreamCall`, for `async for`. It is not awaited itself."""

    def __call__(
        self, request: _Request | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> AsyncStream[_Answer]:
        """Opens the stream."""
        with typed_errors():
            return AsyncStream(self._stream(request, fields, timeout))
