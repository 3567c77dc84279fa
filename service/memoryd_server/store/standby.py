"""Reads of an agent's index and memory files from a standby of the database, if a caller allows an older answer."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memoryd_server.sources import Corpus
from memoryd_server.store.protocol import Reader


class StandbyOutcome(StrEnum):
    """What became of a read from the standby, as a label of the metrics."""

    ANSWERED = "answered"
    BEHIND = "behind"
    FAILED = "failed"
    PAUSED = "paused"


class StandbyUnusable(Exception):
    """The standby is older than a call allows, or cannot be used. The primary has to answer."""

    def __init__(self, message: str, outcome: StandbyOutcome = StandbyOutcome.FAILED) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class ReadBound:
    """How old an answer may be, in seconds, and which revision its index must have reached, if that matters.

    `deadline` is the end of the call, in seconds of `time.monotonic()`.
    """

    max_staleness: float
    deadline: float
    min_revision: int | None = None


class Snapshots(Protocol):
    """Anything that opens snapshots of an index: a store, or a standby for one call."""

    def read(self, deadline: float | None = None) -> AbstractContextManager[Reader]:
        """Open one snapshot, which can be read until `time.monotonic()` passes `deadline`."""


class StandbyView(Snapshots, Protocol):
    """An agent's index and memory files on a standby, for one call, on one thread at a time. Every method blocks.

    Raises:
        StandbyUnusable: raised by every method that reads, also for files.
    """

    def snapshot(self) -> AbstractContextManager[object]:
        """Open a snapshot, which all reads in the block use."""

    def corpus(self, of: Corpus) -> Corpus:
        """Return the corpus with the files of the standby; `of` itself if its files are not in the database."""


class AgentStandby(Protocol):
    """One agent's index and memory files on a standby. Thread-safe."""

    def view(self, bound: ReadBound) -> StandbyView:
        """Return them for one call. Does not connect."""

    def release_memory(self) -> None:
        """Release the memory that an idle index holds."""
