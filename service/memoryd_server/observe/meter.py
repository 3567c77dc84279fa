"""What the daemon tells whoever keeps figures of it. No text of an agent is in it, but for its id."""

from collections.abc import Sequence
from typing import Protocol


class Meter(Protocol):
    """Hears of what has ended. On the event loop's thread; returns at once."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """A call of an RPC ended with this status code; `method` is `package.Service/Method`."""
        ...

    def search_ended(self, agent_id: str, served_mode: str, seconds: float, degradations: Sequence[str]) -> None:
        """A search was answered by these legs, in this time, with degradations of these kinds."""
        ...

    def sync_ended(self, agent_id: str, trigger: str, result: str, seconds: float) -> None:
        """A sync run ended: `completed`, or the reason of its error."""
        ...


class NoMeter:
    """Keeps no figures."""

    def call_ended(self, method: str, code: str, seconds: float) -> None:
        """Does nothing."""

    def search_ended(self, agent_id: str, served_mode: str, seconds: float, degradations: Sequence[str]) -> None:
        """Does nothing."""

    def sync_ended(self, agent_id: str, trigger: str, result: str, seconds: float) -> None:
        """Does nothing."""
