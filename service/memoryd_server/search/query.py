"""SearchQuery, Hit, SearchAnswer, RankingConfig.

A question and its answer, as values.

How legs are fused and hits are reordered; the composition root fills it from the settings.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from memoryd_server.model import Degradation, Source

# memoryd's own engine, among the names of backends.
BUILTIN = "builtin"


class SearchMode(StrEnum):
    """Which legs run."""

    UNSPECIFIED = "UNSPECIFIED"
    HYBRID = "HYBRID"
    KEYWORD = "KEYWORD"
    VECTOR = "VECTOR"


class CitationMode(StrEnum):
    """When a snippet carries a citation line."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class EmptyReason(StrEnum):
    """Why an answer holds no results; the names of the wire's enum."""

    EMPTY_INDEX = "EMPTY_INDEX"
    NO_MATCH = "NO_MATCH"
    FILTERED_BY_SCORE = "FILTERED_BY_SCORE"
    SCOPE_DENIED = "SCOPE_DENIED"
    FILES_GONE = "FILES_GONE"
    ABSTAINED = "ABSTAINED"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A validated question.

    `min_score` is strict when the caller set it, and None when neither the caller nor the settings name one. `deadline`
    is in `time.monotonic()`, `now` is aware.
    """

    text: str
    max_results: int
    min_score: float | None
    min_score_is_strict: bool
    sources: tuple[Source, ...]
    mode: SearchMode
    max_snippet_chars: int
    citations: bool
    max_total_chars: int | None
    deadline: float
    now: datetime | None = None


def text_score(bm25: float, best: float) -> float:
    """BM25 as a share of the query's best, 0..1. SQLite's BM25 is negative, and the smallest is the best."""
    return 1.0 if best >= 0 else _clamped(bm25 / best)


@dataclass(frozen=True, slots=True)
class Hit:
    """A result: a line range of a file, its score, and the text that answers."""

    path: str
    source: Source
    start_line: int
    end_line: int
    score: float
    snippet: str
    snippet_start_line: int
    snippet_end_line: int
    mtime_ns: int
    text_score: float | None = None
    keyword_rank: int | None = None
    vector_score: float | None = None
    vector_rank: int | None = None
    coverage: float | None = None
    decay: float | None = None


@dataclass(frozen=True, slots=True)
class RetrieverReport:
    """What one leg did."""

    leg: SearchMode
    ran: bool
    candidates: int
    elapsed_seconds: float
    terms: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Hits, best first, and how they came about. `backend` is who answered: builtin or qmd."""

    hits: tuple[Hit, ...]
    served_mode: SearchMode
    revision: int
    indexed_files: int
    keyword_candidates: int
    dropped_by_min_score: int
    stale: bool
    vector_candidates: int = 0
    coverage: float | None = None
    degradations: tuple[Degradation, ...] = ()
    legs: tuple[RetrieverReport, ...] = field(default_factory=tuple)
    empty_reason: EmptyReason | None = None
    empty_explanation: str = ""
    backend: str = BUILTIN


@dataclass(frozen=True, slots=True)
class RankingConfig:
    """Weights are shares of one. `hybrid` off means that the vector leg answers alone where it can.

    `decay_floor` is the least share of a score that decay leaves; `abstain_below` is the coverage under which a search
    returns nothing, 0 for never. Neighbouring chunks are shown as one hit of at most `merged_chars` code points.
    """

    hybrid: bool = True
    vector_weight: float = 0.7
    text_weight: float = 0.3
    candidate_multiplier: int = 4
    mmr: bool = False
    mmr_lambda: float = 0.7
    decay: bool = False
    half_life_days: float = 30.0
    decay_floor: float = 0.5
    abstain_below: float = 0.0
    merged_chars: int = 1_600


class Candidate(NamedTuple):
    """A chunk before the cut, with what each leg gave it. Ranks count from 1.

    `text_score` is BM25's share of the best, 0..1, `vector_score` the cosine, -1..1. A score is None when its leg did
    not run or does not know the chunk, a rank when its leg did not return it.
    """

    chunk_id: int
    score: float
    text_score: float | None = None
    vector_score: float | None = None
    keyword_rank: int | None = None
    vector_rank: int | None = None


def _clamped(score: float) -> float:
    """The score within 0..1; what is no number counts 0."""
    return min(1.0, score) if score > 0 else 0.0
