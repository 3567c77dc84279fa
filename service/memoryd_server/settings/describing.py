"""Settings as lines to print: flat, and with nothing in them that must not be seen."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import SecretStr

from .block import Block, keys
from .words import Path as KeyPath

MASK = "***"

# `https://user:secret@host` and `?key=secret`: credentials that stand in an address.
_USERINFO = re.compile(r"//[^/?#]*@")
_QUERY = re.compile(r"(?<=[?&])([^=&#\s]++)(=[^&#\s]*)?")


def flattened(block: Block, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    """The path and value of everything in a block that is not a block itself, by the keys that files use."""
    for name, key, _ in keys(type(block)):
        value = getattr(block, name)
        if isinstance(value, Block) and not _is_whole(key):
            yield from flattened(value, (*path, key))
        else:
            yield (*path, key), value


def masked(value: object) -> object:
    """A value ready for JSON. A secret becomes `***`, also one within an address."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Block):
        return {key: masked(getattr(value, name)) for name, key, _ in keys(type(value))}
    if isinstance(value, Mapping):
        return {key: masked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return _without_credentials(str(value)) if isinstance(value, str | Path) else value


def _without_credentials(text: str) -> str:
    if "://" not in text:
        return text
    shown = _USERINFO.sub(f"//{MASK}@", text)
    return _QUERY.sub(lambda named: named[0] if named[2] is None else f"{named[1]}={MASK}", shown)


def _is_whole(key: str) -> bool:
    return key == "scope"
