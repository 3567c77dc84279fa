"""Whether an index holds what was written to it, as far as is known, and what happened to it."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from memoryd_server.model import Degradation, DegradationKind


@dataclass(frozen=True, slots=True)
class Damage:
    """What was found. `gone` is a file that is no longer there, or another one: there is nothing of it to set aside."""

    reason: str
    gone: bool


@dataclass(frozen=True, slots=True)
class FileMark:
    """Which files were opened, so that it is noticed when others stand in their place. None is not told apart.

    On network file systems, whose inode numbers may change, only being there counts.
    """

    index: tuple[int, int] | None
    log: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path, *, is_local: bool) -> Self:
        """The mark of the index that was just opened."""
        return cls(_identity(path), _identity(_log(path))) if is_local else cls(None, None)

    def is_gone(self, path: Path) -> bool:
        """Whether the index itself is no longer at its path. Costs some microseconds."""
        found = _identity(path)
        return found is None or (self.index is not None and found != self.index)

    def has_changed(self, path: Path) -> bool:
        """Whether the index or its log is no longer at its path."""
        return self.is_gone(path) or (self.log is not None and _identity(_log(path)) != self.log)


def impaired(wanted: object, used: object, reason: str) -> Degradation:
    """Return the degradation that `used` serves instead of `wanted`; both are paths or words."""
    return Degradation(DegradationKind.INDEX_IMPAIRED, str(wanted), str(used), reason)


def size_bytes(path: Path) -> tuple[int, int]:
    """Return the bytes of a database file and of its write-ahead log; 0 for a missing file. Blocks."""
    return _file_bytes(path), _file_bytes(_log(path))


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 -- a search does this, and Path.stat costs three times as much
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
