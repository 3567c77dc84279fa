"""The events that metrics count. They contain no text of an agent except its id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SearchFinished:
    """An answered search: seconds by retriever that ran (`retriever_seconds`), and the kinds of its degradations.

    `empty_reason` is empty if the search found something.
    """

    agent_id: str
    served_mode: str
    seconds: float
    degradations: Sequence[str] = ()
    retriever_seconds: Mapping[str, float] | None = None
    empty_reason: str = ""


@dataclass(frozen=True, slots=True)
class SyncFinished:
    """A sync run that ended. `result` is `completed` or the reason of its error; `files` are counts by outcome."""

    agent_id: str
    trigger: str
    result: str
    seconds: float
    files: Mapping[str, int] | None = None
    chunks: int = 0


class Meter(Protocol):
    """Receives the events. Its methods are called on the event loop's thread and must not block."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Count an RPC that ended with the status `code`; `method` is `package.Service/Method`."""
        ...

    def search_ended(self, search: SearchFinished) -> None:
        """Count an answered search."""
        ...

    def sync_ended(self, sync: SyncFinished) -> None:
        """Count a sync run that ended."""
        ...


class NoMeter:
    """A `Meter` that counts nothing."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Ignored."""

    def search_ended(self, search: SearchFinished) -> None:
        """Ignored."""

    def sync_ended(self, sync: SyncFinished) -> None:
        """Ignored."""
