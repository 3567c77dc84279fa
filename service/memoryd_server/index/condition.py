"""Whether an index holds what was written to it, as far as is known, and what happened to it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from memoryd_server.model import Degradation, DegradationKind


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
