"""Bounds and types of a setting; the base block.

What a value must be, and what is made of one that is not: the bounds of the settings.

A rule stands in a field's annotation, `Annotated[int, Whole(1, 20)]`. Validation applies it, the loader asks it which
values it changed, and docs/configuration.md quotes it, so that the three cannot disagree.

What every block of settings has in common.

The words of complaints about settings: where a key stands, and which key was meant.
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

# JavaScript's largest safe integer: what the reference can write, and what SQLite and protobuf can hold.
LARGEST = 2**53 - 1
CLAMP = object()

_UNIT_MS: Mapping[str, int] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNIT_BYTES: Mapping[str, int] = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_DURATION = re.compile(rf"{_NUMBER}|(?:{_NUMBER}\s*(?:ms|s|m|h|d)\s*)+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgt]?)b?", re.ASCII)


class ValueRule(ABC):
    """Turns what stands in a file into what is used; a value of the wrong type passes, for pydantic to refuse.

    `written` is the type in a file where it is another than the one in memory.
    """

    written: ClassVar[str] = ""

    @property
    @abstractmethod
    def expected(self) -> str:
        """The allowed values, in words that follow "is not"."""

    @abstractmethod
    def apply(self, raw: object) -> object:
        """The value to use for `raw`."""

    def complaint(self, raw: object) -> str | None:
        """What to warn of when `raw` is not used as it stands, else None."""
        used = self.apply(raw)
        return None if used == raw else f"{_shown(raw)} is not {self.expected}; {_shown(used)} is used"

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.apply, handler(source))


@dataclass(frozen=True, slots=True)
class IntRange(ValueRule):
    """A whole number; fractions are floored, what lies outside is clamped, or replaced by `fallback` when given."""

    low: int = 0
    high: int = LARGEST
    fallback: object = CLAMP

    @property
    def bounds(self) -> str:
        """The least and the greatest number."""
        return f"at least {self.low}" if self.high == LARGEST else f"{self.low}..{self.high}"

    @property
    def expected(self) -> str:
        """The kind of number and its bounds."""
        return f"a whole number, {self.bounds}"

    def apply(self, raw: object) -> object:
        """The nearest allowed number, or the fallback."""
        if not _is_number(raw):
            return raw
        floored = math.floor(raw)
        if self.fallback is not CLAMP and not self.low <= floored <= self.high:
            return self.fallback
        return min(max(floored, self.low), self.high)


@dataclass(frozen=True, slots=True)
class FloatRange(ValueRule):
    """A number; what lies outside is clamped."""

    low: float
    high: float

    @property
    def bounds(self) -> str:
        """The least and the greatest number."""
        return f"{self.low:g}..{self.high:g}"

    @property
    def expected(self) -> str:
        """The bounds."""
        return f"within {self.bounds}"

    def apply(self, raw: object) -> object:
        """The nearest allowed number."""
        return min(max(raw, self.low), self.high) if _is_number(raw) else raw


@dataclass(frozen=True, slots=True)
class Duration(ValueRule):
    """A duration string such as "90s", "5m" or "1h30m", minutes when no unit is given; becomes milliseconds."""

    written: ClassVar[str] = "string"
    fallback: str

    @property
    def expected(self) -> str:
        """An example."""
        return 'a duration such as "90s" or "5m"'

    def apply(self, raw: object) -> object:
        """Milliseconds; those of the fallback for a string that is no duration.

        Raises:
            ValueError: not a string, so that a bare number is not taken for the wrong unit.
        """
        if not isinstance(raw, str):
            raise ValueError(f"expected {self.expected}")  # noqa: TRY004 -- pydantic collects ValueError only
        parsed = duration_ms(raw)
        return duration_ms(self.fallback) if parsed is None else parsed

    def complaint(self, raw: object) -> str | None:
        """What to warn of when the string is no duration."""
        if not isinstance(raw, str) or duration_ms(raw) is not None:
            return None
        return f"{_shown(raw)} is not {self.expected}; {_shown(self.fallback)} is used"


@dataclass(frozen=True, slots=True)
class Size(ValueRule):
    """A number of bytes, or a string such as "2mb" (of 1024); anything else becomes the fallback."""

    written: ClassVar[str] = "integer or string"
    fallback: int

    @property
    def expected(self) -> str:
        """An example."""
        return 'a number of bytes or a size such as "2mb"'

    def apply(self, raw: object) -> object:
        """Bytes."""
        if isinstance(raw, str):
            parsed = size_bytes(raw)
            return self.fallback if parsed is None else parsed
        return IntRange(0, fallback=self.fallback).apply(raw)

    def complaint(self, raw: object) -> str | None:
        """What to warn of when the string is no size, or the number none of bytes."""
        if isinstance(raw, str):
            return None if size_bytes(raw) is not None else f"{_shown(raw)} is not {self.expected}; the default is used"
        return IntRange(0, fallback=self.fallback).complaint(raw)


@dataclass(frozen=True, slots=True)
class OneOf(ValueRule):
    """One of a few words; any other word becomes the fallback."""

    words: tuple[str, ...]
    fallback: str

    @property
    def expected(self) -> str:
        """The words."""
        return "one of " + ", ".join(self.words)

    def apply(self, raw: object) -> object:
        """The word, or the fallback."""
        return self.fallback if isinstance(raw, str) and raw not in self.words else raw


@dataclass(frozen=True, slots=True)
class KnownWord(ValueRule):
    """A word that should be one of those known but is kept when it is not: a newer reference may know more."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The words."""
        return "one of " + ", ".join(self.words)

    def apply(self, raw: object) -> object:
        """The word itself."""
        return raw

    def complaint(self, raw: object) -> str | None:
        """What to warn of when the word is not known."""
        if not isinstance(raw, str) or raw in self.words:
            return None
        return f"{_shown(raw)} is not known to this version of memoryd{did_you_mean(raw, self.words)}"


