"""What every block of settings has in common."""

from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from .rules import Rule


class Block(BaseModel):
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


def keys(block: type[Block]) -> Iterator[tuple[str, str, FieldInfo]]:
    """The name in Python, the key in files, and the field, in the order of declaration."""
    for name, field in block.model_fields.items():
        yield name, field.alias or name, field


def nested(annotation: object) -> type[Block] | None:
    """The block that a field holds, alone, optional or in an array; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Block):
        return annotation
    return next((found for part in get_args(annotation) if (found := nested(part))), None)


def rules_of(field: FieldInfo) -> list[Rule]:
    """The rules in a field's annotation."""
    return [rule for rule in field.metadata if isinstance(rule, Rule)]
