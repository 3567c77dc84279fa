"""Hypothesis strategies for the requests of every RPC, made from the protobuf descriptors.

A new field or method is covered without a change here. Names that occur in the workspace, and values from earlier
replies (`@name:number`, see `with_learned`), let requests get further than random text would.
"""

import json
import math
import re

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import strategies as st

from malformed_bytes import changed, changes, made_of_parts, nested
from memoryd.v1 import entry_service_pb2, mcp_service_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.agent_calls import AGENT_CALLS

METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in (pb, entry_service_pb2, mcp_service_pb2, health_pb2, reflection_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods_by_name.values()
}
# Sent as they are; the server must answer UNIMPLEMENTED, or refuse the path.
UNKNOWN_METHODS = ("/memoryd.v1.MemoryService/Absent", "/memoryd.v1.MemoryService/", "/a/b", "/", "//", "/é/x")
DEPTH = 4

NOTES = ("MEMORY.md", "memory.md", "memory/a.md", "memory/b.md", "memory/2026-01-02.md", "memory/deep/er/c.md")
TRANSCRIPTS = ("talk.jsonl", "long.jsonl", "talk.reset.2026-01-02T00-00-00.000Z.jsonl")
WORDS = ("heron", "weir", "the heron nests by the weir", "pier seven", "-heron", '"heron', "heron NEAR(", "2026-01-02")
ODD = ("", " ", "\0", "é", "\u202e", "\U0001f980", "a\nb", "../../etc/passwd", "*", "%00", "@", "-1", "NULL", "\ufeff")
_META = {f"io.modelcontextprotocol/{name}": {} for name in ("clientInfo", "clientCapabilities")}
MCP_MESSAGES = tuple(
    json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    for number, (method, params) in enumerate(
        (
            (
                "initialize",
                {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
            ),
            ("server/discover", {"_meta": {**_META, "io.modelcontextprotocol/protocolVersion": "2026-07-28"}}),
            ("tools/list", {}),
            ("tools/call", {"name": "memory_search", "arguments": {"query": "heron"}}),
            ("tools/call", {"name": "memory_get", "arguments": {"path": "../a"}}),
            ("resources/read", {"uri": "memory://main/MEMORY.md"}),
            ("resources/subscribe", {"uri": "memory://main/%2e%2e/a"}),
            ("ping", []),
        )
    )
)
POOLS = {
    "message": ("", "{", "[]", '{"id": 1}', *MCP_MESSAGES, *MCP_MESSAGES),
    "agent_id": ("", "", "", "main", "other", "OTHER", "absent"),
    "path": (*NOTES, "memory/../memory/a.md", "/etc/passwd", "memory/a.txt", "qmd/notes/a.md", "@path:0", "@path:7"),
    "new_path": (*NOTES, "memory/moved.md", "/etc/passwd", "@path:0"),
    "expected_sha256": ("", "", "@content_sha256:0", "@content_sha256:2", "0" * 64, "F" * 64),
    "version_id": ("@version_id:0", "@version_id:3", "", "0" * 32),
    "transcript": (*TRANSCRIPTS, "absent.jsonl", "../talk.jsonl"),
    "session_id": ("talk", "long", "absent"),
    "session_key": ("", "agent:main:cli:direct:x", "agent:main:telegram:group:1", "agent::::", "main"),
    "time_zone": ("", "UTC", "Europe/Vienna", "Nowhere/Land", "../../etc/localtime"),
    "cursor": ("@cursor:0", "@cursor:3", "1.2.3", "AAAA"),
    "page_token": ("@next_page_token:0", "@next_page_token:2", "AAAA"),
    "entry_id": ("@entry_id:0", "@entry_id:5", "00000000-0000-0000-0000-000000000000", "x"),
    "idempotency_key": ("", "k1", "k2", "k3"),
    "tools": ("memory_search", "memory_get"),
    "records": ("{}", "", "[]", "{", '{"type": "message", "message": {"role": "user", "content": "a heron"}}'),
    "service": ("", "memoryd.v1.MemoryService", "memoryd.v1.EntryService", "absent"),
}
LEARNED_FIELDS = {"cursor", "next_page_token", "entry_id", "path", "content_sha256", "version_id"}
LEARNED = re.compile(r"@([a-z_]+):(\d+)")

_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.35, 1e300, -1e300, 5e-324, math.inf, -math.inf, math.nan)

