"""Masking of secrets in text that is indexed, shown or sent: keys, tokens, passwords and private keys. Pure.

The source text itself is never changed. Masking is idempotent.

A secret is found by the name that announces it (`secret_assignments`), by its position (`secret_forms`), or by the
format of a service's keys (`secret_keys`). All of them see the text without disguises: full-width letters, typographic
quotes and invisible characters are replaced or removed before the search. Only what is found is masked, in the text as
it was.
"""

import re
import string
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from memoryd_server.sources.secret_assignments import find_assigned
from memoryd_server.sources.secret_forms import find_forms
from memoryd_server.sources.secret_keys import find_service_keys, long_words
from memoryd_server.sources.secret_values import is_masked

_LEAST_SHOWN = 18
_HEAD = 6
_TAIL = 4
_HIDDEN = "***"

_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----", re.IGNORECASE)
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----", re.IGNORECASE)
# The body of a key, with its line breaks as they are, folded into spaces or escaped.
_KEY_BODY = re.compile(r"(?:\*{3})?(?:(?:\s|\\+[rn])*[A-Za-z0-9+/=]{16,})*")
_PUTTY_BODY = re.compile(r"private-lines: \d{1,4}\s{1,4}([a-z0-9+/=]{16,}+(?:\s[a-z0-9+/=]{16,}+)*)", re.IGNORECASE)


# The rest of a key that is cut off at its beginning is searched this far before its end.
_MOST_KEY_CHARS = 8 << 10
_KEY_CHARACTERS = frozenset(string.ascii_letters + string.digits + "+/=")
_LEAST_KEY_LINE = 16


def mask_secrets(text: str) -> str:
    """Return the text with each secret as `***`, or as its first six and last four characters if it is long.

    Takes linear time for any text.
    """
    if "PRIVATE KEY" in text or "private key" in text.lower():
        text = _mask_private_keys(text)
    plain, places = (text, None) if text.isascii() else _undisguise(text)
    # One character has a lower case of two, which would move the positions.
    lowered = plain.lower() if plain.isascii() else plain.replace("İ", "I").lower()
    found = [*find_assigned(plain, lowered)]
    words = long_words(plain)
    found += find_forms(plain, lowered, words.lower())
    found += find_service_keys(plain, lowered, words) if words else ()
    if "private-lines" in lowered:
        found += [match.span(1) for match in _PUTTY_BODY.finditer(plain)]
    if "private key" in lowered:
        found += _find_key_tails(plain)
    spans = [(start, end) for start, end in found if not is_masked(plain[start:end])]
    if not spans:
        return text
    return _mask(text, spans if places is None else [(places[start], places[end - 1] + 1) for start, end in spans])


def _mask(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with the spans masked; those that overlap as one."""
    pieces: list[str] = []
    done = begin = end = 0
    for start, after in sorted(spans):
        if start >= end:
            pieces += (text[done:begin], _mask_value(text[begin:end]))
            done, begin = end, start
        end = max(end, after)
    return "".join((*pieces, text[done:begin], _mask_value(text[begin:end]), text[end:]))


def _mask_value(secret: str) -> str:
    if not secret:
        return ""
    return _HIDDEN if len(secret) < _LEAST_SHOWN else f"{secret[:_HEAD]}…{secret[-_TAIL:]}"


_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
_DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f\u00ab\u00bb\u300c\u300d"
_SINGLE_QUOTES = "\u2018\u2019"
# Full-width punctuation ends a value, and stays as it is: , ; ( ) ! ?
_PUNCTUATION = "\uff0c\uff1b\uff08\uff09\uff01\uff1f"
_BLANKS = "\u00a0\u2007\u202f\u3000"
_PLAIN: Final = {
    **dict.fromkeys(map(ord, _DOUBLE_QUOTES), '"'),
    **dict.fromkeys(map(ord, _SINGLE_QUOTES), "'"),
    **dict.fromkeys(map(ord, _BLANKS), " "),
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) not in _PUNCTUATION},
    **{
        code: plain
        for code in range(0x1D400, 0x1D800)
        if len(plain := unicodedata.normalize("NFKC", chr(code))) == 1 and plain.isascii()
    },
}


def _undisguise(text: str) -> tuple[str, Sequence[int] | None]:
    """Return the text as it reads, and the position of each of its characters if some were removed.

    Full-width and mathematical letters become ASCII, typographic quotes plain ones; invisible characters are removed.
    """
    plain = text.translate(_PLAIN)
    if _INVISIBLE.search(plain) is None:
        return plain, None
    places = [at for at, character in enumerate(plain) if _INVISIBLE.match(character) is None]
    return "".join([plain[at] for at in places]), places


def _mask_private_keys(text: str) -> str:
    """Mask private keys from BEGIN to END; of a truncated key, the part that looks like a key."""
    pieces: list[str] = []
    done = 0
    begins = list(_KEY_BEGINS.finditer(text))
    ends = _KEY_ENDS.finditer(text)
    end = next(ends, None)
    starts = [*(each.start() for each in begins), len(text)]
    for begin, following in zip(begins, starts[1:], strict=True):
        while end is not None and end.start() < begin.end():
            end = next(ends, None)
        if end is not None and end.start() < following:
            after, shown = end.end(), _mask_block(text[begin.start() : end.end()])
        else:
            body = _KEY_BODY.match(text, begin.end(), following)
            after, shown = begin.end() if body is None else body.end(), f"{begin[0]}{_HIDDEN}"
        pieces += (text[done : begin.start()], shown)
        done = after
    return "".join((*pieces, text[done:]))


def _mask_block(block: str) -> str:
    lines = [line for line in block.splitlines() if line]
    return _HIDDEN if len(lines) == 1 else f"{lines[0]}\n…redacted…\n{lines[-1]}"


def _find_key_tails(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the last lines of a private key are whose beginning is not in the text."""
    for end in _KEY_ENDS.finditer(text):
        limit = max(0, end.start() - _MOST_KEY_CHARS)
        first = last = at = end.start()
        while at > limit:
            while at > limit and (text[at - 1].isspace() or text[at - 1] == "\\"):
                at -= 1
            line_end = at
            while at > limit and text[at - 1] in _KEY_CHARACTERS:
                at -= 1
            # The last line may be short.
            if line_end == at or (line_end - at < _LEAST_KEY_LINE and first < last):
                break
            first, last = at, last if first < last else line_end
        if last - first >= _LEAST_KEY_LINE:
            yield first, last
