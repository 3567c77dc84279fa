"""Front matter: a YAML block at the start of a file, read as metadata and not as text.

No file can make this expensive or fail. A block that is too large or too deep, is not a YAML mapping, or uses anchors
(with which a few lines expand to gigabytes) is treated as text.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from memoryd_server.foreign_text import valid_text

MAX_FRONT_MATTER_BYTES: Final = 64 * 1024
_MAX_DEPTH = 16
_BOM = "\ufeff"
_OPENING = re.compile(r"\ufeff?---[ \t]*\r?\n")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
# The base loader keeps scalars as they are written ("1.10", "2026-02-08"); the C loader is ten times faster.
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_Node = str | list["_Node"] | dict[str, "_Node"]


class _RefusedError(Exception):
    """The block is not front matter."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A file's metadata, and its text without the front matter.

    Keys of nested mappings are joined by dots. `first_line` is the line of the file at which `body` begins.
    """

    metadata: Mapping[str, str | list[str]]
    body: str
    first_line: int


def split_front_matter(text: str) -> FrontMatter:
    """Return the metadata at the start of `text`, if there is any, and the text below it. Never raises."""
    opening = _OPENING.match(text) if text.startswith(("---", _BOM)) else None
    closing = _find_closing(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return FrontMatter({}, text, 1)
    metadata = _parse_metadata(text[opening.end() : closing])
    if metadata is None:
        return FrontMatter({}, text, 1)
    end = text.find("\n", closing)
    if end < 0:
        end = len(text)
    return FrontMatter(metadata, text[end + 1 :], text.count("\n", 0, end) + 2)


def _find_closing(text: str, start: int) -> int | None:
    # Slightly beyond the limit, to recognize a longer line that only begins like a closing one.
    closing = _CLOSING.search(text, start, start + MAX_FRONT_MATTER_BYTES + 8)
    return closing.start() if closing else None


def _parse_metadata(block: str) -> dict[str, str | list[str]] | None:
    try:
        if len(block.encode()) > MAX_FRONT_MATTER_BYTES:
            return None
        events = iter(yaml.parse(block, Loader=_LOADER))
        root = _parse_document(events)
    except (_RefusedError, yaml.YAMLError, ValueError, StopIteration):
        return None
    return dict(_flatten("", root))


def _parse_document(events: Iterator[yaml.Event]) -> dict[str, _Node]:
    next(events)
    next(events)
    root = _parse_node(next(events), events, 0)
    rest = list(events)
    if not isinstance(root, dict) or len(rest) > 2:  # noqa: PLR2004 -- the ends of one document and of the stream
        raise _RefusedError
    return root


def _parse_node(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> _Node:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or depth > _MAX_DEPTH:
        raise _RefusedError
    if isinstance(event, yaml.ScalarEvent):
        # An escape can encode a lone surrogate, which the Python loader accepts.
        return valid_text(str(event.value))
    if isinstance(event, yaml.SequenceStartEvent):
        return [_parse_node(item, events, depth + 1) for item in _until(yaml.SequenceEndEvent, events)]
    return _parse_mapping(events, depth)


def _parse_mapping(events: Iterator[yaml.Event], depth: int) -> dict[str, _Node]:
    mapping: dict[str, _Node] = {}
    for event in _until(yaml.MappingEndEvent, events):
        key = _parse_node(event, events, depth + 1)
        if not isinstance(key, str):
            raise _RefusedError
        mapping[key] = _parse_node(next(events), events, depth + 1)
    return mapping


def _until(end: type[yaml.Event], events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    for event in events:
        if isinstance(event, end):
            return
        yield event


def _flatten(prefix: str, node: Mapping[str, _Node]) -> Iterator[tuple[str, str | list[str]]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value if isinstance(value, str) else list(_leaves(value))


def _leaves(node: _Node) -> Iterator[str]:
    if isinstance(node, str):
        yield node
        return
    for item in node.values() if isinstance(node, dict) else node:
        yield from _leaves(item)
