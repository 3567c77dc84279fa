"""A question and its answer, as values."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

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
class LegReport:
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
    legs: tuple[LegReport, ...] = field(default_factory=tuple)
    empty_reason: EmptyReason | None = None
    empty_explanation: str = ""
    backend: str = BUILTIN
