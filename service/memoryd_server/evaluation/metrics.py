"""How well one answer finds what it should; pure.

A gold span counts as found by a hit of the same path that shares at least one line with it. Every figure is 0..1,
larger is better. docs/search-quality.md says what each tells.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Results that a model gets to see, and results that are ranked.
SEEN = 6
RANKED = 10

# Gold longer than this many lines names a document: a hit anywhere in it shows it.
_LONGEST_PASSAGE = 41
# What is compared of a passage: characters, in runs of this length.
_COMPARED_CHARS = 700
_RUN = 8
_ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Span:
    """Lines of a file, from 1, both inclusive."""

    path: str
    start_line: int
    end_line: int

    def meets(self, other: "Span") -> bool:
        """Whether they share a line."""
        return self.path == other.path and self.start_line <= other.end_line and other.start_line <= self.end_line


@dataclass(frozen=True, slots=True)
class Gold:
    """What a question should find: the place, and the text that stands there."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: the lines it names and the text it shows."""

    span: Span
    snippet: str


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of one question, or the means of many."""

    recall: float
    hit: float
    mrr: float
    ndcg: float
    shown: float


def score(gold: Sequence[Gold], hits: Sequence[Hit]) -> Scores:
    """Every figure of one answer. `hits` are best first; there must be gold."""
    ranked = hits[:RANKED]
    finds = [{number for number, each in enumerate(gold) if hit.span.meets(each.span)} for hit in ranked]
    return Scores(
        recall=recall(finds[:SEEN], len(gold)),
        hit=float(bool(finds and finds[0])),
        mrr=reciprocal_rank(finds),
        ndcg=ndcg(finds, len(gold)),
        shown=shown(gold, ranked[:SEEN]),
    )


def recall(finds: Sequence[set[int]], wanted: int) -> float:
    """Share of the `wanted` spans that any result finds. `finds` says, result by result, which those are."""
    return len(set().union(*finds)) / wanted


def reciprocal_rank(finds: Sequence[set[int]]) -> float:
    """One over the rank of the first result that finds anything; 0 when none does."""
    return next((1 / rank for rank, found in enumerate(finds, start=1) if found), 0.0)


def ndcg(finds: Sequence[set[int]], wanted: int) -> float:
    """Discounted gain over the best possible, where only a result that finds a span for the first time gains.

    The discount is 1 / log2(rank + 1) (Järvelin and Kekäläinen, 2002). The best order has the gaining results first,
    then one result for each span that was not found.
    """
    found: set[int] = set()
    gains = []
    for rank, new in enumerate(finds, start=1):
        if new - found:
            gains.append(_discount(rank))
            found |= new
    best = min(RANKED, len(gains) + wanted - len(found))
    return sum(gains) / sum(_discount(rank) for rank in range(1, best + 1))


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def shown(gold: Sequence[Gold], hits: Sequence[Hit]) -> float:
    """Share of the spans whose text can be read in the snippets of the hits of their file.

    It can when at least half of the passage's runs of 8 letters and digits stand in them; case, spaces and punctuation
    do not matter, and of a long passage its first 700 characters count. A document is shown by any hit in it.
    """
    return sum(_is_shown(each, hits) for each in gold) / len(gold)


def _is_shown(gold: Gold, hits: Sequence[Hit]) -> bool:
    if not any(hit.span.meets(gold.span) for hit in hits):
        return False
    if gold.span.end_line - gold.span.start_line >= _LONGEST_PASSAGE:
        return True
    wanted = set(_runs(_letters(gold.text)[:_COMPARED_CHARS]))
    visible = {run for hit in hits if hit.span.path == gold.span.path for run in _runs(_letters(hit.snippet))}
    return bool(wanted) and len(wanted & visible) >= _ENOUGH * len(wanted)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


def _runs(text: str) -> Iterator[str]:
    """Every run of 8 characters; the whole text when it is shorter, none when it is empty."""
    if text:
        yield from (text[start : start + _RUN] for start in range(max(1, len(text) - _RUN + 1)))
