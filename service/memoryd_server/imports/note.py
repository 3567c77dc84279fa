"""Notes: the Markdown files of an imported conversation or document, and what a stored note says about its import.

    ---
    title: "Backups of the gateway"
    imported_from: "chatgpt"
    conversation: "67d3f1a2-…"
    created: 2025-03-14T09:26:53Z
    updated: 2025-03-14T09:31:07Z
    messages: 2
    import_sha256: 9f2c…
    ---
    # Backups of the gateway

    **User** 2025-03-14 09:26

    Where are the backups?

The name ends with the first eight hexadecimal digits of the SHA-256 of the id, so a note is found again if its title
changes. `import_sha256` is the SHA-256 of the file without this line: a note with another one was edited.

All text is masked. Text of a message cannot look like the title or the start of a message, is not read as an annotation
of memory, and ends its code blocks.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from memoryd_server.chunk import split_front_matter
from memoryd_server.foreign_text import valid_text
from memoryd_server.imports.conversation import Conversation, Document, ImportedMessage
from memoryd_server.sources import IMPORTED_FOLDER, mask_secrets, note_name_key
from memoryd_server.text import normalized

MOST_NOTE_BYTES: Final = 1 << 20
"""A conversation with more text is split into several notes."""

_MOST_HEAD_BYTES = 4096
_LEAST_TEXT_BYTES = 1024
_MOST_FIELD_CHARS = 200
_MOST_SLUG_CHARS = 60
_MOST_SLUG_BYTES = 180
_MOST_FIRST_LINE_CHARS = 80
_UNTITLED = "Untitled"

# The latest time that the tables can store.
_LATEST_NS = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LABELS: Final[Mapping[str, str]] = {"user": "**User**", "assistant": "**Assistant**"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LABEL = re.compile(r"(?= {0,3}\*\*(?:User|Assistant)\*\*)")
_HEADING = re.compile(r"(?= {0,3}#{1,5}(?:[ \t]|$))")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_MARKERS = re.compile(r"(?:[ \t]*(?:>|(?:[-*+]|[0-9]{1,9}[.)])(?=[ \t])))+[ \t]*")
_MOST_FENCE_INDENT = 3
_ANNOTATION = re.compile(r"<(?=!--[ \t]*(?:trigger|importance|project)[ \t]*:)", re.IGNORECASE)

_COUNT = re.compile("[0-9]{1,9}", re.ASCII)
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Note:
    """One file of an import. `part` is its number, from 1; `sha256` is its `import_sha256`."""

    part: int
    data: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A note that an earlier import wrote, as it is now.

    `identity` is the id of its conversation or document. `sha256` is its `import_sha256`; `is_edited` is whether the
    rest of the file has another one. `updated` is "" if it is unknown; earlier times are smaller as text.
    """

    path: str
    part: int
    identity: str
    updated: str
    messages: int
    sha256: str
    is_edited: bool
    content_sha256: bytes


def note_folder(origin: str) -> str:
    """Return the folder of the notes of one origin, as a display path."""
    return f"{IMPORTED_FOLDER}/{origin}"


def identity(item: Conversation | Document) -> str:
    """Return the id of an item as it is written in its notes: masked, on one line."""
    return _line(item.conversation_id if isinstance(item, Conversation) else item.document_id)


def note_key(item: Conversation | Document) -> str:
    """Return the key of an item, 64 hexadecimal digits. Names have its first characters."""
    text = item.conversation_id if isinstance(item, Conversation) else f"document\0{item.document_id}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def note_stem(item: Conversation | Document, key_chars: int) -> str:
    """Return the name of the first note of an item, without `.md`."""
    day = "" if item.created is None else item.created.astimezone(UTC).date().isoformat()
    return "-".join(filter(None, (day, _slug(_title(item)), note_key(item)[:key_chars])))


def part_name(stem: str, part: int) -> str:
    """Return the name of a part: that of the first one has no number."""
    return f"{stem}.md" if part == 1 else f"{stem}-{part}.md"


