"""The values of a search: SearchQuery, Candidate, Hit, RetrieverReport, SearchAnswer and RankingConfig."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from memoryd_server.model import NO_ANNOTATIONS, Annotations, Degradation, Origin, Source
from memoryd_server.store import ALL_FILES, FileFilter

# The name of memoryd's own search engine in `SearchAnswer.backend`.
BUILTIN = "builtin"


class SearchMode(StrEnum):
    """Which of the two retrievers run: keyword, vector, or both."""

    UNSPECIFIED = "UNSPECIFIED"
    HYBRID = "HYBRID"
    KEYWORD = "KEYWORD"
    VECTOR = "VECTOR"


class CitationMode(StrEnum):
    """When a snippet ends with a citation line."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class EmptyReason(StrEnum):
    """Why an answer has no hits. The names are those of the wire's enum."""

    EMPTY_INDEX = "EMPTY_INDEX"
    NO_MATCH = "NO_MATCH"
    FILTERED_BY_SCORE = "FILTERED_BY_SCORE"
    SCOPE_DENIED = "SCOPE_DENIED"
    FILES_GONE = "FILES_GONE"
    ABSTAINED = "ABSTAINED"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A validated query.

    `min_score` is None if neither the request nor the settings set it; `min_score_is_requested` is whether the request
    did. `deadline` is a time of `time.monotonic()`. `now` is timezone-aware; None means the current time. An empty
    `sources` means all. `active_projects` are keys of `chunk.project_key`; if there are none, projects do not matter.
    An answer whose confidence is below `abstain_below` has no hits; None means the setting, for keyword search only.
    Only chunks of these `files` and `origins` are ranked; empty `origins` mean all. `embedding_seconds` is how long the
    search waits for the query's vector; None means as long as the deadline allows. `rerank` is whether a reranker, if
    one is configured, orders the results. `builtin_only` is whether only the builtin search may answer, because other
    backends do not say how relevant their results are. `common_words`, without case and accents, are no evidence that
    a hit is about the query; they have no effect on the results. `explain` is whether the hits have the parts of their
    scores, and the answer the candidates that were dropped. `max_staleness` is how old the answer may be, in seconds;
    None means that a standby must not answer.
    """

    text: str
    max_results: int
    min_score: float | None
    min_score_is_requested: bool
    sources: tuple[Source, ...]
    mode: SearchMode
    max_snippet_chars: int
    citations: bool
    max_total_chars: int | None
    deadline: float
    now: datetime | None = None
    active_projects: frozenset[str] = frozenset()
    abstain_below: float | None = None
    files: FileFilter = ALL_FILES
    origins: tuple[Origin, ...] = ()
    embedding_seconds: float | None = None
    rerank: bool = True
    builtin_only: bool = False
    common_words: frozenset[str] = frozenset()
    explain: bool = False
    max_staleness: float | None = None


def text_score(bm25: float, best: float) -> float:
    """Return `bm25` as a share of the query's best, 0..1. SQLite's BM25 is negative; the smallest is the best."""
    return 1.0 if best >= 0 else clamp(bm25 / best)


class ScorePartKind(StrEnum):
    """What an amount of a score comes from. The names are those of the wire's enum.

    ADJACENT and DIVERSITY are penalties that lower the place of a result, and are not part of its score.
    """

    KEYWORD = "KEYWORD"
    WINDOW = "WINDOW"
    VECTOR = "VECTOR"
    ANNOTATIONS = "ANNOTATIONS"
    DECAY = "DECAY"
    DATE = "DATE"
    ADJACENT = "ADJACENT"
    DIVERSITY = "DIVERSITY"


@dataclass(frozen=True, slots=True)
class ScorePart:
    """An amount by which the score is higher, or lower if it is negative."""

    kind: ScorePartKind
    amount: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A result: a line range of a file, its score, and a snippet of its text. Ranks count from 1.

    The source is None for an entry, which has no lines.

    `score` is within 0..1. The other scores and the ranks are None as in `Candidate`. `coverage` is None if the keyword
    retriever did not run or the query has no words; `decay` is None if decay is off. `annotation_factor` is None if no
    annotation changed the score, `date` and `adjacent` are None if they are 0. `rerank` is the score of the reranker,
    None if it did not score the hit. `words` are those of the query that the hit contains. `evidence` is the sum of
    their inverse document frequencies, relative to that of a word in only one chunk, without the query's
    `common_words` and short numbers; None as `coverage`. `evidence_words` is the number of these words. `identifiers`
    are those of the words that are names in one piece, such as `BOOKING_CACHE_TTL`, have letters and digits, such as
    `E1042`, or are long numbers. `day` is the date of the chunk or its file, as YYYY-MM-DD; empty if neither has one.
    `parts` are what the score is made of, if the query is to be explained; empty if the builtin search did not
    compute the score.
    """

    path: str
    source: Source | None
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
    origin: Origin = Origin.UNTRUSTED
    annotations: Annotations = NO_ANNOTATIONS
    annotation_factor: float | None = None
    window: float | None = None
    date: float | None = None
    adjacent: float | None = None
    rerank: float | None = None
    words: tuple[str, ...] = ()
    evidence: float | None = None
    evidence_words: int = 0
    identifiers: tuple[str, ...] = ()
    day: str = ""
    parts: tuple[ScorePart, ...] = ()


