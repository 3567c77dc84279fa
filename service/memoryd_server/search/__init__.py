"""Search: a query into hits."""

from memoryd_server.search.coverage import names_in
from memoryd_server.search.cutoff import LEAST_COSINE, UNCALIBRATED, CosineScale, derived_scale, known_scale
from memoryd_server.search.dates import DateRange, dates_in, is_date_word
from memoryd_server.search.engine import PreparedSearch, SearchEngine
from memoryd_server.search.file_check import check_files
from memoryd_server.search.miss import displaced, explain_miss
from memoryd_server.search.query import (
    BUILTIN,
    NO_ANSWER,
    CitationMode,
    DroppedCandidate,
    EmptyReason,
    Hit,
    Miss,
    MissReason,
    RankingConfig,
    RerankReport,
    RetrieverReport,
    SearchAnswer,
    SearchMode,
    SearchQuery,
)
from memoryd_server.search.ranking import decay_of
from memoryd_server.search.results import citation, cited, within_budget
from memoryd_server.search.retrieval import EarlyKeywordHits
from memoryd_server.search.snippet import cut_text
from memoryd_server.search.trace import MOST_DROPPED, SearchTrace, Target, TargetTrace

__all__ = [
    "BUILTIN",
    "LEAST_COSINE",
    "MOST_DROPPED",
    "NO_ANSWER",
    "UNCALIBRATED",
    "CitationMode",
    "CosineScale",
    "DateRange",
    "DroppedCandidate",
    "EarlyKeywordHits",
    "EmptyReason",
    "Hit",
    "Miss",
    "MissReason",
    "PreparedSearch",
    "RankingConfig",
    "RerankReport",
    "RetrieverReport",
    "SearchAnswer",
    "SearchEngine",
    "SearchMode",
    "SearchQuery",
    "SearchTrace",
    "Target",
    "TargetTrace",
    "check_files",
    "citation",
    "cited",
    "cut_text",
    "dates_in",
    "decay_of",
    "derived_scale",
    "displaced",
    "explain_miss",
    "is_date_word",
    "known_scale",
    "names_in",
    "within_budget",
]
