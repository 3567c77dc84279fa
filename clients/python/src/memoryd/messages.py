"""Every message and enum of the contract under one name, so that callers need not know which file holds which."""

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Message  # noqa: PLC0414 -- offered on purpose

from memoryd.v1.entry_service_pb2 import *  # noqa: F403 -- a module of names
from memoryd.v1.error_reason_pb2 import *  # noqa: F403
from memoryd.v1.memory_pb2 import *  # noqa: F403
from memoryd.v1.memory_service_pb2 import *  # noqa: F403
from memoryd.v1.sync_event_pb2 import *  # noqa: F403


def to_dict(message: Message) -> dict[str, Any]:
    """A message as proto3 JSON: every field that has a value or a default."""
    found: dict[str, Any] = MessageToDict(message, always_print_fields_with_no_presence=True)
    return found
