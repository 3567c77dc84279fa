"""Metrics and report; pure.

How well one answer finds what it should; pure.

A gold span counts as found by a hit of the same path that shares at least one line with it. Every figure is 0..1,
larger is better. docs/search-quality.md says what each tells.

Many scores into few: means overall and by whatever a question is labelled with; pure.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Final

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
class LineSpan:
    """Lines of a file, from 1, both inclusive."""

    path: str
    start_line: int
    end_line: int

    def meets(self, other: "LineSpan") -> bool:
        """Whether they share a line."""
        return self.path == other.path and self.start_line <= other.end_line and other.start_line <= self.end_line


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """What a question should find: the place, and the text that stands there."""

    span: LineSpan
    text: str


@dataclass(frozen=True, slots=True)
class ShownHit:
    """One result: the lines it names and the text it shows."""

    span: LineSpan
    snippet: str


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


def recall(finds: Sequence[set[int]], wanted: int) -> float:
    """Share of the `wanted` spans that any result finds. `finds` says, result by result, which those are."""
    return len(set().union(*finds)) / wanted


def shown(gold: Sequence[GoldAnswer], hits: Sequence[ShownHit]) -> float:
    """Share of the spans whose text can be read in the snippets of the hits of their file.

    It can when at least half of the passage's runs of 8 letters and digits stand in them; case, spaces and punctuation
    do not matter, and of a long passage its first 700 characters count. A document is shown by any hit in it.
    """
    return sum(_is_shown(each, hits) for each in gold) / len(gold)


@dataclass(frozen=True, slots=True)
class Scores:
    """The figures of one question, or the means of many."""

    recall: float
    hit: float
    mrr: float
    ndcg: float
    shown: float


def score(gold: Sequence[GoldAnswer], hits: Sequence[ShownHit]) -> Scores:
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


def reciprocal_rank(finds: Sequence[set[int]]) -> float:
    """One over the rank of the first result that finds anything; 0 when none does."""
    return next((1 / rank for rank, found in enumerate(finds, start=1) if found), 0.0)


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def _is_shown(gold: GoldAnswer, hits: Sequence[ShownHit]) -> bool:
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


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """One question. `gold` is empty for what nothing answers; `asked_at` is None where the row names no day."""

    query_id: str
    workspace: Path
    text: str
    gold: tuple[GoldAnswer, ...]
    kind: str
    lang: str
    dataset: str
    asked_at: datetime | None


LABELS: Final = ("dataset", "kind", "lang")

# What people and JSON call each figure.
NAMES: Final[Mapping[str, str]] = {
    "recall": f"recall@{SEEN}",
    "hit": "hit@1",
    "mrr": f"mrr@{RANKED}",
    "ndcg": f"ndcg@{RANKED}",
    "shown": f"shown@{SEEN}",
}


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """One question and how it went; `scores` is None where nothing answers it."""

    query: GoldenQuery
    scores: Scores | None
    empty: bool


@dataclass(frozen=True, slots=True)
class GroupMeans:
    """The means of a group. `silent` is the share of its `unanswerable` questions that got no result.

    `scores` is None in a group without an answerable question, `silent` in one without an unanswerable one.
    """

    queries: int
    scores: Scores | None
    unanswerable: int
    silent: float | None

    def as_dict(self) -> dict[str, Any]:
        """The figures by name, rounded to four places, ready for JSON; absent ones left out."""
        found: dict[str, Any] = {"queries": self.queries}
        if self.scores is not None:
            found |= {name: round(getattr(self.scores, field), 4) for field, name in NAMES.items()}
        if self.silent is not None:
            found |= {"unanswerable": self.unanswerable, "answered_with_nothing": round(self.silent, 4)}
        return found


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Figures of all questions, and by each combination of labels, for example `dataset` or `dataset/lang`."""

    overall: GroupMeans
    by: Mapping[str, Mapping[str, GroupMeans]]

    def as_dict(self) -> dict[str, Any]:
        """The report, ready for JSON."""
        groups = {labels: {name: each.as_dict() for name, each in rows.items()} for labels, rows in self.by.items()}
        return {"overall": self.overall.as_dict(), "by": groups}


def judge(query: GoldenQuery, hits: Sequence[ShownHit]) -> QueryOutcome:
    """How a question went, by the hits that it got, best first."""
    return QueryOutcome(query, score(query.gold, hits) if query.gold else None, empty=not hits)


def make_report(outcomes: Sequence[QueryOutcome], by: Iterable[str]) -> EvaluationReport:
    """Means overall and for each of `by`: labels joined by `/`. Every question counts the same.

    Raises:
        ValueError: a label is not one of `LABELS`.
    """
    return EvaluationReport(_figures(outcomes), {labels: _groups(outcomes, labels) for labels in by})


def _groups(outcomes: Sequence[QueryOutcome], labels: str) -> dict[str, GroupMeans]:
    wanted = labels.split("/")
    if unknown := sorted(set(wanted) - set(LABELS)):
        raise ValueError(f"{', '.join(unknown)}: the labels are {', '.join(LABELS)}")
    groups: dict[str, list[QueryOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault("/".join(getattr(outcome.query, label) for label in wanted), []).append(outcome)
    return {name: _figures(groups[name]) for name in sorted(groups)}


def _figures(outcomes: Sequence[QueryOutcome]) -> GroupMeans:
    scores = [outcome.scores for outcome in outcomes if outcome.scores is not None]
    silences = [outcome.empty for outcome in outcomes if outcome.scores is None]
    return GroupMeans(len(scores), _mean(scores), len(silences), fmean(silences) if silences else None)


def _mean(scores: Sequence[Scores]) -> Scores | None:
    if not scores:
        return None
    return Scores(**{field.name: fmean(getattr(each, field.name) for each in scores) for field in fields(Scores)})
