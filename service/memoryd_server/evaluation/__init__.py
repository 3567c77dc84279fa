"""Measure search quality on golden sets."""

from memoryd_server.evaluation.golden import GoldenSetError, read_golden_set
from memoryd_server.evaluation.scoring import (
    LABELS,
    NAMES,
    RANKED,
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
    "EvaluationReport",
    "GoldenQuery",
    "GoldenSetError",
    "GroupMeans",
    "LineSpan",
    "QueryOutcome",
    "ShownHit",
    "judge",
    "make_report",
    "read_golden_set",
]
