"""Conversion of transcript records into messages: one line per message, white space folded, secrets masked. Pure.

A transcript is JSON lines. Only the text of the user and the assistant is kept. Other records, invalid lines and
incomplete lines are skipped without an error.

Text that a gateway adds to a conversation is removed: wrappers around a message, generated messages, and whole turns: a
heartbeat, or a recall of memory, with everything up to the next message of a user. The forms are those that OpenClaw's
gateway writes. Any sender of messages controls this text, so parsing takes linear time. A pattern
that can fail at the end of a long run is anchored, or is matched once at a position that is found without it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memoryd_server.model import Origin
from memoryd_server.sources.provenance import origin_of_message
from memoryd_server.sources.secrets import mask_secrets

USER = "user"
ASSISTANT = "assistant"

# The replies of agents to a heartbeat, or without anything to say.
_SILENT = ("HEARTBEAT_OK", "NO_REPLY")
_SILENT_AT_START = re.compile(rf"[\s*_`\"']*(?:{'|'.join(_SILENT)})\b[\s*_`\"'.!]*")
_SILENT_AT_END = re.compile(rf"\b(?:{'|'.join(_SILENT)})[\s*_`\"'.!]*")

_BEGIN_INTERNAL = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_END_INTERNAL = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
# "Sender (untrusted metadata):" and similar lines, each followed by a block of JSON.
_METADATA = re.compile(
    r"^(?:\[[^\]\n]{0,80}\] )?[^\n]{0,80}\(untrusted(?: metadata|, for context)\):[ \t]*\n"
    r"```json\n(?:(?!```)[^\n]*\n)*```[ \t]*\n?",
    re.MULTILINE,
)
_GENERATED_LINE = re.compile(r"^System(?: \(untrusted\))?: \[[^\]\n]*\][^\n]*(?:\n|$)", re.MULTILINE)
_CURRENT_TIME = re.compile(r"^Current time: [^\n]*(?:\n|$)", re.MULTILINE)
_TIME_PREFIX = re.compile(r"^\s*\[[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2}[^\]\n]{0,40}\]\s*")
# A reply tag, `[[reply_to_current]]`, `[[reply_to:ID]]` or `[[audio_as_voice]]`, is parsed in three steps.
_TAG_OPENS = re.compile(r"\[\[\s*(?:(?P<with_id>reply_to:)|reply_to_current|audio_as_voice)")
_ID_ENDS = re.compile(r"[\]\n]")
_TAG_CLOSES = re.compile(r"\s*\]\]\s*")

_PROMPTS = (
    "[cron:",
    "[Inter-session message]",
    "An async command you ran earlier has completed",
    "An async command you ran earlier completed without captured",
    "An async command completion event was triggered",
    "A new session was started via /new or /reset",
    "Read HEARTBEAT.md",
    "Pre-compaction memory flush",
)
_HEARTBEAT_FILE = re.compile(r"HEARTBEAT\.md\b")
_HEARTBEAT_REPLY = re.compile(r"\bHEARTBEAT_OK\b")

# What the transcript has instead of the prompt of a turn that the gateway started.
_EXEC_WAKE = "[OpenClaw exec completion]"
_WAKES = ("[OpenClaw heartbeat poll]", "[OpenClaw cron wake]", "[OpenClaw session event]", _EXEC_WAKE)
_EXEC_ADVICE = re.compile(rf"{re.escape(_EXEC_WAKE)}\s+Disable automatic completion turns")
_DELIVERY = "Delivery: "
# The start of a heartbeat's prompt, and texts of which one follows.
_HEARTBEATS = (
    ("Follow the heartbeat monitor scratch context", ("NO_REPLY", "heartbeat_respond")),
    ("Run the following periodic tasks (only those due", ("After completing all due tasks", "heartbeat_respond")),
)
_EXEC_NOTICE = re.compile(
    r"exec (?:finished(?::|\s*\()|(?:completed|failed) \([a-z0-9_-]{1,64}, (?:code -?\d{1,10}|signal [^)\n]{1,64})\)"
    r"(?: ::|\s*\Z))",
    re.IGNORECASE,
)

_SYSTEM = "internal_system"
_SESSION = "inter_session"
_LEFT_OUT_TOOLS = frozenset({"heartbeat", "memory_search", "memory_get"})


def is_generated(message: Mapping[str, Any]) -> bool:
    """Return whether a message is from the gateway, or a user message from another session, instead of a person."""
    kind, _ = _provenance(message)
    return kind == _SYSTEM or (kind == _SESSION and message.get("role") == USER)


def starts_left_out_turn(message: Mapping[str, Any]) -> bool:
    """Return whether a user message starts a turn of the gateway: a heartbeat, or a recall of memory."""
    kind, tool = _provenance(message)
    return kind == _SYSTEM and tool in _LEFT_OUT_TOOLS


def _provenance(message: Mapping[str, Any]) -> tuple[str, str]:
    provenance = message.get("provenance")
    if not isinstance(provenance, dict):
        return "", ""
    kind, tool = provenance.get("kind"), provenance.get("sourceTool")
    return kind if isinstance(kind, str) else "", tool if isinstance(tool, str) else ""


def spoken_text(role: str, text: str) -> str:
    """Return the spoken part of a message's text; empty for a heartbeat, a notice or a silent reply."""
    return _user_text(text) if role == USER else _assistant_text(text)


def _user_text(text: str) -> str:
    text = _GENERATED_LINE.sub("", _without_metadata(_without_internal(text)))
    text = _TIME_PREFIX.sub("", text).lstrip()
    if text.startswith(_PROMPTS) or _is_wake(text) or _EXEC_NOTICE.match(text):
        return ""
    if "HEARTBEAT_OK" in text and is_heartbeat(text):
        return ""
    return _CURRENT_TIME.sub("", text) if text.startswith("Current time: ") else text


