"""The calls of the EntryService: short entries that an agent stores and recalls by meaning.

with connect("unix:.memoryd/memoryd.sock") as client:
    client.entries.remember(text="the heron nests by the weir")
    for found in client.entries.recall(query="herons").entries:
        print(found.score, found.entry.text)
"""

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from memoryd._request import request_of
from memoryd.v1 import entry_service_pb2 as pb
from memoryd.v1.entry_service_pb2_grpc import EntryServiceStub

# The documented deadlines of the service, in seconds.
_REMEMBER = 10.0
_LOOK_UP = 5.0
_SUGGEST = 1.0

Call = Callable[[Any, Message, float, float | None], Any]
"""How the client calls: the stub's method, the message, the documented deadline, and the one given for this call."""


class EntryClient:
    """Each method takes the fields of its request as keyword arguments, or one request message.

    Every method raises `MemorydError` for a status that is not OK; where entries are off, UNIMPLEMENTED.
    """

    def __init__(self, channel: grpc.Channel, call: Call) -> None:
        self._stub: Any = EntryServiceStub(channel)  # type: ignore[no-untyped-call]
        self._call = call

    def remember(
        self, request: pb.RememberRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.RememberResponse:
        """Stores `text` unless an entry says the same; with an `idempotency_key`, trying again is safe."""
        message = request_of(pb.RememberRequest, request, fields)
        return self._call(self._stub.Remember, message, _REMEMBER, timeout)  # type: ignore[no-any-return]

    def recall(
        self, request: pb.RecallRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.RecallResponse:
        """Finds the entries nearest to `query`, best first."""
        message = request_of(pb.RecallRequest, request, fields)
        return self._call(self._stub.Recall, message, _LOOK_UP, timeout)  # type: ignore[no-any-return]

    def forget(
        self, request: pb.ForgetRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.ForgetResponse:
        """Deletes the entry `entry_id`, or the one that `query` clearly means."""
        message = request_of(pb.ForgetRequest, request, fields)
        return self._call(self._stub.Forget, message, _LOOK_UP, timeout)  # type: ignore[no-any-return]

    def list(
        self, request: pb.ListEntriesRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.ListEntriesResponse:
        """Lists a page of an agent's entries, newest first."""
        message = request_of(pb.ListEntriesRequest, request, fields)
        return self._call(self._stub.ListEntries, message, _LOOK_UP, timeout)  # type: ignore[no-any-return]

    def suggest_capture(
        self, request: pb.SuggestCaptureRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.SuggestCaptureResponse:
        """Tells which of a turn's `user_messages` would be worth storing; stores nothing."""
        message = request_of(pb.SuggestCaptureRequest, request, fields)
        return self._call(self._stub.SuggestCapture, message, _SUGGEST, timeout)  # type: ignore[no-any-return]

    def recall_block(
        self, request: pb.RecallBlockRequest | None = None, /, *, timeout: float | None = None, **fields: Any
    ) -> pb.RecallBlockResponse:
        """Recalls what concerns `prompt`, as a block to put before it."""
        message = request_of(pb.RecallBlockRequest, request, fields)
        return self._call(self._stub.RecallBlock, message, _LOOK_UP, timeout)  # type: ignore[no-any-return]
