"""URIs of memory files: `memory://<agent>/<path>`, with the path as MemoryGet accepts it, percent-encoded.

The agent may be empty and then means the agent of the session. Programs that handle URIs remove dot segments and
doubled slashes, so the slashes of a path with such parts are percent-encoded, too: `../notes/a.md` is
`..%2Fnotes%2Fa.md`.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from memoryd_server.errors import FieldViolation, InvalidRequest

SCHEME = "memory"
MOST_URI_CHARS = 16_384
"""Three times the longest path, and an agent ID."""

_FORM = re.compile(r"memory://(?P<agent>[^/?#]*)/(?P<path>[^?#]+)", re.IGNORECASE)
_ENCODED = re.compile(r"%[0-9a-fA-F]{2}")
_UNSAFE_PARTS = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class MemoryFileName:
    """The file that a URI names. `agent_id` is empty if the URI names no agent."""

    agent_id: str
    path: str


def make_uri(agent_id: str, path: str) -> str:
    """Return the URI of a file."""
    has_unsafe_parts = not _UNSAFE_PARTS.isdisjoint(path.split("/"))
    return f"{SCHEME}://{quote(agent_id, safe='')}/{quote(path, safe='' if has_unsafe_parts else '/')}"


def read_uri(uri: str) -> MemoryFileName:
    """Return the file that a URI names. Whether it may be read is decided by MemoryGet.

    Raises:
        InvalidRequest: it is no URI of a memory file.
    """
    if len(uri) > MOST_URI_CHARS:
        raise _invalid(f"is longer than {MOST_URI_CHARS:,} characters")
    form = _FORM.fullmatch(uri)
    if form is None:
        raise _invalid("is not of the form memory://<agent>/<path>, as resources/list returns it")
    return MemoryFileName(_decoded(form["agent"]), _decoded(form["path"]))


def _decoded(part: str) -> str:
    if "%" in _ENCODED.sub("", part):
        raise _invalid("has a percent sign that is not followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(part.encode()).decode()
    except UnicodeError:
        raise _invalid("is not UTF-8 after percent-decoding") from None


def _invalid(why: str) -> InvalidRequest:
    return InvalidRequest([FieldViolation("uri", why)])
