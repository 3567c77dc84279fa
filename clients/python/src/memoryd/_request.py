"""A call's request, from what its caller gave."""

from typing import Any, TypeVar

from google.protobuf.message import Message

_Request = TypeVar("_Request", bound=Message)


def request_of(kind: type[_Request], given: _Request | None, fields: dict[str, Any]) -> _Request:
    """The request that was given, or one of the fields that were.

    Raises:
        TypeError: both were given.
    """
    if given is None:
        return kind(**fields)
    if fields:
        raise TypeError(f"pass either a {kind.__name__} or its fields, not both")
    return given
