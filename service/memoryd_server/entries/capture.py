"""Which messages are worth storing, and the block of recalled entries for a prompt. Pure.

The triggers, exclusions and limits are those of OpenClaw, with two stricter exclusions: any tag counts as markup, at
any position, and disguised letters are normalized before a message is classified.

Stored text is untrusted. In a recall block it cannot end the block, begin a line or contain markup.
"""

import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memoryd_server.entries.model import Entry, EntryCategory
from memoryd_server.recall import escape_line, fenced
from memoryd_server.text import normalized

LEAST_CHARS = 10
MOST_EMOJI = 3
MOST_A_TURN = 3
IMPORTANCE = 0.7


class CaptureTrigger(StrEnum):
    """Why a message is worth storing; the names of the wire's enum."""

    REMEMBER = "REMEMBER"
    PREFERENCE = "PREFERENCE"
    DECISION = "DECISION"
    CONTACT = "CONTACT"
    OWN = "OWN"
    RULE = "RULE"


class CaptureExclusion(StrEnum):
    """Why a message is not stored; the names of the wire's enum."""

    TOO_SHORT = "TOO_SHORT"
    TOO_LONG = "TOO_LONG"
    RECALLED = "RECALLED"
    MARKUP = "MARKUP"
    SUMMARY = "SUMMARY"
    EMOJI = "EMOJI"
    INJECTION = "INJECTION"
    NO_TRIGGER = "NO_TRIGGER"
    TURN_FULL = "TURN_FULL"


@dataclass(frozen=True, slots=True)
class CaptureSuggestion:
    """A message worth storing. `index` is its position among the messages."""

    index: int
    text: str
    category: EntryCategory
    trigger: CaptureTrigger


@dataclass(frozen=True, slots=True)
class CaptureRefusal:
    """A message that is not worth storing. `index` is its position among the messages."""

    index: int
    exclusion: CaptureExclusion


# No two adjacent parts of a pattern match the same long run: backtracking would take quadratic time.
_PHONE_OR_MAIL = r"\+\d[\d ()/-]{8,}\d|[\w.+-]@[\w-]+\.[.-]*\w"
_LIKES = r"\bi (?:really |also )?(?:like|love|hate|dislike|prefer|want|need|enjoy)\b"

# The first trigger that matches counts. English and Czech, as in OpenClaw.
_TRIGGERS: Mapping[CaptureTrigger, re.Pattern[str]] = {
    trigger: re.compile(pattern, re.IGNORECASE)
    for trigger, pattern in {
        CaptureTrigger.REMEMBER: r"\bremember\b|\bpamatuj|\bzapamatuj",
        CaptureTrigger.PREFERENCE: rf"\bprefer|{_LIKES}|\bpreferuji|\bradši\b|\bnechci\b|\bmám rád",
        CaptureTrigger.DECISION: r"\bdecided\b|\bdecision\b|\bwe(?:'ll| will) use\b|\brozhodl|\bbudeme používat\b",
        CaptureTrigger.CONTACT: _PHONE_OR_MAIL,
        CaptureTrigger.OWN: r"\bmy [\w-]+ is\b|\bis my\b|\bmůj \w+ je\b|\bmoje \w+ je\b|\bje můj\b|\bje moje\b",
        CaptureTrigger.RULE: r"\balways\b|\bnever\b|\bimportant\b|\bvždy\b|\bnikdy\b|\bdůležit",
    }.items()
}

_CATEGORIES: Mapping[EntryCategory, re.Pattern[str]] = {
    category: re.compile(pattern, re.IGNORECASE)
    for category, pattern in {
        EntryCategory.PREFERENCE: rf"\bprefer|{_LIKES}|\bradši\b|\bnechci\b|\bmám rád",
        EntryCategory.DECISION: r"\bdecided\b|\bdecision\b|\bwill use\b|\bwe'll use\b|\brozhodl|\bbudeme\b",
        EntryCategory.ENTITY: rf"{_PHONE_OR_MAIL}|\bis called\b|\bname is\b|\bjmenuje\b",
        EntryCategory.FACT: r"\b(?:is|are|was|were|has|have|had|je|jsou|má|byl|byla)\b",
    }.items()
}
_INJECTION = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instructions?|rules?|prompts?|messages?|guidelines?)\b"
    r"|\bdo(?: not|n't) (?:follow|obey|listen to)\b"
    r"|\b(?:system|developer|hidden|initial) (?:prompts?|messages?|instructions?)\b"
    r"|\byou are now\b|\bact as\b|\bpretend (?:to be|you)\b|\bjailbreak"
    r"|\b(?:run|execute|call|invoke)\b.{0,40}\b(?:tools?|commands?|functions?|shell|scripts?)\b"
    r"|(?:^|\n)[^\S\n]*(?:system|assistant|developer|tool)\s*:"
    r"|\[/?(?:inst|sys|system)\]",
    re.IGNORECASE | re.DOTALL,
)
# Python refuses to parse numbers of thousands of digits. The largest code point has seven digits.
_MOST_DIGITS = 8
_ENTITY = re.compile(r"&#([0-9]+)")
_TAG = re.compile(r"<\s*(?:[/!?]\s*)?[^\W\d_]|<!--|<\|")
_RECALLED = re.compile(r"<\s*(?:/\s*)?relevant-memories", re.IGNORECASE)