def duration_ms(text: str) -> int | None:
    """Milliseconds of a duration string, or None when it is none."""
    cleaned = text.strip().lower()
    if not _DURATION.fullmatch(cleaned):
        return None
    parts = _DURATION_PART.findall(cleaned)
    return min(int(sum(float(number) * _UNIT_MS[unit or "m"] for number, unit in parts)), LARGEST)


def size_bytes(text: str) -> int | None:
    """Bytes of a size string, or None when it is none."""
    found = _SIZE.fullmatch(text.strip().lower())
    return min(int(float(found[1]) * _UNIT_BYTES[found[2]]), LARGEST) if found else None


def _is_number(raw: object) -> TypeGuard[int | float]:
    return isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)


def _shown(value: object) -> str:
    text = "the default" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "…"  # noqa: PLR2004 -- a message, not a protocol


class SettingsBlock(BaseModel):
    """One object of a settings file: frozen, strict in types, camelCase outside and snake_case inside.

    The last sentence of a field's docstring is `<unit, bounds>; default <value>.`; docs/configuration.md is made of it.
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
    """The name in Python, the key in files, and the field, in the order of declaration."""
    for name, field in block.model_fields.items():
        yield name, field.alias or name, field


def nested(annotation: object) -> type[SettingsBlock] | None:
    """The block that a field holds, alone, optional or in an array; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, SettingsBlock):
        return annotation
    return next((found for part in get_args(annotation) if (found := nested(part))), None)


def rules_of(field: FieldInfo) -> list[ValueRule]:
    """The rules in a field's annotation."""
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
    """`("agents", "list", "[main]", "workspace")` as `agents.list[main].workspace`."""
    text = ""
    for part in path:
        text += part if part.startswith("[") or not text else f".{part}"
    return text


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word closest to `word`, whatever its case, or None when none is close."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word[:100].lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)`, or nothing when no known word is close."""
    found = nearest(word, known)
    return f' (did you mean "{found}"?)' if found else ""


def kind_of(value: object) -> str:
    """The JSON type of a value with its article; the value itself may be a secret and is never shown."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, dict) else "an array"