_words = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(WORDS) | st.sampled_from(ODD)
# Long, nested or repeated; seldom, because each costs the daemon real work.
_long = st.builds(
    lambda part, size: (part or "x") * (size // max(1, len(part.encode()))),
    st.sampled_from([*WORDS, *ODD, "(", '"', "a b ", "# h\n\n", "\u0301", "[[", "1 "]),
    st.sampled_from([200, 5_000, 70_000, 400_000]),
)


def strings(name):
    """Return strings for a field of this name."""
    pool = POOLS.get(name, WORDS)
    known = st.sampled_from(pool)
    return st.integers(0, 39).flatmap(lambda kind: _long if kind == 0 else _words if kind < 12 else known)


def _numbers(low, high, known=()):
    edges = [number for number in (low, low + 1, -1, 0, 1, 2, 3, 10, 50, 1_000, high - 1, high) if low <= number]
    return st.sampled_from([*known, *known, *edges]) | st.integers(low, high)


def _value(field, depth):
    """Return values of one element of a field."""
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        return messages(field.message_type, depth - 1)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return st.sampled_from(_FLOATS) | st.floats(width=64 if kind == FieldDescriptor.CPPTYPE_DOUBLE else 32)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return st.binary(max_size=60) if field.type == FieldDescriptor.TYPE_BYTES else strings(field.name)
    known = [value.number for value in field.enum_type.values] if field.enum_type else ()
    return _numbers(*_RANGES[kind], known)


@st.composite
def messages(draw, descriptor, depth=DEPTH, base=None):
    """Draw a message of a type; `base` is a valid one, some of whose fields are replaced."""
    message = message_factory.GetMessageClass(descriptor)()
    if base is not None:
        message.CopyFrom(base)
    fields = [field for field in descriptor.fields if depth > 0 or field.message_type is None]
    most = draw(st.sampled_from([1, 1, 2, 3, 8, 0]))
    chosen = st.lists(st.sampled_from(fields), max_size=most, unique_by=lambda f: f.number) if fields else st.just([])
    for field in draw(chosen):
        message.ClearField(field.name)
        if not field.is_repeated:
            _set(message, field, draw(_value(field, depth)))
            continue
        for value in draw(st.lists(_value(field, depth), max_size=4)) * draw(st.sampled_from([1, 1, 1, 1, 50])):
            _add(message, field, value)
    return message


def _set(message, field, value):
    if field.message_type is None:
        setattr(message, field.name, value)
    else:
        getattr(message, field.name).CopyFrom(value)


def _add(message, field, value):
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)[value.key] = value.value
    else:
        getattr(message, field.name).append(value)


@st.composite
def bodies(draw, method):
    """Draw the bytes of a request of this method: mostly messages of its type, and some that are none."""
    descriptor = METHODS[method].input_type if method in METHODS else pb.StatusRequest.DESCRIPTOR
    base = AGENT_CALLS.get(method.rpartition("/")[2]) if "memoryd" in method else None
    base = base if base is not None and base.DESCRIPTOR.full_name == descriptor.full_name else None
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(made_of_parts | nested | st.binary(max_size=200))
    data = draw(messages(descriptor, base=base if kind < 8 else None)).SerializeToString()
    return changed(data, draw(st.lists(changes, min_size=1, max_size=4))) if kind == 1 else data


def with_learned(method, body, learned):
    """Return the body with each `@name:number` replaced with that value of an earlier reply, if there is one.

    `learned` maps a field's name to the latest values. A body that is no message of the method is returned as it is.
    """
    if b"@" not in body or method not in METHODS:
        return body
    message = message_factory.GetMessageClass(METHODS[method].input_type)()
    try:
        message.ParseFromString(body)
    except Exception:  # noqa: BLE001 -- each runtime of protobuf has its own exception
        return body
    for field, value in message.ListFields():
        if field.cpp_type != FieldDescriptor.CPPTYPE_STRING or field.is_repeated or not isinstance(value, str):
            continue
        known = LEARNED.fullmatch(value)
        values = learned.get(known[1], ()) if known else ()
        if values:
            setattr(message, field.name, values[int(known[2]) % len(values)])
    return message.SerializeToString()


def learn(message, learned):
    """Add the values of a reply that later requests can name to `learned`."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = value if field.is_repeated else [value]
            if not field.message_type.GetOptions().map_entry:
                for part in list(parts)[:3]:
                    learn(part, learned)
        elif field.name in LEARNED_FIELDS and not field.is_repeated:
            values = learned.setdefault(field.name, [])
            values.append(value)
            del values[:-20]
