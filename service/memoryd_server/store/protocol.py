"""What an index store is, for everyone but its driver."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from memoryd_server.model import Degradation


@dataclass(frozen=True, slots=True)
class Damage:
    """What was found. `gone` is a file that is no longer there, or another one: there is nothing of it to set aside."""

    reason: str
    gone: bool


class Condition:
    """The damage that was found and not yet mended, and what came of the last that was. Any thread may ask and tell.

    `generation` counts how often the index was begun anew: damage that was found in an earlier one is past.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._watchers: list[Callable[[], None]] = []
        self.damage: Damage | None = None
        self.generation = 0
        self.mishap: Degradation | None = None
        self.past_mishap: Degradation | None = None

    def watch(self, watcher: Callable[[], None]) -> None:
        """Lets `watcher` hear, on any thread, that damage was found or mended."""
        self._watchers.append(watcher)

    def found(self, damage: Damage, generation: int) -> None:
        """Remembers damage, unless there is some already or the index has been begun anew since."""
        with self._guard:
            if self.damage is not None or generation != self.generation:
                return
            self.damage = damage
        self._tell()

    def happened(self, mishap: Degradation) -> None:
        """Remembers what became of an index that could not be used."""
        self.mishap = mishap

    def mended(self) -> None:
        """The index has been begun anew."""
        with self._guard:
            self.damage = None
            self.generation += 1
        self._tell()

    def rebuilt(self) -> None:
        """The new index holds everything again: what happened is history."""
        if self.mishap is not None:
            self.past_mishap = replace(self.mishap, reason=f"{self.mishap.reason}; that is done")
            self.mishap = None

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher()
