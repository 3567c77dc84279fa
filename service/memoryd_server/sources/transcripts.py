"""Session transcripts: which files they are, and the text in them that is worth remembering, secrets masked.

A transcript is a file of JSON lines that the gateway appends to. What is kept of it is what the user and the assistant
said, one line a message; everything else, a half-written last line included, is left out.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryd_server.sources.masking import masked

# The transcript of a session, of one that was begun anew, and of one that was deleted; the last two with their time.
_NAME = re.compile(r"(?P<session>.+)\.jsonl(?P<rotated>\.(?:reset|deleted)\.[^/]+)?")
_LABELS: Mapping[str, str] = {"user": "User", "assistant": "Assistant"}
# What agents answer to a heartbeat, or when there is nothing to say.
_SILENT = frozenset({"HEARTBEAT_OK", "NO_REPLY"})
_SPACE = re.compile(r"\s+")
_LINE_BREAK = re.compile(r"\s*\n+\s*")


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """A transcript on disk. `name` is unique among an agent's; `session_id` is that of its rotated ones, too."""

    path: Path
    name: str
    session_id: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Transcript:
    """The messages, one a line, and the line of the file, from 1, that each comes from."""

    lines: tuple[str, ...]
    line_numbers: tuple[int, ...]

    @property
    def content(self) -> str:
        """The messages as one text."""
        return "\n".join(self.lines)

    @property
    def digest(self) -> str:
        """SHA-256 of the text and of where it comes from, in hex."""
        numbers = ",".join(map(str, self.line_numbers))
        return hashlib.sha256(f"{self.content}\n{numbers}".encode()).hexdigest()


def list_transcripts(folder: Path) -> list[TranscriptFile]:
    """The transcripts in a folder, by name; none where there is no folder. Links and backups are none.

    Raises:
        OSError: the folder is there and cannot be read.
    """
    found: list[TranscriptFile] = []
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return found
    with entries:
        for entry in entries:
            named = _NAME.fullmatch(entry.name)
            if named is None or entry.name.endswith(".bak"):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                name = named["session"] + (named["rotated"] or "")
                found.append(
                    TranscriptFile(Path(entry.path), name, named["session"], status.st_size, status.st_mtime_ns)
                )
    return sorted(found, key=lambda file: file.name)


def read_transcript(file: TranscriptFile) -> Transcript:
    """What is said in a transcript, read line by line. Does not follow a link.

    Raises:
        OSError: it is gone, or cannot be read.
    """
    descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as lines:
        return flatten(line.decode("utf-8", "replace") for line in lines)


def flatten(lines: Iterable[str]) -> Transcript:
    """The messages of a transcript's lines. Pure."""
    said = [(number, text) for number, line in enumerate(lines, 1) if (text := _message(line))]
    return Transcript(tuple(text for _, text in said), tuple(number for number, _ in said))


def _message(line: str) -> str:
    """A line's message with who said it; empty for a line that holds none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    message = record.get("message") if isinstance(record, dict) and record.get("type") == "message" else None
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return ""
    label = _LABELS.get(message["role"])
    text = " ".join(part for part in map(_normal, _texts(message.get("content"))) if part)
    return f"{label}: {text}" if label and text and text not in _SILENT else ""


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
                yield block["text"]


def _normal(text: str) -> str:
    # Half a character, which JSON can spell, is none that could be written anywhere.
    plain = text.encode("utf-8", "replace").decode()
    return masked(_SPACE.sub(" ", _LINE_BREAK.sub(" ", plain)).strip())