def time_text(time: datetime | None) -> str:
    """Return a time as in front matter, "2025-03-14T09:26:53Z"; empty for no time."""
    return "" if time is None else time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def time_ns(time: datetime | None) -> int | None:
    """Return a time in Unix nanoseconds, as files and tables can store it; None for no time."""
    if time is None:
        return None
    return max(0, min((time - _EPOCH) // timedelta(microseconds=1) * 1000, _LATEST_NS))


def render(item: Conversation | Document, most_bytes: int) -> list[Note]:
    """Return the notes of an item. Each has at most `most_bytes` bytes, or 7 KiB if that is more, and 1 MiB of text."""
    title = _title(item)
    # Escapes make a text longer, by at most its length.
    room = max(_LEAST_TEXT_BYTES, min(MOST_NOTE_BYTES, (most_bytes - _MOST_HEAD_BYTES) // 2))
    parts = list(_packed(_blocks(item, room), room))
    return [_note(item, title, number, text) for number, text in enumerate(parts, 1)]


def parse_stored(path: str, data: bytes) -> StoredNote:
    """Return what a stored note says about its import. A file that no import wrote is edited, and has no identity.

    The fields of an edited note are read too, wherever they are in the front matter, and with any line ends.
    """
    metadata = split_front_matter(data.decode("utf-8", "replace")).metadata

    def field(name: str) -> str:
        value = metadata.get(name, "")
        return value if isinstance(value, str) else ""

    found, count, digest = note_name_key(path.rpartition("/")[2]), field("messages"), field("import_sha256")
    return StoredNote(
        path,
        1 if found is None else found[1],
        field("conversation") or field("document"),
        field("updated"),
        int(count) if _COUNT.fullmatch(count) else 0,
        digest if _DIGEST.fullmatch(digest) else "",
        digest == "" or _digest_without(data, f"import_sha256: {digest}\n".encode()) != digest,
        sha256(data).digest(),
    )


def _digest_without(data: bytes, line: bytes) -> str:
    """Return the SHA-256 of a file without the first occurrence of a line."""
    before, _, after = data.partition(line)
    rest = sha256(before)
    rest.update(after)
    return rest.hexdigest()


def masked_text(text: str) -> str:
    """Return foreign text with its secrets masked: valid text with line feeds, but no other control characters."""
    return mask_secrets(_CONTROL.sub("", valid_text(text).replace("\r\n", "\n").replace("\r", "\n")))


def _line(text: str) -> str:
    """Return foreign text on one line: masked, of bounded length, without control and formatting characters."""
    # Nothing is removed after the masking: that could join the halves of a secret.
    valid = valid_text(text[: _MOST_FIELD_CHARS * 10])
    shown = "".join(c for c in valid if c.isspace() or unicodedata.category(c)[0] != "C")
    # Some secrets are recognized by their line ends, others only on one line.
    return mask_secrets(" ".join(masked_text(shown).split()))[:_MOST_FIELD_CHARS].strip()


def _title(item: Conversation | Document) -> str:
    if title := _line(item.title):
        return title
    text = item.text if isinstance(item, Document) else next((each.text for each in item.messages), "")
    first = _line(text.strip()[: _MOST_FIELD_CHARS * 10].partition("\n")[0])
    if len(first) > _MOST_FIRST_LINE_CHARS:
        first = first[:_MOST_FIRST_LINE_CHARS].rpartition(" ")[0] or first[:_MOST_FIRST_LINE_CHARS]
    return first.lstrip("# ") or _UNTITLED


def _slug(title: str) -> str:
    """Return the letters and digits of a title, of any script, with hyphens between the words."""
    text = normalized("NFC", title).lower()
    words = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in text).split()
    slug = "-".join(words)[:_MOST_SLUG_CHARS]
    return slug.encode()[:_MOST_SLUG_BYTES].decode("utf-8", "ignore").strip("-")


def _note(item: Conversation | Document, title: str, part: int, text: str) -> Note:
    fields = {
        "title": _quoted(title),
        "imported_from": _quoted(item.origin),
        "conversation" if isinstance(item, Conversation) else "document": _quoted(identity(item)),
        "created": time_text(item.created),
        "updated": time_text(item.updated),
        "project": _quoted(_line(item.project)) if _line(item.project) else "",
        "messages": str(len(item.messages)) if isinstance(item, Conversation) else "",
        "part": str(part) if part > 1 else "",
    }
    head = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    heading = _ANNOTATION.sub("&lt;", title) + (f" ({part})" if part > 1 else "")
    before, after = f"---\n{head}".encode(), f"---\n# {heading}\n\n{text}".encode()
    digest = sha256(before + after).hexdigest()
    return Note(part, b"".join((before, f"import_sha256: {digest}\n".encode(), after)), digest)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _blocks(item: Conversation | Document, room: int) -> Iterator[str]:
    """Yield the parts of the text between which a note can be split, each at most about `room` bytes long."""
    if isinstance(item, Document):
        for piece in _pieces(masked_text(item.text), room):
            yield f"{_body(piece)}\n"
        return
    for message in item.messages:
        for piece in _pieces(masked_text(message.text), room):
            yield f"{_label(message)}\n\n{_body(piece)}\n"


def _label(message: ImportedMessage) -> str:
    time = "" if message.time is None else f" {time_text(message.time)[:16].replace('T', ' ')}"
    return f"{_LABELS[message.role]}{time}"


def _pieces(text: str, room: int) -> Iterator[str]:
    """Yield a text in pieces of at most `room` bytes, if possible of whole lines."""
    text = text.strip("\n")
    if len(text) * 4 <= room or len(text.encode()) <= room:
        yield text
        return
    lines: list[str] = []
    size = 0
    for line in text.split("\n"):
        # A character has at most four bytes.
        for start in range(0, max(1, len(line)), room // 4):
            piece = line[start : start + room // 4]
            length = len(piece.encode()) + 1
            if lines and size + length > room:
                yield "\n".join(lines)
                lines, size = [], 0
            lines.append(piece)
            size += length
    yield "\n".join(lines)


def _packed(blocks: Iterator[str], room: int) -> Iterator[str]:
    """Yield the texts of the notes: as many blocks as there is room for."""
    texts: list[str] = []
    size = 0
    for block in blocks:
        length = len(block.encode())
        if texts and size + length > room:
            yield "\n".join(texts)
            texts, size = [], 0
        texts.append(block)
        size += length + 1
    yield "\n".join(texts)


def _body(text: str) -> str:
    """Return the text of a message as Markdown that stays in its place: see the description of this module."""
    if "<!--" in text:
        text = _ANNOTATION.sub("&lt;", text)
    lines: list[str] = []
    items: list[int] = []
    fence: _Fence | None = None
    is_after_blank = True
    for line in text.split("\n"):
        if fence and not fence.contains(line):
            lines += fence.closing
            fence = None
        lines.append(_escaped(line, has_headings=fence is None or not fence.hides_headings))
        if fence:
            fence = None if fence.is_closed_by(line) else fence
        else:
            fence = _opened(line, items, is_after_blank=is_after_blank)
        is_after_blank = not line.strip()
    if fence:
        lines += fence.closing
    return "\n".join(lines)


def _escaped(line: str, *, has_headings: bool) -> str:
    # Also in code blocks, because programs disagree on where those end.
    if _LABEL.match(line):
        return line.replace("*", "\\*", 1)
    return line.replace("#", "##", 1) if has_headings and _HEADING.match(line) else line


@dataclass(frozen=True, slots=True)
class _Fence:
    """The fence of an open code block, which can be in list items and quotes.

    Lines of the block have `quotes` quote marks, or are indented by `indent` columns. `closing` are the lines that end
    it: none if it began after a list or quote marker, because it ends with the list item or quote. `hides_headings` is
    whether the headings of the index leave out the block, which ignore list and quote markers.
    """

    marks: str
    quotes: int
    indent: int
    closing: tuple[str, ...]
    hides_headings: bool

    def contains(self, line: str) -> bool:
        """Return whether a line is in the list item or quote of the block."""
        start = _lead(line)
        if self.quotes:
            return start.count(">") >= self.quotes
        return len(start) >= self.indent or not line.strip()

    def is_closed_by(self, line: str) -> bool:
        """Return whether a line of the list item or quote ends the block."""
        start = _lead(line)
        marks = line.lstrip(" \t>" if self.quotes else " \t").rstrip()
        is_code = not self.quotes and len(start) - self.indent > _MOST_FENCE_INDENT
        return not is_code and marks.startswith(self.marks) and not marks.strip(self.marks[0])


def _lead(line: str) -> str:
    """Return the spaces and quote marks at the start of a line."""
    return line[: len(line) - len(line.lstrip(" \t>"))].expandtabs(4)


def _opened(line: str, items: list[int], *, is_after_blank: bool) -> _Fence | None:
    """Return the fence that a line outside code blocks opens, and update the indentations of the open list items."""
    markers = match[0].expandtabs(4) if (match := _MARKERS.match(line)) else ""
    indent = len(line[: len(line) - len(line.lstrip(" \t"))].expandtabs(4))
    # Without a blank line before it, a line that is indented less can continue the paragraph of a list item.
    if line.strip() and (is_after_blank or markers):
        while items and indent < items[-1]:
            items.pop()
    mark = _FENCE.match(line, len(match[0]) if match else 0)
    least = items[-1] if items and indent >= items[-1] else 0
    if markers and ">" not in markers:
        items.append(len(markers))
    is_code = not markers and indent - least > _MOST_FENCE_INDENT
    if mark is None or is_code or (mark[1][0] == "`" and "`" in mark[2]):
        return None
    if markers:
        return _Fence(mark[1], markers.count(">"), len(markers), (), hides_headings=False)
    return _Fence(mark[1], 0, least, (" " * indent + mark[1],), hides_headings=indent <= _MOST_FENCE_INDENT)
