"""Metrics of search answers, and their means. Pure.

A gold span is found by a hit of the same path that shares at least one line with it. Every metric is from 0 to 1,
larger is better. docs/search-quality.md explains each of them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Final

# The results that a model sees, and the results that are ranked.
SEEN = 6
RANKED = 10

# Longer gold names a document: any hit in it shows it.
_LONGEST_PASSAGE = 41
# The compared characters of a passage, and the length of the compared runs.
_COMPARED_CHARS = 700
_RUN = 8
_ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class LineSpan:
    """Lines of a file, from 1, both inclusive."""

    path: str
    start_line: int
    end_line: int

    def overlaps(self, other: "LineSpan") -> bool:
        """Return whether the spans share a line."""
        return self.path == other.path and self.start_line <= other.end_line and other.start_line <= self.end_line


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """The lines that answer a question, and their text."""

    span: LineSpan
    text: str


@dataclass(frozen=True, slots=True)
class ShownHit:
    """One result: its lines and its snippet."""

    span: LineSpan
    snippet: str


def ndcg(finds: Sequence[set[int]], wanted: int) -> float:
    """Return the normalized discounted cumulative gain; only a result that finds a new span has gain.

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
    """Return the share of the `wanted` spans that any result finds. `finds` are the found spans of each result."""
    return len(set().union(*finds)) / wanted


def shown_share(gold: Sequence[GoldAnswer], hits: Sequence[ShownHit]) -> float:
    """Return the share of the spans whose text is in the snippets of the hits of their file.

    A text is shown if the snippets contain at least half of its runs of 8 letters and digits. Case, spaces and
    punctuation are ignored, and only the first 700 characters of a passage count. A document is shown by any hit in it.
    """
    return sum(_is_shown(each, hits) for each in gold) / len(gold)


@dataclass(frozen=True, slots=True)
class Scores:
    """The metrics of one question, or the means of many."""

    recall: float
    hit: float
    mrr: float
    ndcg: float
    shown: float


def score(gold: Sequence[GoldAnswer], hits: Sequence[ShownHit]) -> Scores:
    """Return every metric of one answer. `hits` are best first; `gold` must not be empty."""
    ranked = hits[:RANKED]
    finds = [{number for number, each in enumerate(gold) if hit.span.overlaps(each.span)} for hit in ranked]
    return Scores(
        recall=recall(finds[:SEEN], len(gold)),
        hit=float(bool(finds and finds[0])),
        mrr=reciprocal_rank(finds),
        ndcg=ndcg(finds, len(gold)),
        shown=shown_share(gold, ranked[:SEEN]),
    )


def reciprocal_rank(finds: Sequence[set[int]]) -> float:
    """Return one over the rank of the first result that finds a span; 0 if none does."""
    return next((1 / rank for rank, found in enumerate(finds, start=1) if found), 0.0)


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def _is_shown(gold: GoldAnswer, hits: Sequence[ShownHit]) -> bool:
    if not any(hit.span.overlaps(gold.span) for hit in hits):
        return False
    if gold.span.end_line - gold.span.start_line >= _LONGEST_PASSAGE:
        return True
    wanted = set(_runs(_letters(gold.text)[:_COMPARED_CHARS]))
    visible = {run for hit in hits if hit.span.path == gold.span.path for run in _runs(_letters(hit.snippet))}
    return bool(wanted) and len(wanted & visible) >= _ENOUGH * len(wanted)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


def _runs(text: str) -> Iterator[str]:
    """Yield every run of 8 characters; a shorter text as a whole, nothing for an empty one."""
    if text:
        yield from (text[start : start + _RUN] for start in range(max(1, len(text) - _RUN + 1)))


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """One question. `gold` is empty if it has no answer; `asked_at` is None if the row has no day.

    `key` is the name of the set's folder and the id, which is unique in the golden sets of one folder.
    """

    key: str
    workspace: Path
    text: str
    gold: tuple[GoldAnswer, ...]
    kind: str
    lang: str
    dataset: str
    asked_at: datetime | None


