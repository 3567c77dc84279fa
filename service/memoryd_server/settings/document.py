"""Write docs/configuration.md from the settings blocks: `python -m memoryd_server.settings.document`."""

import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from memoryd_server.settings.environment import variables
from memoryd_server.settings.layouts import GLOBAL_SEARCH
from memoryd_server.settings.loading import AGENTS, COMPACTION, LANCEDB, MEMORY, MEMORY_SEARCH
from memoryd_server.settings.memory import CompactionSettings, ContextLimits, MemoryBlock, StartupContextSettings
from memoryd_server.settings.memory_search import MemorySearchSettings
from memoryd_server.settings.plugins import CONFIG as ENTRIES
from memoryd_server.settings.plugins import LanceDbSettings
from memoryd_server.settings.provider_access import ModelProviderSettings
from memoryd_server.settings.rules import KeyPath, SettingsBlock, dotted, keys, nested, rules_of
from memoryd_server.settings.service import ServiceSettings

_DOCSTRING = re.compile(r"(?P<meaning>.+[.!?])\s+(?P<bounds>.+); default (?P<default>.+)\.", re.DOTALL)
_INTRODUCTION = Path(__file__).with_name("introduction.md")
_TYPES: Mapping[object, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Path: "string",
    SecretStr: "string",
    dict: "object of strings",
}

_BLOCKS: tuple[tuple[str, type[SettingsBlock]], ...] = (
    ("memoryd", ServiceSettings),
    ("memory.search", MemorySearchSettings),
    ("agents.defaults.compaction", CompactionSettings),
    ("agents.defaults.startupContext", StartupContextSettings),
    ("agents.defaults.contextLimits", ContextLimits),
    ("memory", MemoryBlock),
    ("models.providers.<id>", ModelProviderSettings),
    (dotted(ENTRIES), LanceDbSettings),
)
_UNIMPLEMENTED: tuple[tuple[KeyPath, Mapping[KeyPath, str]], ...] = (
    (GLOBAL_SEARCH, MEMORY_SEARCH),
    (("agents",), AGENTS),
    (("agents", "defaults", "compaction"), COMPACTION),
    (("memory",), MEMORY),
    (ENTRIES, LANCEDB),
)


class FieldDescription(NamedTuple):
    """The three parts of a field's docstring."""

    meaning: str
    bounds: str
    default: str


def parse_docstring(field: FieldInfo) -> FieldDescription:
    """Return the parts of the docstring of a field that is not a block.

    Raises:
        ValueError: the docstring does not end in `<unit, bounds>; default <value>.`
    """
    text = " ".join((field.description or "").split())
    found = _DOCSTRING.fullmatch(text)
    if found is None:
        raise ValueError(f"the docstring of a setting does not end in '<unit, bounds>; default <value>.': {text!r}")
    return FieldDescription(**found.groupdict())


def document() -> str:
    """Return the page."""
    tables = (line for path, block in _BLOCKS for line in _section(path, block, 2))
    return "\n".join([_INTRODUCTION.read_text(encoding="utf-8"), *tables, *_variables(), *_unimplemented()])


def _section(path: str, block: type[SettingsBlock], level: int) -> Iterator[str]:
    fields = [(key, field, nested(field.annotation)) for _, key, field in keys(block)]
    yield from (f"{'#' * level} `{path}`", "", " ".join((block.__doc__ or "").split()), "")
    plain = [(key, field) for key, field, inner in fields if inner is None or _may_be_text(field.annotation)]
    if plain:
        yield from ("| Key | Type | Default | Unit, bounds | Meaning |", "|---|---|---|---|---|")
        yield from (_row(key, field) for key, field in plain)
        yield ""
    for key, field, inner in fields:
        if inner:
            array = "[]" if get_origin(field.annotation) is tuple else ""
            yield from _section(f"{path}.{key}{array}", inner, 3)


def _row(key: str, field: FieldInfo) -> str:
    words = parse_docstring(field)
    cells = [f"`{key}`", _type_of(field), f"`{words.default}`", words.bounds, words.meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type_of(field: FieldInfo) -> str:
    file_type = next((rule.file_type for rule in rules_of(field) if rule.file_type), None)
    return file_type or _type(field.annotation)


def _type(annotation: object) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "string"
    if origin is Annotated:
        return _type(inside[0])
    if origin in (types.UnionType, Union):
        return _type(next(part for part in inside if part is not type(None)))
    if origin is tuple:
        return f"array of {_type(inside[0])}s{' or objects' if nested(inside[0]) else ''}"
    return _TYPES[origin or annotation]


def _may_be_text(annotation: object) -> bool:
    """Return whether an array has strings, perhaps in addition to objects."""
    return annotation is str or (not isinstance(annotation, type) and any(map(_may_be_text, get_args(annotation))))


def _variables() -> Iterator[str]:
    yield from ("## Variables of the `memoryd` block", "", "| Variable | Key |", "|---|---|")
    yield from (f"| `{name}` | `memoryd.{dotted(path)}` |" for name, path in sorted(variables().items()))
    yield ""


def _unimplemented() -> Iterator[str]:
    yield from ("## Keys of OpenClaw that are ignored with a warning", "")
    for parent, ignored in _UNIMPLEMENTED:
        yield from (f"- `{dotted((*parent, *key))}`: {consequence}" for key, consequence in ignored.items())
    yield ""


if __name__ == "__main__":
    sys.stdout.write(document())
