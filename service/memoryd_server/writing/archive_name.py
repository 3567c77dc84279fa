"""What an archive of a session is called. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import date

from memoryd_server.sources.flattening import Message
from memoryd_server.sources.noise import USER
from memoryd_server.sources.roots import MEMORY_FOLDER, SUFFIX
from memoryd_server.text.normal_forms import normalized
from memoryd_server.text.stop_words import stop_words

MOST_SLUG_CHARS = 60
# A file's name has 255 bytes at most, and the date and a number take some.
_MOST_SLUG_BYTES = 200
_MOST_WORDS = 6
# A message of fewer telling words, such as a greeting, does not say yet what the session is about.
_FEW_WORDS = 3
# What a masked secret leaves standing, and addresses, tell nothing in a name.
_UNTELLING = re.compile(r"…|\*{3}|://")


def slug_of(text: str) -> str:
    """`text` in lower case with a hyphen for whatever is neither letter nor digit; empty when nothing is."""
    kept = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in normalized("NFC", text.lower()))
    words = [word for word in kept.split() if any(c.isalnum() for c in word)]
    slug = "-".join(words)[:MOST_SLUG_CHARS]
    while len(slug.encode()) > _MOST_SLUG_BYTES:
        slug = slug[:-1]
    return slug.rstrip("-")


def slug_from(messages: Iterable[Message]) -> str:
    """A name made from what the user said first; empty where that tells nothing."""
    words: list[str] = []
    for message in messages:
        if message.role != USER:
            continue
        words += _telling(message.text)
        if len(words) >= _FEW_WORDS:
            break
    slug = ""
    for word in words[:_MOST_WORDS]:
        longer = f"{slug}-{word}" if slug else word
        if slug and len(longer) > MOST_SLUG_CHARS:
            break
        slug = longer
    return slug_of(slug)


def _telling(text: str) -> list[str]:
    words = [
        word for piece in text.split() if not _UNTELLING.search(piece) for word in slug_of(piece).split("-") if word
    ]
    dropped = stop_words(words, ())
    return [word for word in words if word not in dropped]


def paths(day: date, slug: str) -> Iterator[str]:
    """The display paths of an archive, the first choice first: those after it are numbered."""
    stem = f"{MEMORY_FOLDER}/{day.isoformat()}-{slug}"
    yield f"{stem}{SUFFIX}"
    for number in range(2, 10_000):
        yield f"{stem}-{number}{SUFFIX}"
