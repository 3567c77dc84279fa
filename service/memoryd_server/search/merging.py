"""Adjacent chunks as one hit. Pure.

A chunk is bounded in tokens, and a character of Chinese or Japanese is a token: four such chunks contain as much text
as one in English. Without merging, the parts of one passage would take the places of other hits.
"""

from collections.abc import Sequence

from memoryd_server.search.query import Candidate
from memoryd_server.store import ChunkRow

RankedRow = tuple[Candidate, ChunkRow]


def merged(ranked: Sequence[RankedRow], max_chars: int) -> list[RankedRow]:
    """Return the ranking with each chunk merged into a better one that it touches, up to `max_chars` code points.

    A merged hit keeps the score, the ranks and the id of its best chunk.
    """
    hits: list[RankedRow] = []
    for candidate, row in ranked:
        for place, (better, other) in enumerate(hits):
            both = union(other, row, max_chars)
            if both is not None:
                hits[place] = (better, both)
                break
        else:
            hits.append((candidate, row))
    return hits


def union(one: ChunkRow, other: ChunkRow, max_chars: int) -> ChunkRow | None:
    """Return both chunks as one of at most `max_chars` code points, or None.

    Chunks stay apart if they do not touch, are too long together, are of a transcript, are not of whole lines, or have
    different annotations, which would not apply to the whole.
    """
    if one.path != other.path or one.source is not other.source or one.line_numbers or other.line_numbers:
        return None
    if one.annotations != other.annotations:
        return None
    first, second = sorted((one, other), key=lambda row: (row.start_line, row.end_line))
    if second.start_line > first.end_line + 1 or len(one.text) + len(other.text) > 2 * max_chars:
        return None
    if not (_has_whole_lines(first) and _has_whole_lines(second)):
        return None
    new = max(0, first.end_line - second.start_line + 1)
    text = "\n".join([first.text, *second.text.split("\n")[new:]])
    if len(text) > max_chars:
        return None
    end_line = max(first.end_line, second.end_line)
    return one._replace(start_line=first.start_line, end_line=end_line, text=text, breadcrumb=first.breadcrumb)


def _has_whole_lines(row: ChunkRow) -> bool:
    """Return whether the text has one line for each line of the range; a chunk of a line that was split does not."""
    return row.text.count("\n") == row.end_line - row.start_line
