"""Front matter: a YAML block at the very start of a file, taken as metadata and not as text.

Nothing that a file holds may cost much or fail: a block that is too large, too deep, not YAML, not a mapping, or that
uses anchors (with which a few lines grow to gigabytes) is text like any other.
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
# The base loader leaves scalars as they are written ("1.10", "2026-02-08"); the C one is ten times faster.
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_Node = str | list["_Node"] | dict[str, "_Node"]


class _RefusedError(Exception):
    """The block is not front matter."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A file's metadata, and its text without them.

    Keys of nested mappings are joined by dots. `first_line` is the line of the file at which `body` begins.
    """

    metadata: Mapping[str, str | list[str]]
    body: str
    first_line: int


def split_front_matter(text: str) -> FrontMatter:
    """Returns the metadata at the start of `text`, if there are any, and the text below them. Never raises."""
    opening = _OPENING.match(text) if text.startswith(("---", _BOM)) else None
    closing = _closing_line(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return FrontMatter({}, text, 1)
    metadata = _metadata(text[opening.end() : closing])
    if metadata is None:
        return FrontMatter({}, text, 1)
    end = text.find("\n", closing)
    if end < 0:
        end = len(text)
    return FrontMatter(metadata, text[end + 1 :], text.count("\n", 0, end) + 2)


def _closing_line(text: str, start: int) -> int | None:
    # A little beyond the limit, so that a longer line which only begins like a closing one is seen to be longer.
    closing = _CLOSING.search(text, start, start + MAX_FRONT_MATTER_BYTES + 8)
    return closing.start() if closing else None


def _metadata(block: str) -> dict[str, str | list[str]] | None:
    try:
        if len(block.encode()) > MAX_FRONT_MATTER_BYTES:
            return None
        events = iter(yaml.parse(block, Loader=_LOADER))
        root = _document(events)
    except (_RefusedError, yaml.YAMLError, ValueError, StopIteration):
        return None
    return dict(_flatten("", root))


def _document(events: Iterator[yaml.Event]) -> dict[str, _Node]:
    next(events)
    next(events)
    root = _node(next(events), events, 0)
    rest = list(events)
    if not isinstance(root, dict) or len(rest) > 2:  # noqa: PLR2004 -- the ends of one document and of the stream
        raise _RefusedError
    return root


def _node(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> _Node:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or depth > _MAX_DEPTH:
        raise _RefusedError
    if isinstance(event, yaml.ScalarEvent):
        # An escape can spell a lone surrogate, which the loader in Python lets through.
        return valid_text(str(event.value))
    if isinstance(event, yaml.SequenceStartEvent):
        return [_node(item, events, depth + 1) for item in _until(yaml.SequenceEndEvent, events)]
    return _mapping(events, depth)


def _mapping(events: Iterator[yaml.Event], depth: int) -> dict[str, _Node]:
    mapping: dict[str, _Node] = {}
    for event in _until(yaml.MappingEndEvent, events):
        key = _node(event, events, depth + 1)
        if not isinstance(key, str):
            raise _RefusedError
        mapping[key] = _node(next(events), events, depth + 1)
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