def _assistant_text(text: str) -> str:
    text = remove_reply_tags(text) if "[[" in text else text
    return remove_silent_replies(text) if any(token in text for token in _SILENT) else text


def _is_wake(text: str) -> bool:
    """Return whether a text without leading space is, as a whole, what the gateway starts its own turns with."""
    end = text.rstrip()
    if end in _WAKES or (end.startswith(_DELIVERY) and end.endswith(_WAKES)) or _EXEC_ADVICE.match(end):
        return True
    return any(end.startswith(start) and any(word in end for word in words) for start, words in _HEARTBEATS)


def is_heartbeat(text: str) -> bool:
    """Return whether a text contains HEARTBEAT.md followed by the heartbeat reply."""
    file = _HEARTBEAT_FILE.search(text)
    return file is not None and _HEARTBEAT_REPLY.search(text, file.end()) is not None


def remove_silent_replies(text: str) -> str:
    """Return the text without silent replies at its start and end."""
    first = _SILENT_AT_START.match(text)
    start = first.end() if first else 0
    # Only the last token can have nothing but punctuation after it.
    last = max(text.rfind(token, start) for token in _SILENT)
    if last >= start and _SILENT_AT_END.fullmatch(text, last):
        return text[start:last].rstrip()
    return text[start:]


def remove_reply_tags(text: str) -> str:
    """Return the text without reply tags and the white space after each.

    An ID ends at the first bracket or line break. Tags whose IDs end at the same position are closed by the same
    brackets, so each position is searched and matched once.
    """
    pieces: list[str] = []
    done = 0
    id_end = -1
    closed: re.Match[str] | None = None
    for tag in _TAG_OPENS.finditer(text):
        if tag.start() < done:
            continue
        close = closed
        if not tag["with_id"]:
            close = _TAG_CLOSES.match(text, tag.end())
        elif id_end < tag.end():
            found = _ID_ENDS.search(text, tag.end())
            id_end = found.start() if found else len(text)
            close = closed = _TAG_CLOSES.match(text, id_end)
        if close:
            pieces.append(text[done : tag.start()])
            done = close.end()
    return "".join((*pieces, text[done:])) if pieces else text


def _without_metadata(text: str) -> str:
    return _METADATA.sub("", text) if "(untrusted" in text else text


def _without_internal(text: str) -> str:
    """Return the text without marked internal context. An opening mark without a closing one is ordinary text."""
    pieces: list[str] = []
    at = 0
    while (begin := text.find(_BEGIN_INTERNAL, at)) >= 0 and (end := text.find(_END_INTERNAL, begin)) >= 0:
        pieces.append(text[at:begin])
        at = end + len(_END_INTERNAL)
    return "".join((*pieces, text[at:])) if pieces else text


FLATTENING_VERSION: Final = 3
"""Incremented with every change that produces different text for the same record; transcripts are then reindexed."""

_LABELS: Final[Mapping[str, str]] = {USER: "User", ASSISTANT: "Assistant"}

_BYTE_ORDER_MARK = "\ufeff"
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `line` is the line of its record in the file, from 1; `role` is "user" or "assistant"."""

    line: int
    role: str
    text: str
    origin: Origin = Origin.UNTRUSTED

    @property
    def labelled(self) -> str:
        """The text with the label of its role, as it is indexed."""
        return f"{_LABELS[self.role]}: {self.text}"

    @property
    def label(self) -> str:
        """The display name of the role."""
        return _LABELS[self.role]


class TranscriptParser:
    """Parses the lines of one transcript, in order.

    `in_left_out_turn` is whether the next line belongs to a turn of the gateway. Set it to `turn_state` of the latest
    line that has one, to start in the middle of a transcript.
    """

    def __init__(self) -> None:
        self.in_left_out_turn = False

    def parse(self, number: int, line: str) -> Message | None:
        """Return the message in line `number`; None for a line without a message, or in a turn of the gateway."""
        message = _message_in(line)
        if message is None:
            return None
        if message.get("role") == USER:
            self.in_left_out_turn = starts_left_out_turn(message)
        return None if self.in_left_out_turn else _spoken(number, message)


def parse_message(number: int, line: str) -> Message | None:
    """Return the message in line `number`, regardless of the turn; None for a line without a message."""
    message = _message_in(line)
    return None if message is None else _spoken(number, message)


def turn_state(line: str) -> bool | None:
    """Return whether a line starts a turn of the gateway (True) or of anyone else (False); None if it starts none."""
    message = _message_in(line)
    return starts_left_out_turn(message) if message is not None and message.get("role") == USER else None


def _message_in(line: str) -> Mapping[str, Any] | None:
    try:
        record = json.loads(line.removeprefix(_BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return None
    message = record.get("message") if isinstance(record, dict) and record.get("type") == "message" else None
    return message if isinstance(message, dict) else None


def _spoken(number: int, message: Mapping[str, Any]) -> Message | None:
    role = message.get("role")
    if not isinstance(role, str) or role not in _LABELS or is_generated(message):
        return None
    folded = " ".join(
        part for text in _texts(message.get("content")) if (part := _fold_spaces(spoken_text(role, text)))
    )
    if not folded:
        return None
    return Message(number, role, mask_secrets(folded), origin_of_message(message, is_answer=role == ASSISTANT))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
                yield block["text"]


def _fold_spaces(text: str) -> str:
    # JSON can encode lone surrogates and NUL, which cannot be stored or sent as text.
    plain = text.encode("utf-8", "replace").decode().replace("\0", " ")
    return _SPACE.sub(" ", plain).strip()
