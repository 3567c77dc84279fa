"""The few facts in a GGUF file's head that must be known before the model is loaded.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# Value types by number, as `struct` names them: u8 i8 u16 i16 u32 i32 f32 bool - - u64 i64 f64.
_SCALARS = "BbHhIif?..QqdX"
_MOST_KEYS = 10_000
_LONGEST_STRING = 1 << 24
_MOST_ELEMENTS = 1 << 32


class BadModelFile(ValueError):
    """The file is no model that we can use; the message says why."""


@dataclass(frozen=True, slots=True)
class ModelHead:
    """What a model says of itself: tokens that it reads at once, components of its vectors."""

    architecture: str
    window: int
    dimensions: int


def read_head(path: Path) -> ModelHead:
    """The head of a model's file. Reads no further than it has to.

    Raises:
        BadModelFile: it is no GGUF, or does not say what it must.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        try:
            return _head(file)
        except (struct.error, IndexError, OverflowError, RecursionError):
            raise BadModelFile(f"{path.name} is damaged, or cut short") from None


def _head(file: BufferedReader) -> ModelHead:
    magic, version = file.read(4), _number(file, "I")
    if magic != _MAGIC or version not in _VERSIONS:
        raise BadModelFile(f"{Path(file.name).name} is not a GGUF file of version 2 or 3")
    _number(file, "Q")
    found: dict[str, Any] = {}
    for _ in range(min(_number(file, "Q"), _MOST_KEYS)):
        key, kind = _string(file), _number(file, "I")
        value = _value(file, kind)
        if isinstance(value, (str, int)):
            found[key] = value
        head = _complete(found)
        if head:
            return head
    raise BadModelFile(f"{Path(file.name).name} does not tell its context and embedding lengths")


def _complete(found: dict[str, Any]) -> ModelHead | None:
    architecture = found.get("general.architecture")
    window = found.get(f"{architecture}.context_length")
    dimensions = found.get(f"{architecture}.embedding_length")
    if not (isinstance(architecture, str) and isinstance(window, int) and isinstance(dimensions, int)):
        return None
    if window < 1 or dimensions < 1:
        raise BadModelFile("the model's context and embedding lengths must be at least 1")
    return ModelHead(architecture, window, dimensions)


def _value(file: BufferedReader, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _skip_array(file)
    return _number(file, _SCALARS[kind])


def _skip_array(file: BufferedReader) -> None:
    kind, count = _number(file, "I"), _number(file, "Q")
    if count > _MOST_ELEMENTS:
        raise OverflowError
    if kind in {_STRING, _ARRAY}:
        for _ in range(count):
            _value(file, kind)
    else:
        file.seek(count * struct.calcsize("<" + _SCALARS[kind]), 1)


def _number(file: BufferedReader, code: str) -> Any:
    return struct.unpack("<" + code, file.read(struct.calcsize("<" + code)))[0]


def _string(file: BufferedReader) -> str:
    length = _number(file, "Q")
    if length > _LONGEST_STRING:
        raise BadModelFile(f"{Path(file.name).name} is damaged, or cut short")
    return str(file.read(length), "utf-8", "replace")
