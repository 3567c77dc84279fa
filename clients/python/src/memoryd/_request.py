"""The request of a call, from the arguments of a method."""

from typing import Any, TypeVar

from google.protobuf.message import Message

_Request = TypeVar("_Request", bound=Message)


def request_of(kind: type[_Request], given: _Request | None, fields: dict[str, Any]) -> _Request:
    """Return the request `given`, or a new one with these fields.

    Raises:
        TypeError: both a request and fields are given.
    """
    if given is None:
        return kind(**fields)
    if fields:
        raise TypeError(f"pass either a {kind.__name__} or its fields, not both")
    return given
