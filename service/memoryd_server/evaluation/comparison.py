"""Compare a run with an earlier one, question by question. Pure.

Only questions that both runs have are compared. Each of them is its own control: its difference between the runs does
not depend on how difficult the question is, so a small but consistent difference is visible in a small set.

The interval of a mean difference is the 95 % percentile interval of a bootstrap over questions (Efron and Tibshirani,
"An Introduction to the Bootstrap", 1993, chapter 13), applied to the paired differences of two systems as in Sakai,
"Evaluating Evaluation Metrics based on the Bootstrap", SIGIR 2006: the questions are drawn with replacement, as many
as there are, 2,000 times, and the interval is from the 2.5th to the 97.5th percentile of the mean differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memoryd_server.evaluation.scoring import NAMES, PLACES, SILENT, QueryOutcome, grouped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Floats = NDArray[np.float64]

RESAMPLES: Final = 2_000
"""The number of resamples of the bootstrap."""

GUARDED: Final = (NAMES["recall"], NAMES["shown"], NAMES["hit"])
"""The metrics whose losses `RunComparison.losses` returns."""

_BOUNDS = (2.5, 97.5)
_SEED = 2006
# Bounds the memory of a step. A step of any size draws the same numbers.
_MOST_DRAWS = 1 << 20
# Sums of whole numbers are exact, so equal scores differ by exactly 0 and results do not depend on the machine.
_UNITS = 10**PLACES


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric over the questions of both runs: the means, their difference, and its 95 % interval.

    `better` and `worse` are the numbers of questions whose score increased and decreased.
    """

    questions: int
    better: int
    worse: int
    old: float
    new: float
    difference: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON, rounded to four places."""
        numbers = {
            name: round(value, PLACES) if isinstance(value, float) else value for name, value in asdict(self).items()
        }
        return {**numbers, "significant": self.significant}


GroupComparison = Mapping[str, MetricComparison]
"""The comparisons of a group by the name of the metric; without the metrics that no question of both runs has."""


class Loss(NamedTuple):
    """The decrease of a metric's mean in a group."""

    group: str
    metric: str
    size: float


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The comparisons over all questions, and over each combination of labels.

    `paired` is the number of questions of both runs. A question that has an answer in only one of the runs counts as a
    different question in each.
    """

    overall: GroupComparison
    by: Mapping[str, Mapping[str, GroupComparison]]
    paired: int
    only_new: int
    only_old: int

    def losses(self, labels: str, most: float) -> Iterator[Loss]:
        """Yield each decrease of more than `most` of a guarded metric in a group of `labels`."""
        for name, group in self.by[labels].items():
            for metric in GUARDED:
                if metric in group and -group[metric].difference > most:
                    yield Loss(name, metric, -group[metric].difference)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {
            "questions": self.paired,
            "only_in_this_run": self.only_new,
            "only_in_other_run": self.only_old,
            "resamples": RESAMPLES,
            "overall": _as_dict(self.overall),
            "by": {
                labels: {name: _as_dict(group) for name, group in groups.items()} for labels, groups in self.by.items()
            },
        }


def compare_runs(
    old: Mapping[str, Mapping[str, float]], outcomes: Sequence[QueryOutcome], by: Iterable[str]
) -> RunComparison:
    """Return the comparison of a run with the metrics of each question of an earlier one, by its key.

    The groups are those of `make_report`, without the groups that have no question of both runs.

    Raises:
        ValueError: a label is not one of `LABELS`.
    """
    paired = [each for each in outcomes if each.as_dict().keys() == old.get(each.query.key, {}).keys()]
    groups = {labels: grouped(paired, labels) for labels in by}
    return RunComparison(
        _compare(old, paired),
        {labels: {name: _compare(old, rows) for name, rows in each.items()} for labels, each in groups.items()},
        paired=len(paired),
        only_new=len(outcomes) - len(paired),
        only_old=len(old) - len(paired),
    )


def mean_intervals(differences: _Floats, seed: int = _SEED) -> tuple[_Floats, _Floats]:
    """Return the lower and the upper bounds of the 95 % intervals of the means of the columns, one row per question.

    The same resamples serve all columns. The cost is `RESAMPLES` draws per question.
    """
    import numpy as np  # noqa: PLC0415 -- help does not need it

    count = len(differences)
    generator = np.random.default_rng(seed)
    means = np.empty((RESAMPLES, differences.shape[1]))
    step = max(1, _MOST_DRAWS // count)
    for start in range(0, RESAMPLES, step):
        rows = min(step, RESAMPLES - start)
        drawn = generator.integers(count, size=(rows, count)) + count * np.arange(rows)[:, np.newaxis]
        times_drawn = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        means[start : start + rows] = times_drawn @ differences / count
    low, high = np.percentile(means, _BOUNDS, axis=0)
    return low, high


def _compare(old: Mapping[str, Mapping[str, float]], paired: Sequence[QueryOutcome]) -> GroupComparison:
    answerable = [each for each in paired if each.scores is not None]
    others = [each for each in paired if each.scores is None]
    return _compare_metrics(old, answerable, tuple(NAMES.values())) | _compare_metrics(old, others, (SILENT,))


def _compare_metrics(
    old: Mapping[str, Mapping[str, float]], paired: Sequence[QueryOutcome], metrics: Sequence[str]
) -> dict[str, MetricComparison]:
    if not paired:
        return {}
    before = _in_units([[old[each.query.key][metric] for metric in metrics] for each in paired])
    after = _in_units([[each.as_dict()[metric] for metric in metrics] for each in paired])
    low, high = mean_intervals(after - before)
    return {
        metric: _comparison(before[:, column], after[:, column], low[column], high[column])
        for column, metric in enumerate(metrics)
    }


def _comparison(before: _Floats, after: _Floats, low: np.float64, high: np.float64) -> MetricComparison:
    differences = after - before
    old, new, difference = (float(each.sum()) / (len(each) * _UNITS) for each in (before, after, differences))
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    return MetricComparison(len(before), better, worse, old, new, difference, float(low) / _UNITS, float(high) / _UNITS)


def _in_units(metrics: list[list[float]]) -> _Floats:
    import numpy as np  # noqa: PLC0415 -- help does not need it

    units: _Floats = np.rint(np.array(metrics) * _UNITS)
    return units


def _as_dict(group: GroupComparison) -> dict[str, Any]:
    return {metric: comparison.as_dict() for metric, comparison in group.items()}
