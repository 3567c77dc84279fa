"""Read the elements of a large JSON array one at a time, with bounded memory and in linear time.

The bytes of the array are split at its top level, which only takes the positions of quotes and brackets, and each
element is then parsed alone. An element that is too large or is invalid JSON is reported and left out, and reading goes
on behind it: a damaged conversation does not cost the thousands that follow.

A parser of events such as ijson could not do that. It ends at the first error, which includes bytes that are not
UTF-8 and NaN, and keeps the whole of an unfinished string in memory, which it reads again for each block of bytes.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from memoryd_server.foreign_text import parse_json
from memoryd_server.imports.conversation import Imported, Unreadable
from memoryd_server.imports.input_files import InputFile

MAX_ELEMENT_BYTES = 64 * 1024 * 1024
"""Maximum size of the JSON of one element. Parsing it takes several times as much memory, at most 1 GB."""
MAX_UNREADABLE = 100
"""Maximum number of unreadable parts of one file that are reported one by one."""

_BLOCK_BYTES = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"

_QUOTE, _BACKSLASH, _COMMA, _LIST, _LIST_END = b'"\\,[]'
_OPENING = b"[{"
# The rest of a string, up to its closing quote or the end of the block.
_STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
# Whole strings and other text, up to a bracket or to a string that does not end in the block.
_WITHIN = re.compile(rb'(?:[^"\[\]{}]+|"[^"\\]*(?:\\.[^"\\]*)*")*', re.DOTALL)
# The same between elements, where a comma also counts.
_BETWEEN = re.compile(rb'(?:[^"\[\]{},]+|"[^"\\]*(?:\\.[^"\\]*)*")*', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Element:
    """A JSON object in the array; `number` counts all elements from 1."""

    number: int
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """An element that was left out, or with `number` 0 a fault of the file. `reason` is a clause."""

    number: int
    reason: str


def read_objects(file: InputFile, noun: str) -> Iterator[tuple[str, dict[str, Any]] | Unreadable]:
    """Yield the JSON objects of a file, as `read_elements`, each with its place for messages: the file and its number.

    `noun` is what the objects are. An error of the file becomes an `Unreadable`.
    """
    try:
        with file.open() as stream:
            for each in read_elements(stream):
                place = f"{file.name}, {noun} {each.number}" if each.number else file.name
                yield (place, each.value) if isinstance(each, Element) else Unreadable(place, each.reason)
    except OSError as error:
        yield Unreadable(file.name, f"it cannot be read: {error.strerror or error}")


def limit_unreadable(items: Iterable[Imported], place: str) -> Iterator[Imported]:
    """Yield `items` with at most `MAX_UNREADABLE` unreadable ones, and then the number of the others."""
    count = 0
    for item in items:
        count += isinstance(item, Unreadable)
        if not isinstance(item, Unreadable) or count <= MAX_UNREADABLE:
            yield item
    if count > MAX_UNREADABLE:
        yield Unreadable(place, f"{count - MAX_UNREADABLE:,} more of its parts cannot be read")


def read_elements(stream: BinaryIO, max_bytes: int = MAX_ELEMENT_BYTES) -> Iterator[Element | Fault]:
    """Yield the objects in the JSON array in `stream`, or if it holds no array, the objects themselves.

    Strings are valid text, and nesting, numbers and the number of lists are bounded as by `parse_json`. An error of the
    stream becomes a `Fault`, after which nothing follows.
    """
    splitter = _Splitter(max_bytes)
    number = 0
    try:
        while block := stream.read(_BLOCK_BYTES):
            for raw in splitter.split(block):
                number += 1
                yield _parse(number, raw, max_bytes)
    except OSError as error:
        yield Fault(0, f"reading fails: {error.strerror or error}")
        return
    yield from _parse_rest(splitter, number, max_bytes)


def _parse_rest(splitter: "_Splitter", number: int, max_bytes: int) -> Iterator[Element | Fault]:
    if splitter.is_nested:
        yield Fault(number + 1, "the file ends in the middle of it; the download may be incomplete")
        return
    if splitter.has_rest:
        number += 1
        yield _parse(number, splitter.take(), max_bytes)
    if splitter.is_list and not splitter.is_complete:
        yield Fault(0, "the file ends before the end of its list; the download may be incomplete")
    elif number == 0 and not splitter.is_list:
        yield Fault(0, "the file is empty")
    if splitter.has_more:
        yield Fault(0, "other text follows the end of its list")


def _parse(number: int, raw: bytes | None, max_bytes: int) -> Element | Fault:
    if raw is None:
        return Fault(number, f"it has more than {max_bytes // 1024 // 1024:,} MiB")
    try:
        value = parse_json(raw)
    except ValueError as error:
        # The text of the error is ours or that of the standard library, which does not quote the input.
        return Fault(number, f"it is not valid JSON ({error})")
    return Element(number, value) if isinstance(value, dict) else Fault(number, "it is not a JSON object")


class _Splitter:
    """Split the bytes of a JSON array, which arrive in blocks, into those of its elements. Checks nothing else.

    An element of the array ends at a comma or at the end of the array. Without an array, `is_list` is False, and a
    value ends at the bracket that closes it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._is_started = False
        self._in_string = False
        self._is_escaped = False
        self._depth = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self.is_list = False
        self.is_complete = False
        self.has_more = False

    @property
    def has_rest(self) -> bool:
        """Whether an element has begun and not ended."""
        return self._size > 0

    @property
    def is_nested(self) -> bool:
        """Whether a bracket or a string is open."""
        return self._depth > 0 or self._in_string

    def split(self, block: bytes) -> Iterator[bytes | None]:
        """Yield each element that ends in `block`; None in place of one that is too large."""
        if not self._is_started:
            block = block.removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANKS)
            if not block:
                return
            self._is_started = True
            self.is_list = block[0] == _LIST
            block = block[self.is_list :]
        start = position = 0
        while not self.is_complete and (position := self._skip(block, position)) < len(block):
            position += 1
            if self._ends_element(block[position - 1]):
                self._add(block[start : position - self.is_list])
                start = position
                if self.has_rest:
                    yield self.take()
        if self.is_complete:
            self.has_more = self.has_more or bool(block[start:].strip(_BLANKS))
        else:
            self._add(block[start:])

    def take(self) -> bytes | None:
        """Return the element that was collected, and begin the next one; None if it is too large."""
        element = b"".join(self._pieces) if self._size <= self._max_bytes else None
        self._pieces.clear()
        self._size = 0
        return element

    def _add(self, piece: bytes) -> None:
        piece = piece if self._size else piece.lstrip(_BLANKS)
        self._size += len(piece)
        if self._size > self._max_bytes:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _skip(self, block: bytes, position: int) -> int:
        """Return the position of the next quote, bracket or comma that matters; the length of `block` if none does."""
        if self._in_string:
            position = _end(_STRING.match(block, position + self._is_escaped))
            self._is_escaped = position < len(block) and block[position] == _BACKSLASH
            if position >= len(block) or self._is_escaped:
                # The string goes on in the next block, perhaps with the character that the backslash escapes.
                return len(block)
            self._in_string = False
            position += 1
        if self.is_list and not self._depth:
            return _end(_BETWEEN.match(block, position))
        return _end(_WITHIN.match(block, position))

    def _ends_element(self, byte: int) -> bool:
        if byte == _QUOTE:
            self._in_string = True
        elif byte in _OPENING:
            self._depth += 1
        elif byte == _COMMA:
            return True
        elif self._depth:
            self._depth -= 1
            return not self._depth and not self.is_list
        else:
            self.is_complete = self.is_list and byte == _LIST_END
            return self.is_complete or not self.is_list
        return False


def _end(found: re.Match[bytes] | None) -> int:
    # The patterns match any text, if only an empty part of it.
    return found.end() if found else 0
