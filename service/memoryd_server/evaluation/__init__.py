"""Measure search quality on golden sets, and compare runs."""

from memoryd_server.evaluation.comparison import (
    GroupComparison,
    MetricComparison,
    RunComparison,
    compare_runs,
)
from memoryd_server.evaluation.golden import GoldenSetError, read_golden_set
from memoryd_server.evaluation.results import (
    EarlierResults,
    ResultsFileError,
    question_scores,
    read_results,
    results_json,
)
from memoryd_server.evaluation.scoring import (
    LABELS,
    NAMES,
    RANKED,
    SILENT,
    EvaluationReport,
    GoldenQuery,
    GroupMeans,
    LineSpan,
    QueryOutcome,
    ShownHit,
    judge,
    make_report,
)

__all__ = [
    "LABELS",
    "NAMES",
    "RANKED",
    "SILENT",
    "EarlierResults",
    "EvaluationReport",
    "GoldenQuery",
    "GoldenSetError",
    "GroupComparison",
    "GroupMeans",
    "LineSpan",
    "MetricComparison",
    "QueryOutcome",
    "ResultsFileError",
    "RunComparison",
    "ShownHit",
    "compare_runs",
    "judge",
    "make_report",
    "question_scores",
    "read_golden_set",
    "read_results",
    "results_json",
]
