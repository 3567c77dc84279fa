"""Print the JSON Schemas of the agent's tools, generated from the protos: `tool_schemas.py DESCRIPTOR_SET [mcp]`.

Names, types and descriptions come from the protos. This script defines which fields a model can set, and their bounds;
the gateway sets the other fields, such as the agent ID. With `mcp`, it prints the tools of the MCP server, whose
descriptions are only the first sentences of the comments, because every session of a client sends them to its model.
`make protos` runs it in the environment of the code generator.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2

# Texts are limited to 4,096 bytes, and a character has at most 4 bytes in UTF-8.
_MOST_CHARS = 1024
_TYPES = {
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING: "string",
    descriptor_pb2.FieldDescriptorProto.TYPE_INT32: "integer",
    descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE: "number",
}
_TOOLS = {
    "memory_search": {
        "method": "MemorySearch",
        "use": "Use it before you answer about earlier work, decisions, dates, people, preferences or open tasks.",
        "fields": {
            "query": {"minLength": 1, "maxLength": _MOST_CHARS, "pattern": r"\S"},
            "max_results": {"minimum": 1, "maximum": 50},
            "min_score": {"minimum": 0, "maximum": 1},
        },
        "required": ["query"],
    },
    "memory_get": {
        "method": "MemoryGet",
        "use": "Use it after memory_search, for the lines around a result.",
        "fields": {
            "path": {"minLength": 1, "maxLength": _MOST_CHARS, "pattern": r"\S"},
            "start_line": {"minimum": 1, "maximum": 2**31 - 1},
            "line_count": {"minimum": 1, "maximum": 2000},
            "from_line": {"minimum": 1, "maximum": 2**31 - 1},
            "lines": {"minimum": 1, "maximum": 2000},
        },
        "required": ["path"],
    },
}
_READS = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False}
_APPENDS = {**_READS, "readOnlyHint": False, "idempotentHint": False}
_EDITS = {**_APPENDS, "destructiveHint": True}
# A field in a nested message becomes an argument. `sentences` is how many of the comment the description has, unless
# `description` replaces it. Of the fields in a oneof, exactly one is given, with all its arguments.
_MCP_TOOLS = {
    "memory_search": {
        "method": "MemorySearch",
        "title": "Search memory",
        "use": "Use it before you answer about earlier work, decisions, dates, people, preferences or open tasks.",
        "fields": {
            "query": {"minLength": 1},
            "max_results": {"minimum": 1, "maximum": 50},
            "sources": {},
            "filter.since": {},
            "filter.until": {},
            "filter.path_prefixes": {},
        },
        "required": ["query"],
        "annotations": _READS,
    },
    "memory_get": {
        "method": "MemoryGet",
        "title": "Read memory file",
        "use": "Use it after memory_search, for the lines around a result.",
        "fields": {
            "path": {"minLength": 1},
            "start_line": {"minimum": 1, "sentences": 2},
            "line_count": {"minimum": 1, "maximum": 2000, "sentences": 2},
        },
        "required": ["path"],
        "annotations": _READS,
    },
    "memory_append": {
        "method": "MemoryAppend",
        "title": "Append to memory",
        "use": "Use it to keep a fact, decision or preference for later sessions.",
        "fields": {
            "text": {"minLength": 1},
            "path": {"sentences": 2},
            "idempotency_key": {"maxLength": 128, "sentences": 2},
        },
        "required": ["text"],
        "annotations": _APPENDS,
    },
    "memory_edit": {
        "method": "MemoryWrite",
        "title": "Edit memory",
        "use": "Give one of: oldText, newText; content; afterLine, text; startLine, endLine; deleteFile.",
        "fields": {
            "path": {"description": "`MEMORY.md`, `USER.md`, or a `.md` file below `memory/`."},
            "expected_sha256": {"description": "contentSha256 of memory_get; empty for a new file."},
            "replace.old_text": {"description": "Text that occurs exactly once."},
            "replace.new_text": {"description": "Its replacement."},
            "content": {"description": "The whole new content."},
            "insert.after_line": {"description": "Insert after this line; 0 for the start."},
            "insert.text": {"description": "Text to insert."},
            "delete_lines.start_line": {},
            "delete_lines.end_line": {"description": "Last line to delete."},
            "delete_file": {},
        },
        "required": ["path", "expected_sha256"],
        "annotations": _EDITS,
    },
    "memory_recall": {
        "method": "MemoryRecall",
        "title": "Recall for a message",
        "use": "Use it at the start of a task.",
        "fields": {
            "text": {"minLength": 1},
            "max_tokens": {"minimum": 1},
        },
        "required": ["text"],
        "annotations": _READS,
    },
    "memory_status": {
        "method": "Status",
        "title": "Memory status",
        "use": "Use it if memory_search reports a problem.",
        "fields": {},
        "required": [],
        "annotations": _READS,
    },
}
# Field numbers of FileDescriptorProto, and of the members of messages and services; see descriptor.proto.
_MESSAGE, _SERVICE, _MEMBER = 4, 6, 2


class Contract:
    """The proto files, with the comments of the one that has the service."""

    def __init__(self, files: Sequence[descriptor_pb2.FileDescriptorProto]) -> None:
        self._file = next(file for file in files if file.service)
        self._enums = {f".{file.package}.{enum.name}": enum for file in files for enum in file.enum_type}
        self._comments = {tuple(place.path): place.leading_comments for place in self._file.source_code_info.location}

    def method(self, name: str) -> tuple[str, str]:
        """Return the name of the request message of a method, and the description of the method."""
        for at, service in enumerate(self._file.service):
            for number, method in enumerate(service.method):
                if method.name == name:
                    comment = self._comment(_SERVICE, at, _MEMBER, number)
                    return method.input_type.rpartition(".")[2], re.sub(r" Default client deadline: .*", "", comment)
        raise SystemExit(f"the protos define no method {name}")

    def field(self, message: str, name: str) -> tuple[str, dict[str, object]]:
        """Return the JSON name of a field, and its schema without bounds. Dots in `name` lead into nested messages."""
        name, _, rest = name.partition(".")
        at = next(n for n, each in enumerate(self._file.message_type) if each.name == message)
        for number, field in enumerate(self._file.message_type[at].field):
            if field.name == name and rest:
                return self.field(field.type_name.rpartition(".")[2], rest)
            if field.name == name:
                comment = self._comment(_MESSAGE, at, _MEMBER, number)
                return field.json_name, {**self._type(field), "description": comment}
        raise SystemExit(f"{message} has no field {name}")

    def json_path(self, message: str, name: str) -> str:
        """Return the JSON names of a field and of the messages that it is in, joined by dots."""
        first, _, rest = name.partition(".")
        fields = next(each.field for each in self._file.message_type if each.name == message)
        field = next(each for each in fields if each.name == first)
        tail = [self.json_path(field.type_name.rpartition(".")[2], rest)] if rest else []
        return ".".join([field.json_name, *tail])

    def choices(self, message: str, fields: dict[str, str]) -> list[list[str]]:
        """Return the arguments of each field in a oneof. `fields` has the argument by the name of its field."""
        members = next(each.field for each in self._file.message_type if each.name == message)
        in_oneof = [each.name for each in members if each.HasField("oneof_index") and not each.proto3_optional]
        groups = [[key for name, key in fields.items() if name.partition(".")[0] == each] for each in in_oneof]
        return [group for group in groups if group]

    def _type(self, field: descriptor_pb2.FieldDescriptorProto) -> dict[str, object]:
        one: dict[str, object] = {"type": _TYPES.get(field.type, "string")}
        if field.type == field.TYPE_MESSAGE:
            # A message without fields, whose presence is its value.
            one["type"] = "boolean"
        if field.type == field.TYPE_ENUM:
            # The first value is UNSPECIFIED. A value FOO of an enum BAR is called BAR_FOO.
            names = [value.name for value in self._enums[field.type_name].value[1:]]
            one["enum"] = [name.partition("_")[2].lower() for name in names]
        return {"type": "array", "items": one} if field.label == field.LABEL_REPEATED else one

    def _comment(self, *path: int) -> str:
        return " ".join(self._comments[path].split())


def first_sentences(text: str, count: int) -> str:
    """Return the first sentences of a comment."""
    return " ".join(re.split(r"(?<=\.)\s+(?=[A-Z])", text)[:count])


def tool(contract: Contract, definition: dict[str, Any]) -> dict[str, object]:
    """Return the description and the parameters of a tool."""
    request, description = contract.method(definition["method"])
    fields = {field: contract.field(request, field) for field in definition["fields"]}
    return {
        "description": f"{description} {definition['use']}",
        "parameters": _object(definition, dict(fields.values()), fields),
    }


def mcp_tool(contract: Contract, definition: dict[str, Any]) -> dict[str, object]:
    """Return a tool as MCP defines it, the method that it calls, and the fields of the method's request by argument."""
    request, description = contract.method(definition["method"])
    fields = {field: contract.field(request, field) for field in definition["fields"]}
    properties = {}
    for field, (key, schema) in fields.items():
        count = definition["fields"][field].get("sentences", 1)
        properties[key] = {**schema, "description": first_sentences(str(schema["description"]), count)}
    choices = contract.choices(request, {field: key for field, (key, _) in fields.items()})
    return {
        "method": definition["method"],
        "fields": {key: contract.json_path(request, field) for field, (key, _) in fields.items()},
        **({"choices": choices} if choices else {}),
        "title": definition["title"],
        "description": f"{first_sentences(description, 1)} {definition['use']}",
        "inputSchema": _object(definition, properties, fields),
        "annotations": definition["annotations"],
    }


def _object(
    definition: dict[str, Any], properties: dict[str, dict[str, object]], fields: dict[str, tuple[str, Any]]
) -> dict[str, object]:
    bounds = {fields[field][0]: bound for field, bound in definition["fields"].items()}
    return {
        "type": "object",
        "properties": {
            key: {**schema, **{name: value for name, value in bounds[key].items() if name != "sentences"}}
            for key, schema in properties.items()
        },
        "required": [fields[field][0] for field in definition["required"]],
        "additionalProperties": False,
    }


def main(descriptor_set: Path, *kinds: str) -> None:
    """Write the schemas to standard output."""
    contract = Contract(descriptor_pb2.FileDescriptorSet.FromString(descriptor_set.read_bytes()).file)
    make, definitions = (mcp_tool, _MCP_TOOLS) if kinds == ("mcp",) else (tool, _TOOLS)
    tools = {name: make(contract, definition) for name, definition in definitions.items()}
    sys.stdout.write(json.dumps(tools, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
