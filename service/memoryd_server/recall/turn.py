"""What a turn is searched for: a short query, made of a message of any length. Pure; linear in a bounded part of it.

- A message whose first word is a command, such as `/reset` or `!ls`, is not searched.
- An earlier recall block in the message is left out.
- Of a message of more than 8,192 code points, the first and the last 4,096 are read.
- Fenced code is put aside. In a message of more than 600 code points, so are lines that are mostly no words: code,
  logs, stack traces, tables.
- The rest, the prose, is the query. If it has more than 600 code points, its first and last 300 are.
- If the prose has less than 24 code points, the informative words of what was put aside are added to it, at most 24:
  identifiers (with an underscore, a dot, a hyphen, a digit among letters, or a capital within), then the longest words.
  Of words that differ only in their digits, the first one counts.
"""

# ruff: noqa: RUF001 -- punctuation of other scripts

import re
from collections.abc import Iterator
from typing import NamedTuple

from memoryd_server.recall.fence import CLOSING, OPENING

MOST_READ_CHARS = 4_096
"""Code points that are read at each end of a long message."""
MOST_PROSE_CHARS = 300
"""Code points of the prose at each end of it."""
MOST_CONTEXT_CHARS = 300
"""Code points of the message before, if it completes a short question."""
MOST_INFORMATIVE_WORDS = 24
LEAST_PROSE_CHARS = 24

_LEAST_WORD_SHARE = 0.75
_LEAST_WORD_CHARS = 4
_MOST_WORD_CHARS = 64
# Not a path such as "/etc".
_COMMAND = re.compile(
    r"(?:!|/(?!(?:etc|usr|var|home|tmp|opt|bin|lib|dev|proc|sys|mnt|root|srv|boot)\b))[a-zA-Z][\w-]*(?!\S)"
)
_CODE_FENCE = re.compile(r"\s{0,3}(?:```[^`]*|~~~.*)")
_PLAIN_WORD = re.compile(r"[(\[\"'“„«¿¡]*[^\W\d_]+(?:['’-][^\W\d_]+)*[)\]\"'”“».,;:!?…。、！？]*")
_TOKEN = re.compile(r"[^\W_](?:[\w.-]*\w)?")
_HEX = re.compile(r"[0-9a-fA-F-]{8,}")
_DIGITS = re.compile(r"[0-9]+")
_INNER = re.compile(r"[._-]|[a-z][A-Z]|[^\W\d_][0-9]|[0-9][^\W\d_]")
_QUESTION_MARKS = ("?", "？", "؟")
# Questions are often typed without a mark.
_QUESTION = re.compile(
    r"\A(?:what|when|where|who|whom|whose|which|why|how)\b|[か吗嗎呢][。！!]?$", re.IGNORECASE | re.MULTILINE
)


class TurnText(NamedTuple):
    """The query for a message; empty if it is a command, or has no words.

    `is_question` is whether its prose has a question mark, begins with an English interrogative, or has a line that
    ends with a Japanese or Chinese question particle.
    """

    query: str
    is_question: bool = False


def read_turn(text: str) -> TurnText:
    """Return what a message is searched for."""
    stripped = _without_block(text).strip()
    if _COMMAND.match(stripped):
        return TurnText("")
    prose, rest = _split(_ends(stripped, MOST_READ_CHARS))
    query = _ends(prose, MOST_PROSE_CHARS)
    if len(query) < LEAST_PROSE_CHARS:
        query = " ".join((query, *_informative_words(rest))).strip()
    return TurnText(query, _is_question(prose))


def with_context(turn: TurnText, message: str) -> str:
    """Return the query of a turn after the last words of the message before it."""
    return f"{_ends(read_turn(message).query, MOST_CONTEXT_CHARS // 2)} {turn.query}".strip()


def _is_question(prose: str) -> bool:
    return any(mark in prose for mark in _QUESTION_MARKS) or _QUESTION.search(prose) is not None


def _without_block(text: str) -> str:
    begin, end = text.find(OPENING), text.rfind(CLOSING)
    return text if begin < 0 or end < begin else f"{text[:begin]} {text[end + len(CLOSING) :]}"


def _ends(text: str, size: int) -> str:
    """Return a text, or its first and last `size` code points, without the words that are cut."""
    if len(text) <= 2 * size:
        return text
    head, tail = text[:size], text[-size:]
    first, last = head.rfind(" "), tail.find(" ")
    return f"{head[:first] if first > 0 else head}\n{tail[last + 1 :] if last >= 0 else tail}"


def _split(text: str) -> tuple[str, str]:
    """Return the prose of a text, and the rest."""
    is_long = len(text) > 2 * MOST_PROSE_CHARS
    prose: list[str] = []
    rest: list[str] = []
    lines = text.splitlines()
    fences = [at for at, line in enumerate(lines) if _CODE_FENCE.fullmatch(line)]
    # A fence that is not closed, for example because its end is not read, fences nothing.
    closed = set(fences[: len(fences) // 2 * 2])
    in_fence = False
    for at, line in enumerate(lines):
        if at in closed:
            in_fence = not in_fence
        else:
            (rest if in_fence or (is_long and not _is_prose(line)) else prose).append(line)
    return "\n".join(prose).strip(), "\n".join(rest)


def _is_prose(line: str) -> bool:
    words = line.split()
    plain = sum(_PLAIN_WORD.fullmatch(word) is not None for word in words)
    return plain >= _LEAST_WORD_SHARE * len(words)


def _informative_words(text: str) -> list[str]:
    by_form: dict[str, str] = {}
    for token in _tokens(text):
        by_form.setdefault(_DIGITS.sub("0", token), token)
    names = [token for token in by_form.values() if _INNER.search(token)]
    words = sorted((token for token in by_form.values() if not _INNER.search(token)), key=len, reverse=True)
    return [*names, *words][:MOST_INFORMATIVE_WORDS]


def _tokens(text: str) -> Iterator[str]:
    for token in _TOKEN.findall(text):
        is_number = not any(map(str.isalpha, token))
        is_hex = _HEX.fullmatch(token) is not None and any(map(str.isdigit, token))
        if _LEAST_WORD_CHARS <= len(token) <= _MOST_WORD_CHARS and not is_number and not is_hex:
            yield token
