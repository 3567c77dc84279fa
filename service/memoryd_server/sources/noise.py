"""What gateways write into a conversation that nobody said: wrappers around a message, and messages that are none.

The forms are those that the reference's gateway writes. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any

USER = "user"
ASSISTANT = "assistant"

# What agents answer to a heartbeat, or when there is nothing to say.
_SILENT = ("HEARTBEAT_OK", "NO_REPLY")
_SILENT_ENDS = re.compile(
    rf"^[\s*_`\"']*(?:{'|'.join(_SILENT)})\b[\s*_`\"'.!]*|\s*\b(?:{'|'.join(_SILENT)})[\s*_`\"'.!]*$"
)

_BEGIN_INTERNAL = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_END_INTERNAL = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
# "Sender (untrusted metadata):" and its like, each with a block of JSON.
_METADATA = re.compile(
    r"^(?:\[[^\]\n]{0,80}\] )?[^\n]{0,80}\(untrusted(?: metadata|, for context)\):[ \t]*\n"
    r"```json\n(?:(?!```)[^\n]*\n)*```[ \t]*\n?",
    re.MULTILINE,
)
_GENERATED_LINE = re.compile(r"^System(?: \(untrusted\))?: \[[^\]\n]*\][^\n]*(?:\n|$)", re.MULTILINE)
_CURRENT_TIME = re.compile(r"^Current time: [^\n]*(?:\n|$)", re.MULTILINE)
_TIME_PREFIX = re.compile(r"^\s*\[[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2}[^\]\n]{0,40}\]\s*")
_REPLY_TAG = re.compile(r"\[\[\s*(?:reply_to_current|reply_to:[^\]\n]*|audio_as_voice)\s*\]\]\s*")

_PROMPTS = (
    "[cron:",
    "[Inter-session message]",
    "An async command you ran earlier has completed",
    "A new session was started via /new or /reset",
    "Read HEARTBEAT.md",
    "Pre-compaction memory flush",
)
_HEARTBEAT = re.compile(r"HEARTBEAT\.md\b[\s\S]*\bHEARTBEAT_OK\b")
_NOT_SAID = frozenset({"inter_session", "internal_system"})


def is_generated(message: Mapping[str, Any]) -> bool:
    """Whether a record says itself that it comes from another session or from the gateway, not from a person."""
    provenance = message.get("provenance")
    kind = provenance.get("kind") if isinstance(provenance, dict) else None
    return isinstance(kind, str) and kind in _NOT_SAID


def said(role: str, text: str) -> str:
    """What of a message's text was said; empty where nothing was: a heartbeat, a notice, a silent reply."""
    return _said_by_user(text) if role == USER else _said_by_assistant(text)


def _said_by_user(text: str) -> str:
    text = _GENERATED_LINE.sub("", _without_metadata(_without_internal(text)))
    text = _TIME_PREFIX.sub("", text).lstrip()
    if text.startswith(_PROMPTS) or ("HEARTBEAT_OK" in text and _HEARTBEAT.search(text)):
        return ""
    return _CURRENT_TIME.sub("", text) if text.startswith("Current time: ") else text


def _said_by_assistant(text: str) -> str:
    text = _REPLY_TAG.sub("", text) if "[[" in text else text
    if any(token in text for token in _SILENT):
        text = _SILENT_ENDS.sub("", text)
    return text


def _without_metadata(text: str) -> str:
    return _METADATA.sub("", text) if "(untrusted" in text else text


def _without_internal(text: str) -> str:
    """Without what the gateway marks as its own; a mark that nothing closes is a word like any other."""
    pieces: list[str] = []
    at = 0
    while (begin := text.find(_BEGIN_INTERNAL, at)) >= 0 and (end := text.find(_END_INTERNAL, begin)) >= 0:
        pieces.append(text[at:begin])
        at = end + len(_END_INTERNAL)
    return "".join((*pieces, text[at:])) if pieces else text
