"""What the daemon tells whoever keeps figures of it. No text of an agent is in it, but for its id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SearchFinished:
    """An answered search: the legs that ran with their seconds, and the names of what was degraded.

    `empty_reason` is why nothing was found, empty where something was.
    """

    agent_id: str
    served_mode: str
    seconds: float
    degradations: Sequence[str] = ()
    legs: Mapping[str, float] | None = None
    empty_reason: str = ""


@dataclass(frozen=True, slots=True)
class SyncFinished:
    """A sync run that ended: `completed`, or the reason of its error; and what it did to files, by what it did."""

    agent_id: str
    trigger: str
    result: str
    seconds: float
    files: Mapping[str, int] | None = None
    chunks: int = 0


class Meter(Protocol):
    """Hears of what has ended. On the event loop's thread; returns at once."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """A call of an RPC ended with this status code; `method` is `package.Service/Method`."""
        ...

    def search_ended(self, search: SearchFinished) -> None:
        """A search was answered."""
        ...

    def sync_ended(self, sync: SyncFinished) -> None:
        """A sync run ended."""
        ...


class NoMeter:
    """Keeps no figures."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Does nothing."""

    def search_ended(self, search: SearchFinished) -> None:
        """Does nothing."""

    def sync_ended(self, sync: SyncFinished) -> None:
        """Does nothing."""
