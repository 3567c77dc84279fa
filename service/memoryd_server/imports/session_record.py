"""Transcripts of imported conversations, in the form of OpenClaw's: JSON lines, one for each message.

The first line has what never changes in a conversation, so a transcript of a conversation that has grown begins with
the older one. All text is masked.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from io import BytesIO

from memoryd_server.foreign_text import parse_json
from memoryd_server.imports.conversation import Conversation, ImportedMessage
from memoryd_server.imports.note import identity, masked_text, note_key, time_ns, time_text
from memoryd_server.sources import IMPORTED_SESSION_PREFIX, LONG_KEY_CHARS

_VERSION = 3
# Two kinds of ids make a name ambiguous: "code-1" of the origin "claude" is "1" of "claude-code", and an id that looks
# like a key can be the key of another id.
_PLAIN_ID = re.compile(r"(?!code-|[0-9a-f]{16}\Z)[a-z0-9][a-z0-9_-]{0,99}", re.IGNORECASE | re.ASCII)


def session_name(conversation: Conversation) -> str:
    """Return the session id of a conversation: its origin and its id.

    Its key replaces an id that cannot be in a file name, or with which the name would be that of another conversation.
    """
    own = conversation.conversation_id
    is_plain = _PLAIN_ID.fullmatch(own) is not None and identity(conversation) == own
    last = own if is_plain else note_key(conversation)[:LONG_KEY_CHARS]
    return f"{IMPORTED_SESSION_PREFIX}{conversation.origin}-{last}"


def transcript(conversation: Conversation) -> bytes:
    """Return the transcript of a conversation: a line about the session, and one for each message."""
    session = session_name(conversation)
    head = {"type": "session", "version": _VERSION, "id": session, "origin": conversation.origin}
    lines = [_json({**head, "conversation": identity(conversation), **_timestamp(conversation.created)})]
    for number, message in enumerate(conversation.messages, 1):
        lines.append(_json(_record(session, number, message)))
    return b"".join(lines)


def _record(session: str, number: int, message: ImportedMessage) -> Mapping[str, object]:
    content: dict[str, object] = {
        "role": message.role,
        "content": [{"type": "text", "text": masked_text(message.text)}],
    }
    milliseconds = time_ns(message.time)
    if milliseconds is not None:
        content["timestamp"] = milliseconds // 1_000_000
    if message.role == "user":
        # The owner of the export wrote it, so it is recalled like the owner's messages.
        content["__openclaw"] = {"senderIsOwner": True}
    key = sha256(f"{session}\0{number}".encode()).hexdigest()[:LONG_KEY_CHARS]
    return {"type": "message", "id": key, **_timestamp(message.time), "message": content}


def _timestamp(time: datetime | None) -> Mapping[str, str]:
    return {} if time is None else {"timestamp": time_text(time)}


def _json(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


@dataclass(frozen=True, slots=True)
class TranscriptDigest:
    """The content of a transcript without its text.

    `latest` is the latest time in it, "" if it has none; earlier times are smaller as text. `lines` counts whole lines.
    """

    size: int
    sha256: bytes
    latest: str
    lines: int

    @classmethod
    def of(cls, data: bytes) -> "TranscriptDigest":
        """Return the digest of a transcript. Lines that are no JSON have no time."""
        latest, lines = "", 0
        for line in BytesIO(data):
            if line.endswith(b"\n"):
                # The last message can be one without a time, so all of them count.
                latest, lines = max(latest, _line_time(line)), lines + 1
        return cls(len(data), sha256(data).digest(), latest, lines)

    def begins(self, data: bytes) -> bool:
        """Return whether `data` begins with this transcript."""
        return len(data) >= self.size and sha256(memoryview(data)[: self.size]).digest() == self.sha256

    def is_newer(self, other: "TranscriptDigest", *, or_equal: bool) -> bool:
        """Return whether this transcript is later than another one or, at the same time, has more lines."""
        old, new = (other.latest, other.lines), (self.latest, self.lines)
        return new > old or (or_equal and new == old)


def _line_time(line: bytes) -> str:
    try:
        record = parse_json(line)
    except ValueError:
        return ""
    time = record.get("timestamp") if isinstance(record, dict) else None
    return time if isinstance(time, str) else ""
