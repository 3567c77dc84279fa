"""CopyReport: what a copy of an agent between a folder and the database did, and how it is asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from memoryd_server.errors import DiskFull, FileNotFound, FileReplaced, PathNotAllowed
from memoryd_server.foreign_text import shown_path
from memoryd_server.system import DISK_FULL

LATEST_NS: Final = (1 << 63) - 1
"""The latest time that the tables can store; some file systems have later ones."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How to copy. Without `replace`, a file that differs at its destination is kept there, and is a conflict.

    `dry_run` copies nothing. `progress` is called with the number of files that are done, and of all files.
    """

    replace: bool = False
    dry_run: bool = False
    progress: Callable[[int, int], None] = lambda _done, _total: None


@dataclass(slots=True)
class CopyReport:
    """What a copy did. `copied` files were missing at the destination, `equal` ones were there already.

    `conflicts` are the files that differ and were kept, `skipped` those that could not be copied, with the reason, and
    `mismatched` those whose content at the destination was not the copied one afterwards. `verified` files were
    compared after the copy. `others` are files below `memory/` that are no Markdown, and are not copied. In a dry run,
    `copied` and `replaced` are those that would be.
    """

    copied: int = 0
    replaced: int = 0
    equal: int = 0
    copied_bytes: int = 0
    verified: int = 0
    conflicts: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    mismatched: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether the destination has all memory of the origin, byte for byte."""
        return not (self.conflicts or self.skipped or self.mismatched)


@contextmanager
def skipping(name: str, report: CopyReport) -> Iterator[None]:
    """Add a file that is missing, is no regular file or that the file system refuses to those that were skipped.

    Raises:
        DiskFull: no space is left, so that no other file can be written either.
    """
    try:
        yield
    except (PathNotAllowed, FileNotFound, FileReplaced) as error:
        report.skipped[name] = error.message
    except OSError as error:
        if error.errno in DISK_FULL:
            shown = shown_path(name)
            words = f"{shown!r} cannot be written: {error.strerror}; free some space, and repeat the command"
            raise DiskFull(words, metadata={"path": shown}) from error
        report.skipped[name] = f"the file system refuses it: {error.strerror}"
