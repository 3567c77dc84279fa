"""The base class of settings blocks, and the rules for the values of their fields.

A rule is part of a field's annotation: `Annotated[int, IntRange(1, 20)]`. Validation applies it, the loader uses it to
find the values that it changed, and docs/configuration.md quotes its bounds, so the three always agree. The functions
at the end format key paths and suggestions for messages.
"""

import dataclasses
import difflib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

C = TypeVar("C")

# The largest safe integer of JavaScript, which OpenClaw can write and SQLite and protobuf can hold.
LARGEST = 2**53 - 1
CLAMP = object()

_UNIT_MS: Mapping[str, int] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNIT_BYTES: Mapping[str, int] = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_DURATION = re.compile(rf"{_NUMBER}|(?:{_NUMBER}\s*(?:ms|s|m|h|d)\s*)+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgt]?)b?", re.ASCII)


class ValueRule(ABC):
    """Converts a value of a file. A value of the wrong type is returned unchanged, and pydantic refuses it.

    `file_type` is the type of the value in a file if it differs from the type in memory.
    """

    file_type: ClassVar[str] = ""

    @property
    @abstractmethod
    def expected(self) -> str:
        """Describe the allowed values, in words that follow "is not"."""

    @abstractmethod
    def apply(self, raw: object) -> object:
        """Return the value to use instead of `raw`."""

    def complaint(self, raw: object) -> str | None:
        """Return a warning if `raw` is not used unchanged, else None."""
        used = self.apply(raw)
        return None if used == raw else f"{_shown(raw)} is not {self.expected}; {_shown(used)} is used"

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.apply, handler(source))


@dataclass(frozen=True, slots=True)
class IntRange(ValueRule):
    """An integer. Fractions are rounded down.

    A value out of bounds is replaced by the nearest allowed value, or by `fallback` if it is set.
    """

    low: int = 0
    high: int = LARGEST
    fallback: object = CLAMP

    @property
    def bounds(self) -> str:
        """Return the bounds as text."""
        return f"at least {self.low}" if self.high == LARGEST else f"{self.low}..{self.high}"

    @property
    def expected(self) -> str:
        """Describe the type and the bounds."""
        return f"a whole number, {self.bounds}"

    def apply(self, raw: object) -> object:
        """Return the nearest allowed integer, or the fallback."""
        if not _is_number(raw):
            return raw
        floored = math.floor(raw)
        if self.fallback is not CLAMP and not self.low <= floored <= self.high:
            return self.fallback
        return min(max(floored, self.low), self.high)


@dataclass(frozen=True, slots=True)
class FloatRange(ValueRule):
    """A number. A value out of bounds is replaced by the nearest allowed value."""

    low: float
    high: float

    @property
    def bounds(self) -> str:
        """Return the bounds as text."""
        return f"{self.low:g}..{self.high:g}"

    @property
    def expected(self) -> str:
        """Describe the bounds."""
        return f"within {self.bounds}"

    def apply(self, raw: object) -> object:
        """Return the nearest allowed number."""
        return min(max(raw, self.low), self.high) if _is_number(raw) else raw


@dataclass(frozen=True, slots=True)
class Duration(ValueRule):
    """A duration such as "90s", "5m" or "1h30m", in minutes if it has no unit. It is converted to milliseconds."""

    file_type: ClassVar[str] = "string"
    fallback: str

    @property
    def expected(self) -> str:
        """Return an example."""
        return 'a duration such as "90s" or "5m"'

    def apply(self, raw: object) -> object:
        """Return milliseconds: those of the fallback if the string is not a duration.

        Raises:
            ValueError: `raw` is not a string. A bare number might be in another unit.
        """
        if not isinstance(raw, str):
            raise ValueError(f"expected {self.expected}")  # noqa: TRY004 -- pydantic collects ValueError only
        parsed = duration_ms(raw)
        return duration_ms(self.fallback) if parsed is None else parsed

    def complaint(self, raw: object) -> str | None:
        """Return a warning if the string is not a duration."""
        if not isinstance(raw, str) or duration_ms(raw) is not None:
            return None
        return f"{_shown(raw)} is not {self.expected}; {_shown(self.fallback)} is used"


@dataclass(frozen=True, slots=True)
class Size(ValueRule):
    """A number of bytes, or a string such as "2mb" (1 kb is 1024 bytes).

    Any other value is replaced by the fallback.
    """

    file_type: ClassVar[str] = "integer or string"
    fallback: int

    @property
    def expected(self) -> str:
        """Return an example."""
        return 'a number of bytes or a size such as "2mb"'

    def apply(self, raw: object) -> object:
        """Return bytes."""
        if isinstance(raw, str):
            parsed = size_bytes(raw)
            return self.fallback if parsed is None else parsed
        return IntRange(0, fallback=self.fallback).apply(raw)

    def complaint(self, raw: object) -> str | None:
        """Return a warning if the string is not a size, or the number is out of bounds."""
        if isinstance(raw, str):
            return None if size_bytes(raw) is not None else f"{_shown(raw)} is not {self.expected}; the default is used"
        return IntRange(0, fallback=self.fallback).complaint(raw)


