"""The definitions of the tools, and the conversion of their arguments to requests of MemoryService.

`tools.json` is generated from the protos (`make protos`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import mcp_types as types

from memoryd_server.errors import FieldViolation, InvalidRequest
from memoryd_server.foreign_text import is_nested_deeper, valid_text

# A list of texts is the deepest argument.
_MOST_DEPTH = 2
_MOST_INT = 2**31 - 1
_MOST_SHOWN_CHARS = 64
# More than any argument may have. Longer lists, and requests with many unknown arguments, take seconds to convert.
_MOST_ITEMS = 1_000
_MOST_VIOLATIONS = 16


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool, the method that it calls, and for each argument the field of the request, as JSON names with dots.

    If `choices` is not empty, a call has exactly one of these groups of arguments, and all arguments of the group.
    """

    tool: types.Tool
    method: str
    fields: Mapping[str, str]
    choices: tuple[tuple[str, ...], ...] = ()

    @property
    def properties(self) -> Mapping[str, Any]:
        """The schema of each argument."""
        properties: Mapping[str, Any] = self.tool.input_schema["properties"]
        return properties


def _definition(name: str, entry: Mapping[str, Any]) -> ToolDefinition:
    schema = dict(entry["inputSchema"])
    if not schema["required"]:
        # Draft 4 of JSON Schema, which some clients use, allows no empty list.
        del schema["required"]
    return ToolDefinition(
        types.Tool(
            name=name,
            title=entry["title"],
            description=entry["description"],
            input_schema=schema,
            annotations=types.ToolAnnotations.model_validate(entry["annotations"]),
        ),
        entry["method"],
        entry["fields"],
        tuple(map(tuple, entry.get("choices", ()))),
    )


TOOLS: Mapping[str, ToolDefinition] = {
    name: _definition(name, entry)
    for name, entry in json.loads(files(__package__).joinpath("tools.json").read_text(encoding="utf-8")).items()
}


def make_request(definition: ToolDefinition, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of a tool call, in proto3 JSON. Arguments that are null and flags that are false are not set.

    The daemon checks the bounds of the values; this checks their names and types.

    Raises:
        InvalidRequest: an argument is missing, unknown or of the wrong type; the fields are the names of arguments.
    """
    violations: list[FieldViolation] = []
    request: dict[str, Any] = {}
    known = definition.properties
    for name, value in arguments.items():
        if len(violations) >= _MOST_VIOLATIONS:
            break
        if name not in known and value is not None:
            taken = f"it takes {', '.join(known)}" if known else "it takes none"
            violations.append(FieldViolation(_shown(name), f"is no argument of {definition.tool.name}; {taken}"))
            continue
        if not _is_set(value, known.get(name)):
            continue
        try:
            _put(request, definition.fields[name].split("."), _converted(value, known[name], name))
        except ValueError as error:
            violations.append(FieldViolation(name, str(error)))
    required = definition.tool.input_schema.get("required", ())
    violations += [FieldViolation(name, "is required") for name in required if arguments.get(name) is None]
    violations += _choice_violations(definition, arguments)
    if violations:
        raise InvalidRequest(violations)
    return request


def _is_set(value: Any, schema: Mapping[str, Any] | None) -> bool:
    return value is not None and not (value is False and schema is not None and schema["type"] == "boolean")


def _choice_violations(definition: ToolDefinition, arguments: Mapping[str, Any]) -> Iterator[FieldViolation]:
    """Yield what is wrong with the choice between the groups of arguments."""
    schemas = definition.properties

    def is_given(name: str) -> bool:
        return _is_set(arguments.get(name), schemas[name])

    given = [group for group in definition.choices if any(map(is_given, group))]
    if definition.choices and len(given) != 1:
        groups = [" with ".join(group) for group in definition.choices]
        found = " and ".join(name for group in given for name in group if is_given(name)) or "none"
        why = f"give exactly one of {', '.join(groups[:-1])} or {groups[-1]}; given: {found}"
        yield FieldViolation("arguments", why)
        return
    for group in given:
        names = " and ".join(filter(is_given, group))
        yield from (FieldViolation(name, f"is required with {names}") for name in group if not is_given(name))


def name_arguments(definition: ToolDefinition, error: InvalidRequest) -> InvalidRequest:
    """Return an error of a request with the arguments of the tool in place of the fields of the proto."""
    by_field = {field: name for name, field in definition.fields.items()}

    def argument(field: str) -> str:
        name = _camel(field)
        return next((by_field[known] for known in by_field if name == known or name.startswith(f"{known}[")), name)

    return InvalidRequest([FieldViolation(argument(each.field), each.description) for each in error.violations])


def _camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _put(request: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        request = request.setdefault(name, {})
    request[path[-1]] = value


def _converted(value: Any, schema: Mapping[str, Any], name: str) -> Any:
    """Return a value as the request has it.

    Raises:
        ValueError: it is not of the type of the schema.
    """
    kind = schema["type"]
    if kind == "string":
        return _text(value, schema, name)
    if kind == "integer":
        return _integer(value)
    if kind == "boolean":
        return _flag(value)
    if not isinstance(value, list) or is_nested_deeper(value, _MOST_DEPTH):
        raise ValueError("must be a list")
    if len(value) > _MOST_ITEMS:
        raise ValueError(f"must have at most {_MOST_ITEMS:,} items")
    return [_converted(item, schema["items"], name) for item in value]


def _text(value: Any, schema: Mapping[str, Any], name: str) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004 -- of a foreign program
    choices = schema.get("enum")
    if choices is None:
        return valid_text(value)
    if value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")
    return f"{name.removesuffix('s').upper()}_{value.upper()}"


def _integer(value: Any) -> int:
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole or not -_MOST_INT <= value <= _MOST_INT:
        raise ValueError(f"must be an integer of at most {_MOST_INT}")
    return int(value)


def _flag(value: Any) -> Mapping[str, Any]:
    """Return a flag that is set as the request has it: a message without fields."""
    if value is not True:
        raise ValueError("must be true or false")
    return {}


def _shown(name: str) -> str:
    text = valid_text(name)
    return text if len(text) <= _MOST_SHOWN_CHARS else f"{text[:_MOST_SHOWN_CHARS]}…"
