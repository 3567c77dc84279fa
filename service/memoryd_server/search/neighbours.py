"""Adjacent chunks of one file: merged into one hit if they are short, else moved down behind other files. Pure.

A chunk is bounded in tokens, and a character of Chinese or Japanese is a token: four such chunks contain as much text
as one in English. Without merging, the parts of one passage would take the places of other hits.

Longer adjacent chunks are about the same subject, and often overlap. A penalty moves a chunk down for each better chunk
that is adjacent to it and not merged with it, so that adjacent chunks do not take the places of other files. It changes
the order only. It is not applied if MMR is enabled (`diversity`).
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from memoryd_server.search.query import Candidate
from memoryd_server.store import ChunkRow

KEYWORD_PENALTY: Final = 0.08
"""The penalty per adjacent chunk if keyword search alone answers."""
VECTOR_PENALTY: Final = 0.05
"""The penalty per adjacent chunk if vector search answers or takes part."""

RankedRow = tuple[Candidate, ChunkRow]


def spread(
    candidates: Sequence[Candidate], rows: Mapping[int, ChunkRow], penalty: float, places: int, merged_chars: int
) -> list[Candidate]:
    """Return the candidates with the first `places` ordered one after another by score - `penalty` x adjacent chunks.

    Adjacent chunks are those of the same file that are already placed, follow the chunk or precede it, and are not
    merged with it into a hit of `merged_chars`. `adjacent` of a candidate is its penalty. The other candidates
    follow in their order. `rows` has the first `places`; a candidate without a row is adjacent to none. Ties are broken
    by order. O(places^2) comparisons.
    """
    first = list(candidates[:places])
    by_file: defaultdict[tuple[str, str], dict[int, ChunkRow]] = defaultdict(dict)
    for place, candidate in enumerate(first):
        row = rows.get(candidate.chunk_id)
        if row is not None:
            by_file[row.source, row.path][place] = row
    paid = [0.0] * len(first)
    ordered: list[Candidate] = []
    # A penalty only grows, so the first of the heap whose value is current has the best value of all.
    heap = [(-candidate.score, place) for place, candidate in enumerate(first)]
    heapq.heapify(heap)
    while heap:
        value, place = heap[0]
        candidate = first[place]
        if paid[place] - candidate.score > value:
            heapq.heapreplace(heap, (paid[place] - candidate.score, place))
            continue
        heapq.heappop(heap)
        ordered.append(candidate._replace(adjacent=paid[place]) if paid[place] else candidate)
        row = rows.get(candidate.chunk_id)
        if row is not None:
            unplaced = by_file[row.source, row.path]
            del unplaced[place]
            for other_place, other in unplaced.items():
                if are_adjacent(row, other) and union(row, other, merged_chars) is None:
                    paid[other_place] += penalty
    return [*ordered, *candidates[places:]]


def are_adjacent(one: ChunkRow, other: ChunkRow) -> bool:
    """Return whether two chunks of the same file follow one another.

    The chunks of a file have consecutive ids, except those of a transcript that was read in several parts; these are
    adjacent if their lines touch. Of the parts of one long line, only those that follow one another are adjacent.
    """
    if abs(one.id - other.id) == 1:
        return True
    first, second = (one, other) if one.start_line <= other.start_line else (other, one)
    is_one_line = first.start_line == second.end_line
    return bool(one.line_numbers) and second.start_line <= first.end_line + 1 and not is_one_line


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


def merged_into(selected: Sequence[RankedRow], candidate: Candidate, row: ChunkRow, max_chars: int) -> list[RankedRow]:
    """Return the merged rows `selected` with one more, which is merged with the first that it touches."""
    for place, (better, other) in enumerate(selected):
        both = union(other, row, max_chars)
        if both is not None:
            return merged([*selected[:place], (better, both), *selected[place + 1 :]], max_chars)
    return [*selected, (candidate, row)]


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
    lines, following = first.text.split("\n"), second.text.split("\n")
    at, common = second.start_line - first.start_line, max(0, first.end_line - second.start_line + 1)
    both = min(common, len(following))
    # Parts of one long line have the same number and different texts.
    has_whole_lines = _has_whole_lines(first) and _has_whole_lines(second)
    if not has_whole_lines or lines[at : at + both] != following[:both]:
        return None
    text = "\n".join([*lines, *following[common:]])
    if len(text) > max_chars:
        return None
    end_line = max(first.end_line, second.end_line)
    return one._replace(start_line=first.start_line, end_line=end_line, text=text, breadcrumb=first.breadcrumb)


def _has_whole_lines(row: ChunkRow) -> bool:
    """Return whether the text has one line for each line of the range; a chunk of a line that was split does not."""
    return row.text.count("\n") == row.end_line - row.start_line
