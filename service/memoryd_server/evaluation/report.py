"""Many scores into few: means overall and by whatever a question is labelled with; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any, Final

from memoryd_server.evaluation.golden import Query
from memoryd_server.evaluation.metrics import RANKED, SEEN, Hit, Scores, score

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
class Outcome:
    """One question and how it went; `scores` is None where nothing answers it."""

    query: Query
    scores: Scores | None
    empty: bool


@dataclass(frozen=True, slots=True)
class Figures:
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
class Report:
    """Figures of all questions, and by each combination of labels, for example `dataset` or `dataset/lang`."""

    overall: Figures
    by: Mapping[str, Mapping[str, Figures]]

    def as_dict(self) -> dict[str, Any]:
        """The report, ready for JSON."""
        groups = {labels: {name: each.as_dict() for name, each in rows.items()} for labels, rows in self.by.items()}
        return {"overall": self.overall.as_dict(), "by": groups}


def judge(query: Query, hits: Sequence[Hit]) -> Outcome:
    """How a question went, by the hits that it got, best first."""
    return Outcome(query, score(query.gold, hits) if query.gold else None, empty=not hits)


def make_report(outcomes: Sequence[Outcome], by: Iterable[str]) -> Report:
    """Means overall and for each of `by`: labels joined by `/`. Every question counts the same.

    Raises:
        ValueError: a label is not one of `LABELS`.
    """
    return Report(_figures(outcomes), {labels: _groups(outcomes, labels) for labels in by})


def _groups(outcomes: Sequence[Outcome], labels: str) -> dict[str, Figures]:
    wanted = labels.split("/")
    if unknown := sorted(set(wanted) - set(LABELS)):
        raise ValueError(f"{', '.join(unknown)}: the labels are {', '.join(LABELS)}")
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault("/".join(getattr(outcome.query, label) for label in wanted), []).append(outcome)
    return {name: _figures(groups[name]) for name in sorted(groups)}


def _figures(outcomes: Sequence[Outcome]) -> Figures:
    scores = [outcome.scores for outcome in outcomes if outcome.scores is not None]
    silences = [outcome.empty for outcome in outcomes if outcome.scores is None]
    return Figures(len(scores), _mean(scores), len(silences), fmean(silences) if silences else None)


def _mean(scores: Sequence[Scores]) -> Scores | None:
    if not scores:
        return None
    return Scores(**{field.name: fmean(getattr(each, field.name) for each in scores) for field in fields(Scores)})
