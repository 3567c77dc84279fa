"""The lines of the append ledger: one entry each, with a checksum. Pure."""

import json
import zlib
from dataclasses import asdict, dataclass
from enum import StrEnum

from memoryd_server.foreign_text import valid_tree

_OPENING = b'{"key":"'


class State(StrEnum):
    """How far an append came."""

    PENDING = "pending"
    DONE = "done"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Entry:
    """One append: where its block of `length` bytes stands, or was to stand, and what it was asked to be.

    `start_line` and `end_line` are the lines of its content. A void entry never reached the file. `copies_before` is
    the number of copies of the content in the file before the write. It is None for a blank text, in settled entries,
    and in entries of builds that did not count copies.
    """

    key: str
    path: str
    offset: int
    length: int
    block_sha256: str
    request_sha256: str
    start_line: int
    end_line: int
    state: State = State.PENDING
    copies_before: int | None = None


def encode(entry: Entry) -> bytes:
    """Returns the line of an entry, with its newline."""
    fields = asdict(entry)
    if entry.copies_before is None:
        # Earlier builds read only lines without this field.
        del fields["copies_before"]
    return _json({**fields, "check": _checksum(fields)}) + b"\n"


def decode(line: bytes) -> Entry | None:
    """Returns the entry of a line, None when the line is not one that `encode` made."""
    try:
        fields = json.loads(line)
        # Ledgers of the first builds have no checksums.
        if fields.pop("check", None) not in {None, _checksum(fields)}:
            return None
        return Entry(**{**valid_tree(fields), "state": State(fields["state"])})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def is_torn(tail: bytes) -> bool:
    """Whether bytes without a newline at a ledger's end are what a crash leaves of a line."""
    # A power cut can leave NULs where a file had grown and its bytes had not arrived.
    kept = tail.rstrip(b"\0")
    return kept.startswith(_OPENING[: len(kept)])


def _checksum(fields: dict[str, object]) -> int:
    return zlib.crc32(_json(fields))


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