class MissReason(StrEnum):
    """The step of indexing or searching that left out a file or a line. The names are those of the wire's enum."""

    FOUND = "FOUND"
    NOT_MEMORY = "NOT_MEMORY"
    LINK = "LINK"
    EXCLUDED = "EXCLUDED"
    NOT_ON_DISK = "NOT_ON_DISK"
    FORGOTTEN = "FORGOTTEN"
    PENDING = "PENDING"
    FAILED = "FAILED"
    NO_TEXT = "NO_TEXT"
    SOURCE_NOT_CONFIGURED = "SOURCE_NOT_CONFIGURED"
    SOURCE_NOT_SEARCHED = "SOURCE_NOT_SEARCHED"
    FILTERED = "FILTERED"
    NO_MATCH = "NO_MATCH"
    NOT_RETRIEVED = "NOT_RETRIEVED"
    BELOW_MIN_SCORE = "BELOW_MIN_SCORE"
    BELOW_CUTOFF = "BELOW_CUTOFF"
    DIVERSITY = "DIVERSITY"
    ADJACENT = "ADJACENT"
    RESERVED = "RESERVED"
    BELOW_MAX_RESULTS = "BELOW_MAX_RESULTS"
    RERANKED = "RERANKED"
    ABSTAINED = "ABSTAINED"
    TEXT_LIMIT = "TEXT_LIMIT"


@dataclass(frozen=True, slots=True)
class Miss:
    """The step that left out a file or a line, as text and with its numbers; None for numbers that it does not have.

    `rank` counts from 1, and `max_rank` is the last rank that would be enough. `value` was compared with `limit`.
    `rule` is the rule or condition that excludes the file.
    """

    reason: MissReason
    explanation: str
    rank: int | None = None
    max_rank: int | None = None
    value: float | None = None
    limit: float | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class DroppedCandidate:
    """A chunk that a retriever returned and that is not a result, with the step that left it out."""

    path: str
    source: Source | None
    start_line: int
    end_line: int
    score: float
    miss: Miss


@dataclass(frozen=True, slots=True)
class RerankReport:
    """The reranking of one answer: who scored how many results, how many of these scores were cached, and the time."""

    provider: str
    model: str
    candidates: int
    cached: int
    elapsed_seconds: float