def suggest(
    messages: Sequence[str], most_chars: int
) -> tuple[tuple[CaptureSuggestion, ...], tuple[CaptureRefusal, ...]]:
    """Sort the messages of a turn into those worth storing and the others; every message is in one of the two."""
    suggestions: list[CaptureSuggestion] = []
    refusals: list[CaptureRefusal] = []
    for index, message in enumerate(messages):
        verdict = _classify(message, most_chars)
        if isinstance(verdict, CaptureExclusion):
            refusals.append(CaptureRefusal(index, verdict))
        elif len(suggestions) == MOST_A_TURN:
            refusals.append(CaptureRefusal(index, CaptureExclusion.TURN_FULL))
        else:
            suggestions.append(CaptureSuggestion(index, message.strip(), detect_category(message), verdict))
    return tuple(suggestions), tuple(refusals)


def detect_category(text: str) -> EntryCategory:
    """Return the category that the words of a text suggest."""
    plain = _undisguise(text)
    return next((category for category, pattern in _CATEGORIES.items() if pattern.search(plain)), EntryCategory.OTHER)


def _classify(message: str, most_chars: int) -> CaptureTrigger | CaptureExclusion:
    text = message.strip()
    if len(text) < LEAST_CHARS:
        return CaptureExclusion.TOO_SHORT
    if len(text) > most_chars:
        return CaptureExclusion.TOO_LONG
    plain = _undisguise(text)
    exclusion = _find_exclusion(text, plain)
    if exclusion is not None:
        return exclusion
    return next(
        (trigger for trigger, pattern in _TRIGGERS.items() if pattern.search(plain)), CaptureExclusion.NO_TRIGGER
    )


def _find_exclusion(text: str, plain: str) -> CaptureExclusion | None:
    if _RECALLED.search(plain):
        return CaptureExclusion.RECALLED
    if _TAG.search(plain):
        return CaptureExclusion.MARKUP
    if "**" in text and "\n-" in text:
        return CaptureExclusion.SUMMARY
    if sum(map(_is_emoji, text)) > MOST_EMOJI:
        return CaptureExclusion.EMOJI
    return CaptureExclusion.INJECTION if _INJECTION.search(plain) else None


def _undisguise(text: str) -> str:
    """Return the text as a reader sees it: NFKC letters, entities resolved, invisible characters removed."""
    resolved = _resolve_entities(_resolve_entities(text))
    folded = normalized("NFKC", resolved).replace("\u2019", "'")
    visible = "".join(character for character in folded if unicodedata.category(character) != "Cf")
    return re.sub(r"[^\S\n]+", " ", visible)


def _resolve_entities(text: str) -> str:
    """Return the text with its entities resolved once. A number too large for a character is shortened first."""
    shortened = _ENTITY.sub(lambda entity: f"&#{entity[1].lstrip('0')[:_MOST_DIGITS] or '0'}", text)
    return html.unescape(shortened)


def _is_emoji(character: str) -> bool:
    code = ord(character)
    return 0x1F300 <= code <= 0x1FAFF or 0x2600 <= code <= 0x27BF  # noqa: PLR2004 -- Unicode's blocks


BLOCK_ENTRIES = 3
LEAST_PROMPT_CHARS = 5
MOST_TEXT_CHARS = 1_000


def recall_block(entries: Sequence[Entry]) -> str:
    """Return the block, one numbered line per entry; empty for no entries."""
    if not entries:
        return ""
    lines = (
        f"{number}. [{entry.category}] {escape_line(entry.text, MOST_TEXT_CHARS)}"
        for number, entry in enumerate(entries, 1)
    )
    return fenced(lines)
