"""Every message and enum of `memoryd.v1` in one module."""

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Message  # noqa: PLC0414 -- exported

from memoryd.v1.entry_service_pb2 import *  # noqa: F403 -- a module of names
from memoryd.v1.error_reason_pb2 import *  # noqa: F403
from memoryd.v1.memory_pb2 import *  # noqa: F403
from memoryd.v1.memory_service_pb2 import *  # noqa: F403
from memoryd.v1.sync_event_pb2 import *  # noqa: F403


def to_dict(message: Message) -> dict[str, Any]:
    """Return a message as proto3 JSON values, including fields with default values."""
    found: dict[str, Any] = MessageToDict(message, always_print_fields_with_no_presence=True)
    return found
