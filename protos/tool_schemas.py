"""Print the JSON Schemas of the agent's tools, generated from the protos: `tool_schemas.py DESCRIPTOR_SET`.

Names, types and descriptions come from the protos. This script defines which fields a model can set, and their bounds;
the gateway sets the other fields, such as the agent ID. `make protos` runs it in the environment of the code generator.
"""

import json
import re
import sys
from pathlib import Path

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
# Field numbers of FileDescriptorProto, and of the members of messages and services; see descriptor.proto.
_MESSAGE, _SERVICE, _MEMBER = 4, 6, 2


class Contract:
    """A proto file with its comments."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self._file = file
        self._comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}

    def method(self, name: str) -> tuple[str, str]:
        """Return the name of the request message of a method, and the description of the method."""
        for at, service in enumerate(self._file.service):
            for number, method in enumerate(service.method):
                if method.name == name:
                    comment = self._comment(_SERVICE, at, _MEMBER, number)
                    return method.input_type.rpartition(".")[2], re.sub(r" Default client deadline: .*", "", comment)
        raise SystemExit(f"the protos define no method {name}")

    def field(self, message: str, name: str) -> tuple[str, dict[str, object]]:
        """Return the JSON name of a field, and its schema without bounds."""
        at = next(n for n, each in enumerate(self._file.message_type) if each.name == message)
        for number, field in enumerate(self._file.message_type[at].field):
            if field.name == name:
                comment = self._comment(_MESSAGE, at, _MEMBER, number)
                return field.json_name, {"type": _TYPES[field.type], "description": comment}
        raise SystemExit(f"{message} has no field {name}")

    def _comment(self, *path: int) -> str:
        return " ".join(self._comments[path].split())


def main(descriptor_set: Path) -> None:
    """Write the schemas to standard output."""
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set.read_bytes()).file
    contract = Contract(next(file for file in files if file.service))
    schemas = {}
    for name, tool in _TOOLS.items():
        request, description = contract.method(tool["method"])
        fields = {field: contract.field(request, field) for field in tool["fields"]}
        schemas[name] = {
            "description": f"{description} {tool['use']}",
            "parameters": {
                "type": "object",
                "properties": {key: {**schema, **tool["fields"][field]} for field, (key, schema) in fields.items()},
                "required": [fields[field][0] for field in tool["required"]],
                "additionalProperties": False,
            },
        }
    sys.stdout.write(json.dumps(schemas, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
