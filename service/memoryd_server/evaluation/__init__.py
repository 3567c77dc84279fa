"""How well memory is found: golden sets, the figures of an answer, and the report over many."""

from memoryd_server.evaluation.golden import GoldenSetError, Query, read_golden_set
from memoryd_server.evaluation.metrics import RANKED, SEEN, Gold, Hit, Scores, Span, score
from memoryd_server.evaluation.report import LABELS, NAMES, Figures, Outcome, Report, judge, make_report

__all__ = [
    "LABELS",
    "NAMES",
    "RANKED",
    "SEEN",
    "Figures",
    "Gold",
    "GoldenSetError",
    "Hit",
    "Outcome",
    "Query",
    "Report",
    "Scores",
    "Span",
    "judge",
    "make_report",
    "read_golden_set",
    "score",
]
