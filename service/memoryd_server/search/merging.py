"""Neighbouring chunks of one file shown as one hit, where together they are no longer than a chunk of Latin text. Pure.

A chunk is bounded in tokens, and a character of Chinese or Japanese is a token: four such chunks hold as much text as
one in English. Shown apart, the parts of one passage would take the places of others.
"""

from collections.abc import Sequence

from memoryd_server.search.fusion import Candidate
from memoryd_server.store.rows import ChunkRow

Ranked = tuple[Candidate, ChunkRow]


def merged(ranked: Sequence[Ranked], max_chars: int) -> list[Ranked]:
    """The ranking with each chunk joined to a better one that it touches or overlaps, up to `max_chars` code points.

    A joined hit keeps the score, the ranks and the id of its best chunk.
    """
    kept: list[Ranked] = []
    for candidate, row in ranked:
        for place, (better, other) in enumerate(kept):
            union = _union(other, row, max_chars)
            if union is not None:
                kept[place] = (better, union)
                break
        else:
            kept.append((candidate, row))
    return kept


def _union(one: ChunkRow, other: ChunkRow, max_chars: int) -> ChunkRow | None:
    """Both as one chunk; None when they are apart, too long together, of a transcript, or not made of whole lines."""
    if one.path != other.path or one.source is not other.source or one.line_numbers or other.line_numbers:
        return None
    first, second = sorted((one, other), key=lambda row: (row.start_line, row.end_line))
    if second.start_line > first.end_line + 1 or len(one.text) + len(other.text) > 2 * max_chars:
        return None
    if not (_is_whole(first) and _is_whole(second)):
        return None
    new = max(0, first.end_line - second.start_line + 1)
    text = "\n".join([first.text, *second.text.split("\n")[new:]])
    if len(text) > max_chars:
        return None
    end_line = max(first.end_line, second.end_line)
    return one._replace(start_line=first.start_line, end_line=end_line, text=text, breadcrumb=first.breadcrumb)


def _is_whole(row: ChunkRow) -> bool:
    """Whether the text has a line for each line of the range; a chunk of a line that was cut has not."""
    return row.text.count("\n") == row.end_line - row.start_line
