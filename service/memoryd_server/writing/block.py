"""The bytes of one append. Pure."""

from dataclasses import dataclass
from hashlib import sha256

TAIL_BYTES = 4
"""How much of a file's end decides what must stand between it and an appended block."""

_MOST_LEAD = 2
_MOST_SOUGHT_BYTES = 256
_MOST_HASHED_BYTES = 1 << 26


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


def copies_of(content: bytes, data: bytes) -> list[tuple[int, int]]:
    """Return the first and last line of each place where `data` holds the lines of `content`, in order.

    Blanks at the ends of lines and newlines around `content` do not count: editors change them when they save. Copies
    do not overlap. A blank text has no copies. Linear in the size of `data`.
    """
    wanted = _plain(content.strip(b"\n"))
    if wanted.isspace():
        return []
    if wanted.count(b"\n") == 2:  # noqa: PLR2004 -- the newlines around one line
        return _lines_equal(wanted[1:-1], data)
    found: list[tuple[int, int]] = []
    text, at, counted, line = _plain(data), 0, 0, 1
    while (at := text.find(wanted, at)) >= 0:
        line += text.count(b"\n", counted, at)
        found.append((line, line + wanted.count(b"\n") - 2))
        counted = at
        # The newline at the end may be the one before the next copy.
        at += len(wanted) - 1
    return found


def _lines_equal(wanted: bytes, data: bytes) -> list[tuple[int, int]]:
    """Return the places of a line as `copies_of` does, without a copy of `data`."""
    found: list[tuple[int, int]] = []
    sought, counted, line = b"\n" + wanted, 0, 1
    at = 0 if data.startswith(wanted) else data.find(sought) + 1 or -1
    while at >= 0:
        after = at + len(wanted)
        end = data.find(b"\n", after)
        if end == after or not data[after : end if end >= 0 else None].strip():
            line += data.count(b"\n", counted, at)
            counted = at
            found.append((line, line))
        at = data.find(sought, after) + 1 or -1
    return found


def _plain(data: bytes) -> bytes:
    """Return the lines of `data` without blanks at their ends, each between two newlines."""
    return b"\n%b\n" % b"\n".join(map(bytes.rstrip, data.split(b"\n")))


def sought_in_copies(content: bytes) -> bytes:
    """Return bytes that each copy of `content` contains, for a fast search; b"" for a blank text.

    They are a newline and the start of the longest line. Before the first line of a file, the newline is missing.
    """
    longest = max(map(bytes.rstrip, content.split(b"\n")), key=len)
    return (b"\n" + longest)[:_MOST_SOUGHT_BYTES] if longest else b""


def blocks_with(digest: str, length: int, data: bytes) -> list[tuple[int, int]]:
    """Return the first and last line of each place where the content of a block is, of which only the hash is known.

    `length` and `digest` are those of the block with its lead. The places do not overlap. Gives up after hashing
    64 MiB, because a file can be made so that every line could begin a block.
    """
    # By the end of the block: one that begins with newlines matches from each of them.
    found: dict[int, tuple[int, int]] = {}
    hashed, line, at, last = 0, 1, 0, 0
    while at < len(data):
        for lead in range(min(_MOST_LEAD, length - 1) + 1):
            end = at + length - lead
            if (at >= last or end == last) and data[end - 1 : end] == b"\n" and hashed < _MOST_HASHED_BYTES:
                hashed += length
                if sha256(b"\n" * lead + data[at:end]).hexdigest() == digest:
                    found[end] = (line, line + data.count(b"\n", at, end) - 1)
                    last = end
        newline = data.find(b"\n", at)
        at, line = (newline + 1 if newline >= 0 else len(data)), line + 1
    return list(found.values())


def request_digest(text: str, path: str, heading: str) -> str:
    """Returns what tells two requests apart: the SHA-256 of their lengths and contents, in hexadecimal."""
    digest = sha256()
    for part in (text, path, heading):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
