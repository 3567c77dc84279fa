"""GGUF model files: the protocol of a model's file, files that the user provides, and the header.

The header is read for the few values that must be known before the model is loaded. The format is specified in
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Protocol

from memoryd_server.errors import EmbeddingUnavailable

DEFAULT_MODEL = "hf:ggml-org/embeddinggemma-300m-qat-q8_0-GGUF/embeddinggemma-300m-qat-Q8_0.gguf"


class ModelFile(Protocol):
    """A model's file, which may not exist yet."""

    @property
    def name(self) -> str:
        """Name that identifies the model in an index."""
        ...

    @property
    def downloading(self) -> bool:
        """Whether the file is being downloaded."""
        ...

    @property
    def reason(self) -> str:
        """Why the file is missing; empty if it exists."""
        ...

    @property
    def progress(self) -> str:
        """How much of the file has been downloaded; empty if that is not known. No I/O."""
        ...

    def path(self) -> Path:
        """Return the path of the file.

        Raises:
            EmbeddingUnavailable: the file does not exist.
        """
        ...

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call `call`, on any thread, when a download in the background is complete."""
        ...

    def close(self) -> None:
        """Stop a download."""
        ...


class LocalModelFile:
    """A file that the user provides."""

    downloading = False
    progress = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name

    @property
    def reason(self) -> str:
        """See `ModelFile`."""
        return "" if is_reachable_file(self._path) else f"the model {self._path} is missing"

    def path(self) -> Path:
        """See `ModelFile`."""
        if reason := self.reason:
            raise EmbeddingUnavailable(reason)
        return self._path

    def when_ready(self, call: Callable[[], None]) -> None:
        """See `ModelFile`. Nothing is downloaded."""

    def close(self) -> None:
        """See `ModelFile`."""


def is_reachable_file(path: Path) -> bool:
    """Return whether `path` is a file that can be reached."""
    try:
        return path.is_file()
    except OSError:
        return False


_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# Value types by number, as `struct` names them: u8 i8 u16 i16 u32 i32 f32 bool - - u64 i64 f64.
_SCALARS = "BbHhIif?..QqdX"
_MAX_KEYS = 10_000
_MAX_DIMENSIONS = 8
_MAX_STRING_BYTES = 1 << 24
_MAX_ELEMENTS = 1 << 32


class BadModelFile(ValueError):
    """The file is not a usable model; the message says why."""


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """A model's architecture, its window in tokens and the dimensions of its vectors."""

    architecture: str
    window: int
    dimensions: int


def read_header(path: Path) -> ModelHeader:
    """Return the header of a model file. Reads only as far as necessary.

    Raises:
        BadModelFile: the file is not a GGUF file, or lacks a required value.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        try:
            return _parse_header(file)
        except (struct.error, IndexError, OverflowError, RecursionError):
            raise BadModelFile(f"{path.name} is damaged or incomplete") from None


def _parse_header(file: BufferedReader) -> ModelHeader:
    _, keys = _counts(file)
    found: dict[str, Any] = {}
    for _ in range(min(keys, _MAX_KEYS)):
        key, kind = _string(file), _number(file, "I")
        value = _value(file, kind)
        if isinstance(value, (str, int)):
            found[key] = value
        header = _header_of(found)
        if header:
            return header
    raise BadModelFile(f"{Path(file.name).name} has no context length or no embedding length")


def has_tensor(path: Path, names: Collection[str]) -> bool:
    """Return whether a model file has a tensor with one of these names. Takes up to half a second.

    Raises:
        BadModelFile: the file is not a GGUF file.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        try:
            tensors, keys = _counts(file)
            for _ in range(min(keys, _MAX_KEYS)):
                _string(file)
                _value(file, _number(file, "I"))
            return any(_tensor_name(file) in names for _ in range(min(tensors, _MAX_KEYS)))
        except (struct.error, IndexError, OverflowError, RecursionError):
            raise BadModelFile(f"{path.name} is damaged or incomplete") from None


def _tensor_name(file: BufferedReader) -> str:
    name, dimensions = _string(file), _number(file, "I")
    # The size of each dimension, the type and the offset.
    file.seek(8 * min(dimensions, _MAX_DIMENSIONS) + 4 + 8, 1)
    return name


def _counts(file: BufferedReader) -> tuple[int, int]:
    """Return the numbers of tensors and of keys, which follow the magic number and the version."""
    magic, version = file.read(4), _number(file, "I")
    if magic != _MAGIC or version not in _VERSIONS:
        raise BadModelFile(f"{Path(file.name).name} is not a GGUF file of version 2 or 3")
    return _number(file, "Q"), _number(file, "Q")


def _header_of(found: dict[str, Any]) -> ModelHeader | None:
    architecture = found.get("general.architecture")
    window = found.get(f"{architecture}.context_length")
    dimensions = found.get(f"{architecture}.embedding_length")
    if not (isinstance(architecture, str) and isinstance(window, int) and isinstance(dimensions, int)):
        return None
    if window < 1 or dimensions < 1:
        raise BadModelFile("the model's context and embedding lengths must be at least 1")
    return ModelHeader(architecture, window, dimensions)


def _value(file: BufferedReader, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _skip_array(file)
    return _number(file, _SCALARS[kind])


def _skip_array(file: BufferedReader) -> None:
    kind, count = _number(file, "I"), _number(file, "Q")
    if count > _MAX_ELEMENTS:
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
    if length > _MAX_STRING_BYTES:
        raise BadModelFile(f"{Path(file.name).name} is damaged or incomplete")
    return str(file.read(length), "utf-8", "replace")
