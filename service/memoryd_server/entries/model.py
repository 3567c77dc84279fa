"""What an entry is, and what is asked of the store of them. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memoryd_server.vectors import Vector

DUPLICATE_SCORE = 0.95
"""From this score on, two texts say the same."""

CANDIDATE_SCORE, CLEAR_SCORE, CANDIDATES = 0.7, 0.9, 5
"""What a text to forget may mean, what it does mean when it is alone above it, and how many are looked at."""


class Category(StrEnum):
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
    category: Category
    created_ms: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class Scored:
    """An entry and how near it is, 0..1."""

    entry: Entry
    score: float


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector of length one and the identity of what made it; only vectors of one identity can be compared."""

    vector: Vector
    identity: str


class Action(StrEnum):
    """What became of a text to remember; the names of the wire's enum."""

    STORED = "STORED"
    DUPLICATE = "DUPLICATE"
    ALREADY_STORED = "ALREADY_STORED"


@dataclass(frozen=True, slots=True)
class Remembered:
    """What became of a text, and the entry that is there now. `score` is that of a duplicate.

    `without_vector` when it was stored and its vector was not: there is none, or it is not as long as all others.
    """

    action: Action
    entry: Entry
    score: float | None = None
    without_vector: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the list of entries, newest first: right after this one."""

    created_ms: int
    entry_id: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of the list, and how many entries there are in all."""

    entries: tuple[Entry, ...]
    total: int
    more: bool


@dataclass(frozen=True, slots=True)
class Place:
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
