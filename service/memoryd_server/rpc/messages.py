"""Builds messages whose strings protobuf can always encode."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from google.protobuf.message import Message

from memoryd_server.foreign_text import shown_path

_P = ParamSpec("_P")
_M = TypeVar("_M", bound=Message)


def build_message(kind: Callable[_P, _M], /, *args: _P.args, **fields: _P.kwargs) -> _M:
    """Return a message of this type with these fields.

    Foreign text is made valid where it enters. This is the last defence: protobuf refuses a string with a lone
    surrogate, and one such string must not cost the caller the whole reply. What is left here is most likely the name
    of a file, so it is shown as one. Strings are looked at only after protobuf has refused one.
    """
    try:
        return kind(*args, **fields)
    except UnicodeEncodeError:
        return kind(*args, **{name: _encodable(value) for name, value in fields.items()})


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return shown_path(value)
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value
