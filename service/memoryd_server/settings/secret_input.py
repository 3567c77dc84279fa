"""`SecretInput`: the type of a setting that is a secret or a reference to one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, SecretStr, ValidatorFunctionWrapHandler
from pydantic_core import CoreSchema, core_schema

from memoryd_server.credentials import MalformedReference, SecretReference, parse_reference

SecretValue = SecretStr | SecretReference | MalformedReference
"""A secret as written: a text, or an object that refers to the secret."""


@dataclass(frozen=True, slots=True)
class SecretInput:
    """The annotation of a field with a `SecretValue`. An object that is no valid reference is not an error.

    OpenClaw's file with such an object has to keep working; nothing is sent with the key that it stands for.
    """

    def __get_pydantic_core_schema__(self, _source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.nullable_schema(handler.generate_schema(SecretStr))
        return core_schema.no_info_wrap_validator_function(_read, text)


def _read(raw: Any, read_text: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(raw, SecretReference | MalformedReference):
        return raw
    return parse_reference(raw) if isinstance(raw, Mapping) else read_text(raw)
