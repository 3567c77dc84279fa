"""Decode the details of a status: `google.rpc.Status` with ErrorInfo, BadRequest and RetryInfo.

The messages are defined here under other names than in google.rpc, so that they do not conflict with an installed
googleapis-common-protos. Their field numbers and types, which alone are on the wire, are those of google.rpc.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "memoryd.status"
_STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_INT32 = descriptor_pb2.FieldDescriptorProto.TYPE_INT32
_INT64 = descriptor_pb2.FieldDescriptorProto.TYPE_INT64

# The fields of each message, in the order of their numbers, from 1. A string names a message; "*" means repeated.
_MESSAGES: Mapping[str, Mapping[str, int | str]] = {
    "Detail": {"type_url": _STRING, "value": _BYTES},
    "Status": {"code": _INT32, "message": _STRING, "details": "*Detail"},
    "Entry": {"key": _STRING, "value": _STRING},
    "ErrorInfo": {"reason": _STRING, "domain": _STRING, "metadata": "*Entry"},
    "FieldViolation": {"field": _STRING, "description": _STRING},
    "BadRequest": {"field_violations": "*FieldViolation"},
    "Duration": {"seconds": _INT64, "nanos": _INT32},
    "RetryInfo": {"retry_delay": "Duration"},
}


def details_of(raw: bytes) -> Iterator[tuple[str, Any]]:
    """Yield each known detail of a serialized `google.rpc.Status`, with the name of its message.

    Raises:
        google.protobuf.message.DecodeError: the bytes are not a `google.rpc.Status`.
    """
    for detail in _CLASSES["Status"].FromString(raw).details:
        name = detail.type_url.rpartition("google.rpc.")[2]
        if name in {"ErrorInfo", "BadRequest", "RetryInfo"}:
            yield name, _CLASSES[name].FromString(detail.value)


def _field(name: str, number: int, kind: int | str) -> descriptor_pb2.FieldDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto(name=name, number=number)
    repeated = isinstance(kind, str) and kind.startswith("*")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if isinstance(kind, str):
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind.removeprefix('*')}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.ValueType(kind)
    return field


def _build() -> Mapping[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="memoryd/status.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        message.field.extend(_field(field, number, kind) for number, (field, kind) in enumerate(fields.items(), 1))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES: Mapping[str, Any] = _build()