LABELS: Final = ("dataset", "kind", "lang")

# The name of each metric in tables and JSON.
NAMES: Final[Mapping[str, str]] = {
    "recall": f"recall@{SEEN}",
    "hit": "hit@1",
    "mrr": f"mrr@{RANKED}",
    "ndcg": f"ndcg@{RANKED}",
    "shown": f"shown@{SEEN}",
}
# The name of the share of the unanswerable questions that got no result.
SILENT: Final = "answered_with_nothing"
PLACES: Final = 4
"""The decimal places of the metrics in JSON."""


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The result of one question; `scores` is None if the question has no answer."""

    query: GoldenQuery
    scores: Scores | None
    empty: bool

    def as_dict(self) -> dict[str, float]:
        """Return the metrics by name, rounded to four places; only `answered_with_nothing` if there is no answer."""
        return _by_name(self.scores) if self.scores is not None else {SILENT: float(self.empty)}


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
        """Return the metrics by name, rounded to four places, for JSON; missing ones are left out."""
        metrics: dict[str, Any] = {"queries": self.queries}
        if self.scores is not None:
            metrics |= _by_name(self.scores)
        if self.silent is not None:
            metrics |= {"unanswerable": self.unanswerable, SILENT: round(self.silent, PLACES)}
        return metrics


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The metrics of all questions, and of each combination of labels, for example `dataset` or `dataset/lang`."""

    overall: GroupMeans
    by: Mapping[str, Mapping[str, GroupMeans]]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        groups = {labels: {name: each.as_dict() for name, each in rows.items()} for labels, rows in self.by.items()}
        return {"overall": self.overall.as_dict(), "by": groups}


def judge(query: GoldenQuery, hits: Sequence[ShownHit]) -> QueryOutcome:
    """Return the outcome of a question from its hits, best first."""
    return QueryOutcome(query, score(query.gold, hits) if query.gold else None, empty=not hits)


def make_report(outcomes: Sequence[QueryOutcome], by: Iterable[str]) -> EvaluationReport:
    """Return the means overall and for each item of `by`: labels joined by `/`. Every question counts the same.

    Raises:
        ValueError: a label is not one of `LABELS`.
    """
    groups = {labels: grouped(outcomes, labels) for labels in by}
    means = {labels: {name: _group_means(rows) for name, rows in each.items()} for labels, each in groups.items()}
    return EvaluationReport(_group_means(outcomes), means)


def grouped(outcomes: Sequence[QueryOutcome], labels: str) -> dict[str, list[QueryOutcome]]:
    """Return the outcomes by the values of their labels, in the order of the values. `labels` are joined by `/`.

    Raises:
        ValueError: a label is not one of `LABELS`.
    """
    wanted = labels.split("/")
    if unknown := sorted(set(wanted) - set(LABELS)):
        raise ValueError(f"unknown labels: {', '.join(unknown)}; the labels are {', '.join(LABELS)}")
    groups: dict[str, list[QueryOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault("/".join(getattr(outcome.query, label) for label in wanted), []).append(outcome)
    return {name: groups[name] for name in sorted(groups)}


def _group_means(outcomes: Sequence[QueryOutcome]) -> GroupMeans:
    scores = [outcome.scores for outcome in outcomes if outcome.scores is not None]
    silences = [outcome.empty for outcome in outcomes if outcome.scores is None]
    return GroupMeans(len(scores), _mean(scores), len(silences), fmean(silences) if silences else None)


def _by_name(scores: Scores) -> dict[str, float]:
    return {name: round(getattr(scores, field), PLACES) for field, name in NAMES.items()}


def _mean(scores: Sequence[Scores]) -> Scores | None:
    if not scores:
        return None
    return Scores(**{field.name: fmean(getattr(each, field.name) for each in scores) for field in fields(Scores)})
