"""References to secrets, OpenClaw's SecretRefs: their grammar, and JSON pointers.

A reference is `{source, provider, id}`: the kind of source, the alias of a source in `secrets.providers`, and the id of
the secret in that source. References contain no secrets, and may be shown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Source = Literal["env", "file", "exec", "store"]

SINGLE_VALUE = "value"
"""The id of the only secret in a file whose mode is `singleValue`."""

MAX_ID_CHARS = 1024

_KEYS = frozenset({"source", "provider", "id"})
_ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,127}", re.ASCII)
_EXEC_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/#-]{0,255}", re.ASCII)
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+")
_IDS: Mapping[Source, str] = {
    "env": "a name of capital letters, digits and _",
    "file": 'a JSON pointer such as /openai/apiKey, or "value"',
    "exec": "a name of letters, digits and ._:/#- without the parts . and ..",
    "store": "a name of capital letters, digits and _",
}
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_VARIABLE = re.compile(r"\$(?:\{([A-Z][A-Z0-9_]{0,127})\}|([A-Z][A-Z0-9_]{0,127}))", re.ASCII)


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A reference that conforms to the grammar."""

    source: Source
    provider: str
    id: str

    def __str__(self) -> str:
        """Return `source:provider:id`."""
        return f"{self.source}:{self.provider}:{self.id}"


@dataclass(frozen=True, slots=True)
class MalformedReference:
    """An object in the place of a secret that is not a reference. `reason` is shown; it contains none of its values."""

    reason: str


def parse_reference(
    value: Mapping[str, Any], defaults: Mapping[str, str] | None = None
) -> SecretReference | MalformedReference:
    """Return the reference that an object describes.

    With `defaults`, which has the default alias of each source, an object without `provider` refers to that alias.
    """
    source = next((each for each in get_args(Source) if each == value.get("source")), None)
    provider, name = value.get("provider"), value.get("id")
    if source is None:
        return MalformedReference('its "source" is not env, file, exec or store')
    if provider is None and defaults is not None:
        provider = defaults.get(source, "default")
    elif provider is None:
        return MalformedReference('it has no "provider"')
    if value.keys() - _KEYS:
        return MalformedReference("it has a key other than source, provider and id")
    if not isinstance(provider, str) or not _ALIAS.fullmatch(provider):
        return MalformedReference('its "provider" is not the alias of an entry of secrets.providers')
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID_CHARS or not _is_id(source, name):
        return MalformedReference(f'its "id" is not {_IDS[source]}, as the source {source} requires')
    return SecretReference(source, provider, name)


def _is_id(source: Source, name: str) -> bool:
    if source == "file":
        return name == SINGLE_VALUE or _POINTER.fullmatch(name) is not None
    if source == "exec":
        return _EXEC_ID.fullmatch(name) is not None and not {".", ".."} & set(name.split("/"))
    return _NAME.fullmatch(name) is not None


def environment_reference(text: str, alias: str) -> SecretReference | None:
    """Return the reference that `${NAME}` or `$NAME` means; None for any other text.

    `alias` is the default alias of variables.
    """
    found = _VARIABLE.fullmatch(text.strip())
    return SecretReference("env", alias, found[1] or found[2]) if found else None


def at_pointer(document: Any, pointer: str) -> Any:
    """Return the value at an RFC 6901 pointer, which starts with `/`.

    Raises:
        LookupError: there is no such value.
    """
    value = document
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value[key]
        elif isinstance(value, list) and _INDEX.fullmatch(key):
            value = value[int(key)]
        else:
            raise LookupError(pointer)
    return value
