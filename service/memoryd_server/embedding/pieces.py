"""Pieces: the parts of a text that a model with a short input embeds one by one, and the mean of their vectors.

A model that was trained with short texts represents the first sentences of a long one best. The normalised mean of the
vectors of its pieces represents all of it (decision 34). A piece ends at a line's end, unless it would be shorter
than half the limit.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from memoryd_server.vectors import InvalidVector, Vector, from_blob, to_blob, unit

MOST_PIECES = 64
"""Pieces per text; what follows them is not embedded. Chunks of the default size have up to seven."""

PIECES_A_CALL = 256
"""Pieces per call of the provider: four requests, as many as run at the same time by default."""

# A sequence of more marks than this is no text, and may be cut.
_MOST_MARKS = 16

_NOT_BLANK = re.compile(r"\S")


class PieceKey(NamedTuple):
    """A piece of a text: the text's content hash, and the piece's number, from 0."""

    content_hash: bytes
    number: int


def pieces(text: str, max_chars: int, most: int = MOST_PIECES) -> list[str]:
    """Return the first `most` pieces of a text, of up to `max_chars` code points each. Linear in the text.

    A text that is no longer than that, or if `max_chars` is 0, is its own only piece. Otherwise every character that is
    not blank is in one piece, in order, and no piece begins or ends with blanks.
    """
    if not max_chars or len(text) <= max_chars:
        return [text]
    return list(islice(_pieces(text, max_chars), most)) or [text[:max_chars]]


def _pieces(text: str, max_chars: int) -> Iterator[str]:
    start = 0
    while first := _NOT_BLANK.search(text, start):
        end = _end(text, first.start(), max_chars)
        yield text[first.start() : end].rstrip()
        start = end


def _end(text: str, start: int, max_chars: int) -> int:
    """Return where the piece that begins at `start` ends: at a line's end, else at a space, else at the limit."""
    limit = start + max_chars
    if limit >= len(text):
        return len(text)
    for separator in ("\n", " "):
        # Not in the first half: a heading before a long line would count as much as the line.
        at = text.rfind(separator, start + max_chars // 2, limit + 1)
        if at > start:
            return at
    marks = range(limit, max(start, limit - _MOST_MARKS), -1)
    return next((at for at in marks if not unicodedata.category(text[at]).startswith("M")), limit)


def mean(vectors: Sequence[Vector]) -> Vector:
    """Return the normalised mean of unit vectors of one length: the vector that is as near as possible to all.

    If they cancel each other out, no vector is; the first one is returned.
    """
    if len(vectors) == 1:
        return vectors[0]
    try:
        return unit(np.sum(np.stack(vectors), axis=0, dtype=np.float64))
    except InvalidVector:
        return vectors[0]


def calls(texts: Mapping[bytes, str], max_chars: int, most: int = PIECES_A_CALL) -> Iterator[dict[PieceKey, str]]:
    """Yield the pieces of texts by their keys, in groups of up to `most`; all pieces of a text are in one group.

    A text of which less than half is ASCII is one piece: the models that get pieces know few words of other scripts,
    and the vectors of such pieces are more alike than those of whole texts.
    """
    group: dict[PieceKey, str] = {}
    for content_hash, text in texts.items():
        own_chars = max_chars if _is_half_ascii(text) else 0
        own = {PieceKey(content_hash, number): piece for number, piece in enumerate(pieces(text, own_chars))}
        if group and len(group) + len(own) > most:
            yield group
            group = {}
        group.update(own)
    if group:
        yield group


def _is_half_ascii(text: str) -> bool:
    return text.isascii() or 2 * len(text.encode("ascii", "ignore")) >= len(text)


def whole_texts(
    group: Mapping[PieceKey, str], vectors: Mapping[PieceKey, bytes], refused: Mapping[PieceKey, str]
) -> tuple[dict[bytes, bytes], dict[bytes, str]]:
    """Return the vectors of whole texts, and why texts are refused, from the vectors and refusals of their pieces.

    A refused piece is left out of the mean; a text is refused if all its pieces are, with the reason for the first.
    A text with a piece that has neither a vector nor a refusal has neither itself.
    """
    by_text: dict[bytes, list[PieceKey]] = {}
    for key in group:
        by_text.setdefault(key.content_hash, []).append(key)
    found: dict[bytes, bytes] = {}
    without: dict[bytes, str] = {}
    for content_hash, keys in by_text.items():
        if any(key not in vectors and key not in refused for key in keys):
            continue
        own = [from_blob(vectors[key]) for key in keys if key in vectors]
        if own:
            found[content_hash] = to_blob(mean(own))
        else:
            without[content_hash] = refused[keys[0]]
    return found, without
