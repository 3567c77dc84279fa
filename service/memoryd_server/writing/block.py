"""The bytes of one append. Pure."""

from dataclasses import dataclass
from hashlib import sha256

TAIL_BYTES = 4
"""How much of a file's end decides what must stand between it and an appended block."""


@dataclass(frozen=True, slots=True)
class Block:
    """What is appended: `lead`, the newlines that were missing, and `content`, whose lines are the append's lines."""

    lead: bytes
    content: bytes

    @property
    def data(self) -> bytes:
        """The bytes as they go to the file."""
        return self.lead + self.content

    @property
    def sha256(self) -> str:
        """The SHA-256 of `data`, in hexadecimal."""
        return sha256(self.data).hexdigest()

    def lines_after(self, newlines_before: int) -> tuple[int, int]:
        """Returns the first and the last line of `content` in a file with `newlines_before` newlines above the lead."""
        start = newlines_before + self.lead.count(b"\n") + 1
        return start, start + self.content.count(b"\n") - 1


def content_of(text: str, heading: str) -> bytes:
    """Returns `text` in UTF-8 below its heading, ending in a newline."""
    titled = f"## {heading}\n\n{text}" if heading else text
    return (titled if titled.endswith("\n") else titled + "\n").encode()


def lead_of(tail: bytes, heading: str) -> bytes:
    """Returns the newlines missing at the end of a file whose last `TAIL_BYTES` bytes are `tail`.

    A heading gets one blank line above it, except at the file's start.
    """
    if not tail:
        return b""
    ending = b"" if tail.endswith(b"\n") else b"\n"
    unix = tail.replace(b"\r\n", b"\n")
    blank = unix.endswith(b"\n\n") or unix == b"\n"
    return ending + b"\n" if heading and not blank else ending


def request_digest(text: str, path: str, heading: str) -> str:
    """Returns what tells two requests apart: the SHA-256 of their lengths and contents, in hexadecimal."""
    digest = sha256()
    for part in (text, path, heading):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
