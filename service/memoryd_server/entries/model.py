"""The values that describe entries, and how scores are computed. No I/O."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memoryd_server.providers import EmbeddingConfig
from memoryd_server.vectors import Vector

DUPLICATE_SCORE = 0.95
"""Two texts with at least this score count as duplicates."""

CANDIDATES = 5
"""How many entries `Forget` by text compares with the text."""

CANDIDATE_SCORE = 0.7
"""An entry with at least this score is a candidate of `Forget` by text."""

CLEAR_SCORE = 0.9
"""The only entry above this score is deleted by `Forget` by text."""


class EntryCategory(StrEnum):
    """The topic of an entry; the names of the wire's enum."""

    PREFERENCE = "preference"
    FACT = "fact"
    DECISION = "decision"
    ENTITY = "entity"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """A short text that an agent stored.

    `importance` is from 0 to 1, `created_ms` is in milliseconds since 1970. `key` is the caller's idempotency key, or
    empty.
    """

    entry_id: str
    text: str
    importance: float
    category: EntryCategory
    created_ms: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class ScoredEntry:
    """An entry and its score, from 0 to 1."""

    entry: Entry
    score: float


@dataclass(frozen=True, slots=True)
class IdentifiedVector:
    """A unit vector and the identity of its provider and model. Only vectors of one identity are comparable."""

    vector: Vector
    identity: str


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """The entries to search: those of these categories, stored from `since_ms` on and before `before_ms`.

    No categories means all; times are in milliseconds since 1970, None means no limit.
    """

    categories: Collection[EntryCategory] = ()
    since_ms: int | None = None
    before_ms: int | None = None


ALL_ENTRIES = EntryFilter()


class RememberAction(StrEnum):
    """The outcome of `Remember`; the names of the wire's enum."""

    STORED = "STORED"
    DUPLICATE = "DUPLICATE"
    ALREADY_STORED = "ALREADY_STORED"


@dataclass(frozen=True, slots=True)
class RememberResult:
    """The outcome of `Remember`, and the entry that is stored now.

    `score` is the score of a duplicate, else None. `without_vector` is True if the entry was stored without a vector:
    there was none, or its length differs from that of the other vectors.
    """

    action: RememberAction
    entry: Entry
    score: float | None = None
    without_vector: bool = False


@dataclass(frozen=True, slots=True)
class ListPosition:
    """The entry after which a page of the list starts. The list is sorted from newest to oldest."""

    created_ms: int
    entry_id: str


@dataclass(frozen=True, slots=True)
class EntryPage:
    """One page of the list of entries, and the total number of entries."""

    entries: tuple[Entry, ...]
    total: int
    more: bool


@dataclass(frozen=True, slots=True)
class DatasetLocation:
    """The folder or the object store address of an agent's entries, with the options of the object store."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """True for a folder on this machine."""
        return "://" not in self.uri

    def __repr__(self) -> str:
        """Leave out the options, which contain secrets."""
        return f"DatasetLocation(uri={self.uri!r})"


def distance_score(distance: float) -> float:
    """Return the score of a squared Euclidean distance between two unit vectors.

    The formula is that of OpenClaw's memory-lancedb.
    """
    return 1.0 / (1.0 + max(0.0, distance))


def score_cosine(score: float) -> float:
    """Return the cosine of two unit vectors whose distance has this score; `score` is positive."""
    return 1.0 - (1.0 / score - 1.0) / 2.0


def bm25_score(value: float) -> float:
    """Return the score of a BM25 value. Only its order is meaningful."""
    return max(0.0, value) / (1.0 + max(0.0, value))


ENTRIES_PLUGIN = "entries"
"""The key of `EntryConfig` in an agent's plug-ins."""


@dataclass(frozen=True, slots=True)
class EntryConfig:
    """The configuration of one agent's entries.

    `dimensions` is the vector length in the settings, or 0 if they set none. `auto_capture` and `auto_recall` are for
    the gateway: whether it stores and recalls entries by itself. At most `confirm_above_tokens` tokens are sent to a
    provider on another machine without approval; 0 means no limit.
    """

    enabled: bool
    location: DatasetLocation
    embedding: EmbeddingConfig
    dimensions: int
    auto_capture: bool
    auto_recall: bool
    capture_max_chars: int
    confirm_above_tokens: int

    @classmethod
    def from_plugins(cls, plugins: Mapping[str, object]) -> "EntryConfig | None":
        """Return the configuration of entries in an agent's plug-ins, or None."""
        config = plugins.get(ENTRIES_PLUGIN)
        return config if isinstance(config, cls) else None