@dataclass(frozen=True, slots=True)
class OneOf(ValueRule):
    """One of several words. Any other word is replaced by the fallback."""

    words: tuple[str, ...]
    fallback: str

    @property
    def expected(self) -> str:
        """List the words."""
        return "one of " + ", ".join(self.words)

    def apply(self, raw: object) -> object:
        """Return the word, or the fallback."""
        return self.fallback if isinstance(raw, str) and raw not in self.words else raw


@dataclass(frozen=True, slots=True)
class KnownWord(ValueRule):
    """A word that should be known. An unknown word is kept with a warning, because a newer OpenClaw may know it.

    The warning ends with the `consequence`. With a `separator`, any text may follow the word after it.
    """

    words: tuple[str, ...]
    consequence: str
    separator: str = ""

    @property
    def expected(self) -> str:
        """List the words."""
        return "one of " + ", ".join(self.words)

    def apply(self, raw: object) -> object:
        """Return the word."""
        return raw

    def complaint(self, raw: object) -> str | None:
        """Return a warning if the word is unknown."""
        if not isinstance(raw, str):
            return None
        word = raw.partition(self.separator)[0] if self.separator else raw
        if word in self.words:
            return None
        return (
            f"{_shown(raw)} is not known to this version of memoryd{did_you_mean(word, self.words)}; {self.consequence}"
        )


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration string; None if it is not a duration."""
    cleaned = text.strip().lower()
    if not _DURATION.fullmatch(cleaned):
        return None
    parts = _DURATION_PART.findall(cleaned)
    return min(int(sum(float(number) * _UNIT_MS[unit or "m"] for number, unit in parts)), LARGEST)


def size_bytes(text: str) -> int | None:
    """Return the bytes of a size string; None if it is not a size."""
    found = _SIZE.fullmatch(text.strip().lower())
    return min(int(float(found[1]) * _UNIT_BYTES[found[2]]), LARGEST) if found else None


def _is_number(raw: object) -> TypeGuard[int | float]:
    return isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)


def _shown(value: object) -> str:
    text = "the default" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "…"  # noqa: PLR2004 -- a message, not a protocol


class SettingsBlock(BaseModel):
    """One object of a settings file: frozen, with strict types, camelCase keys in files and snake_case names in Python.

    The docstring of a field ends in `<unit, bounds>; default <value>.`; docs/configuration.md is generated from it.
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )


def keys(block: type[SettingsBlock]) -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield the Python name, the key in files, and the field, in the order of declaration."""
    for name, field in block.model_fields.items():
        yield name, field.alias or name, field


def nested(annotation: object) -> type[SettingsBlock] | None:
    """Return the block type of a field, which may be optional or in an array; None for other values."""
    if isinstance(annotation, type) and issubclass(annotation, SettingsBlock):
        return annotation
    return next((found for part in get_args(annotation) if (found := nested(part))), None)


def rules_of(field: FieldInfo) -> list[ValueRule]:
    """Return the rules in a field's annotation."""
    return [rule for rule in field.metadata if isinstance(rule, ValueRule)]


def fill(config: type[C], *blocks: SettingsBlock, **values: object) -> C:
    """Return a `config`, which is a dataclass: each field from `values`, else from the first block that has it.

    A field `<name>_seconds` is also filled from a block's `<name>_ms`.

    Raises:
        TypeError: a field is neither in `values` nor in a block, or a name in `values` is not a field.
    """
    fields = dataclasses.fields(cast("type[Any]", config))
    return config(
        **{field.name: _value_of(field.name, blocks) for field in fields if field.name not in values} | values
    )


def _value_of(name: str, blocks: Iterable[SettingsBlock]) -> object:
    in_ms = f"{name.removesuffix('_seconds')}_ms" if name.endswith("_seconds") else ""
    for block in blocks:
        if name in type(block).model_fields:
            return getattr(block, name)
        if in_ms in type(block).model_fields:
            return getattr(block, in_ms) / 1000
    raise TypeError(f"no block has the field {name}")


KeyPath = tuple[str, ...]


def dotted(path: Sequence[str]) -> str:
    """Format `("agents", "list", "[main]", "workspace")` as `agents.list[main].workspace`."""
    text = ""
    for part in path:
        text += part if part.startswith("[") or not text else f".{part}"
    return text


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that is closest to `word`, ignoring case; None if none is close."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word[:100].lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean "x"?)`; empty if no known word is close."""
    found = nearest(word, known)
    return f' (did you mean "{found}"?)' if found else ""


def kind_of(value: object) -> str:
    """Return the JSON type of a value with its article. The value itself may be a secret and is not shown."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, dict) else "an array"