@dataclass(frozen=True, slots=True)
class RetrieverReport:
    """What one retriever did. `terms` are the searched words of the keyword retriever."""

    retriever: SearchMode
    ran: bool
    candidates: int
    elapsed_seconds: float
    terms: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Hits, best first, and how they were found.

    `revision` is that of the index, `backend` the backend that answered: `builtin` or `qmd`. `stale` is true if a file
    of a hit has changed since it was indexed. `coverage` is the best coverage of a hit, or None as in `Hit`.
    `confidence` is how likely it is that the memory answers the query, 0..1, None if keyword search did not take part.
    `matched_any_word` is whether no file has all words of the query, and files with any of them were searched instead.
    `reranking` is None if no reranker is configured. `nearness` is the best cosine on the model's scale, on which 0
    is an unrelated text and 1 the least cosine of an answer; None if vector search did not run or there is no scale.
    `dropped` are the best candidates that are not hits, best first, if the query is to be explained.
    """

    hits: tuple[Hit, ...]
    served_mode: SearchMode
    revision: int
    indexed_files: int
    keyword_candidates: int
    dropped_by_min_score: int
    stale: bool
    vector_candidates: int = 0
    coverage: float | None = None
    confidence: float | None = None
    degradations: tuple[Degradation, ...] = ()
    retrievers: tuple[RetrieverReport, ...] = ()
    empty_reason: EmptyReason | None = None
    empty_explanation: str = ""
    backend: str = BUILTIN
    matched_any_word: bool = False
    reranking: RerankReport | None = None
    nearness: float | None = None
    dropped: tuple[DroppedCandidate, ...] = ()


NO_ANSWER = SearchAnswer(
    hits=(),
    served_mode=SearchMode.UNSPECIFIED,
    revision=0,
    indexed_files=0,
    keyword_candidates=0,
    dropped_by_min_score=0,
    stale=False,
)
"""The answer if no index was searched."""


@dataclass(frozen=True, slots=True)
class RankingConfig:
    """How candidates are fused, ranked and merged into hits.

    Weights are relative to their sum. If `hybrid` is false, the vector retriever answers alone whenever it can.
    `decay_floor` is the least share of a score that decay leaves. A keyword answer whose confidence is below
    `abstain_below` has no hits; 0 disables this. Adjacent chunks are merged into one hit of at most `merged_chars`
    code points. `rerank_weight` is the share of a reranker's scores in the order of the results that it scored.
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
    rerank_weight: float = 0.7


class Candidate(NamedTuple):
    """A chunk before the cutoff, with its scores and ranks. Ranks count from 1.

    `text_score` is BM25 as a share of the best, 0..1; `vector_score` is the cosine, -1..1. A score is None if its
    retriever did not run or has no score for the chunk; a rank is None if its retriever did not return the chunk.
    `window` is the value of the chunk's best window, 0..1, None before windows are compared. `date` is what a date that
    the query names adds to the score, so that `score` may exceed 1. `adjacent` is the penalty for better chunks that
    are adjacent to this one, and `diversity` the one for better chunks that are similar, which MMR subtracts from the
    scaled score; neither is part of `score`.
    """

    chunk_id: int
    score: float
    text_score: float | None = None
    vector_score: float | None = None
    keyword_rank: int | None = None
    vector_rank: int | None = None
    window: float | None = None
    date: float = 0.0
    adjacent: float = 0.0
    diversity: float = 0.0


def fused_score(cosine: float | None, text: float | None, vector_share: float) -> float:
    """Return the weighted mean of a chunk's cosine and its score by keyword search, 0..1; None counts as 0."""
    # `clamp`, written out: a search calls this some two hundred times.
    score = (1 - vector_share) * (text or 0.0)
    if cosine is not None and cosine > 0:
        score += vector_share * min(1.0, cosine)
    return min(1.0, score) if score > 0 else 0.0


def clamp(score: float) -> float:
    """Return `score` limited to 0..1; 0 for NaN."""
    return min(1.0, score) if score > 0 else 0.0
