"""Cursors and page tokens: text that callers keep and hand back without looking into it."""

import base64
import binascii

from memoryd_server.errors import CursorMalformed, FieldViolation, InvalidRequest


def make_cursor(sync_id: str, sequence: int) -> str:
    """Where a follower of a run stands."""
    return _pack(f"s:{sync_id}:{sequence}")


def read_cursor(cursor: str) -> tuple[str, int]:
    """The run and the sequence that a cursor names.

    Raises:
        CursorMalformed: it was not made here.
    """
    try:
        kind, sync_id, sequence = _unpack(cursor).split(":")
        if kind == "s":
            return sync_id, int(sequence)
    except ValueError:
        pass
    raise CursorMalformed(f"cursor {cursor!r} is not a cursor of Sync; leave it empty to start anew")


def make_page_token(kind: str, last: str) -> str:
    """What follows the item named `last` in the list of that kind, for example `files`."""
    return _pack(f"{kind}:{last}")


def read_page_token(kind: str, token: str) -> str:
    """The item after which a page of that kind of list begins; empty for the first page.

    Raises:
        InvalidRequest: it was not made here.
    """
    if not token:
        return ""
    try:
        text = _unpack(token)
    except ValueError:
        text = ""
    if not text.startswith(f"{kind}:"):
        raise InvalidRequest([FieldViolation("page_token", "is not a next_page_token of this list")])
    return text.removeprefix(f"{kind}:")


def _pack(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _unpack(packed: str) -> str:
    try:
        return base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise ValueError("not packed here") from error
