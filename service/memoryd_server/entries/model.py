"""Entry, Category, scores, EntryConfig.

What an entry is, and what is asked of the store of them. No I/O.

How near an entry is to a text, 0..1. Pure.

What one agent's entries are made with. The composition root fills it from the settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memoryd_server.providers import EmbeddingConfig
from memoryd_server.vectors import Vector

DUPLICATE_SCORE = 0.95
"""From this score on, two texts say the same."""

CANDIDATE_SCORE, CLEAR_SCORE, CANDIDATES = 0.7, 0.9, 5
"""What a text to forget may mean, what it does mean when it is alone above it, and how many are looked at."""


class EntryCategory(StrEnum):
    """What an entry is about; the names of the wire's enum."""

    PREFERENCE = "preference"
    FACT = "fact"
    DECISION = "decision"
    ENTITY = "entity"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """A short text that an agent stored. `created_ms` counts from 1970; `key` is the caller's, empty for none."""

    entry_id: str
    text: str
    importance: float
    category: EntryCategory
    created_ms: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class ScoredEntry:
    """An entry and how near it is, 0..1."""

    entry: Entry
    score: float


@dataclass(frozen=True, slots=True)
class IdentifiedVector:
    """A vector of length one and the identity of what made it; only vectors of one identity can be compared."""

    vector: Vector
    identity: str


class RememberAction(StrEnum):
    """What became of a text to remember; the names of the wire's enum."""

    STORED = "STORED"
    DUPLICATE = "DUPLICATE"
    ALREADY_STORED = "ALREADY_STORED"


@dataclass(frozen=True, slots=True)
class RememberResult:
    """What became of a text, and the entry that is there now. `score` is that of a duplicate.

    `without_vector` when it was stored and its vector was not: there is none, or it is not as long as all others.
    """

    action: RememberAction
    entry: Entry
    score: float | None = None
    without_vector: bool = False


@dataclass(frozen=True, slots=True)
class ListPosition:
    """A place in the list of entries, newest first: right after this one."""

    created_ms: int
    entry_id: str


@dataclass(frozen=True, slots=True)
class EntryPage:
    """A part of the list, and how many entries there are in all."""

    entries: tuple[Entry, ...]
    total: int
    more: bool


@dataclass(frozen=True, slots=True)
class DatasetLocation:
    """Where an agent's entries are: a folder, or the address of an object store, with its options."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder on this machine."""
        return "://" not in self.uri

    def __repr__(self) -> str:
        """Without the options, which hold secrets."""
        return f"Place(uri={self.uri!r})"


def of_distance(distance: float) -> float:
    """The score of a squared Euclidean distance of two vectors of length one, as the reference has it."""
    return 1.0 / (1.0 + max(0.0, distance))


def of_bm25(value: float) -> float:
    """The score of a BM25 value, which tells the order and nothing more."""
    return max(0.0, value) / (1.0 + max(0.0, value))


ENTRIES_PLUGIN = "entries"
"""The name of this plug-in."""


@dataclass(frozen=True, slots=True)
class EntryConfig:
    """Where entries are, and what the settings want done with them.

    `dimensions` is how long the settings say that vectors are; 0 where they do not. `auto_capture` and `auto_recall`
    are for the gateway: whether it stores and recalls without anybody asking. A provider that costs is not sent more
    than `confirm_above_tokens` unless somebody says so; 0 is no bound.
    """

    enabled: bool
    place: DatasetLocation
    embedding: EmbeddingConfig
    dimensions: int
    auto_capture: bool
    auto_recall: bool
    capture_max_chars: int
    confirm_above_tokens: int

    @classmethod
    def of(cls, plugins: Mapping[str, object]) -> "EntryConfig | None":
        """Return the configuration of entries among an agent's plug-ins; None if there is none."""
        found = plugins.get(ENTRIES_PLUGIN)
        return found if isinstance(found, cls) else None
