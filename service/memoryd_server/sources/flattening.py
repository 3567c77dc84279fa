"""A transcript's records into what was said: one line a message, white space folded, secrets masked. Pure.

A transcript is JSON lines. What is kept of it is what the user and the assistant said; everything else is left out, and
a line that is no record, or only the beginning of one, is no error.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memoryd_server.sources import noise
from memoryd_server.sources.masking import masked

FLATTENING_VERSION: Final = 1
"""Rises with every change that gives another text for the same record; transcripts are then indexed anew."""

_LABELS: Final[Mapping[str, str]] = {noise.USER: "User", noise.ASSISTANT: "Assistant"}
_BYTE_ORDER_MARK = "\ufeff"
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Message:
    """Something said. `line` is its record's in the file, from 1; `role` is "user" or "assistant"."""

    line: int
    role: str
    text: str

    @property
    def labelled(self) -> str:
        """The text with who said it, as it is indexed."""
        return f"{_LABELS[self.role]}: {self.text}"

    @property
    def label(self) -> str:
        """Who said it."""
        return _LABELS[self.role]


def message_of(number: int, line: str) -> Message | None:
    """The message of line `number`; None for a line that holds none."""
    try:
        record = json.loads(line.removeprefix(_BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return None
    message = record.get("message") if isinstance(record, dict) and record.get("type") == "message" else None
    if not isinstance(message, dict) or noise.is_generated(message):
        return None
    role = message.get("role")
    if not isinstance(role, str) or role not in _LABELS:
        return None
    folded = " ".join(part for text in _texts(message.get("content")) if (part := _folded(noise.said(role, text))))
    return Message(number, role, masked(folded)) if folded else None


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
                yield block["text"]


def _folded(text: str) -> str:
    # Half a character, which JSON can spell, is none that could be written anywhere; neither is NUL.
    plain = text.encode("utf-8", "replace").decode().replace("\0", " ")
    return _SPACE.sub(" ", plain).strip()
