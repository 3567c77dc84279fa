"""Search: a query into hits."""

from memoryd_server.search.engine import SearchEngine
from memoryd_server.search.query import (
    BUILTIN,
    CitationMode,
    EmptyReason,
    Hit,
    RankingConfig,
    RetrieverReport,
    SearchAnswer,
    SearchMode,
    SearchQuery,
)
from memoryd_server.search.ranking import decay_of
from memoryd_server.search.results import citation, cited, within_budget
from memoryd_server.search.retrieval import EarlyKeywordHits
from memoryd_server.search.snippet import cut_text

__all__ = [
    "BUILTIN",
    "CitationMode",
    "EarlyKeywordHits",
    "EmptyReason",
    "Hit",
    "RankingConfig",
    "RetrieverReport",
    "SearchAnswer",
    "SearchEngine",
    "SearchMode",
    "SearchQuery",
    "citation",
    "cited",
    "cut_text",
    "decay_of",
    "within_budget",
]
