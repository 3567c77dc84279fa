"""Transcripts of imported conversations, in the form of OpenClaw's: JSON lines, one for each message.

The first line has what never changes in a conversation, so a transcript of a conversation that has grown begins with
the older one. All text is masked.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256

from memoryd_server.foreign_text import parse_json
from memoryd_server.imports.conversation import Conversation, ImportedMessage
from memoryd_server.imports.note import identity, masked_text, note_key, time_ns, time_text
from memoryd_server.sources import IMPORTED_SESSION_PREFIX, LONG_KEY_CHARS

_VERSION = 3
_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def session_name(conversation: Conversation) -> str:
    """Return the session id of a conversation: its origin, and its id or, if that cannot be in a file name, its key."""
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


def last_state(data: bytes) -> tuple[str, int]:
    """Return the time of the last message of a transcript, "" if it has none, and the number of its lines."""
    whole = data[: data.rfind(b"\n") + 1]
    last = whole[whole.rfind(b"\n", 0, -1) + 1 :]
    try:
        record = parse_json(last) if last else {}
    except ValueError:
        record = {}
    time = record.get("timestamp") if isinstance(record, dict) else None
    return time if isinstance(time, str) else "", whole.count(b"\n")
