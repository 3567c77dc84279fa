"""CopyOptions and CopyReport: the options and the result of a copy between a folder and the database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from memoryd_server.errors import DiskFull, FileNotFound, FileReplaced, PathNotAllowed
from memoryd_server.foreign_text import shown_path
from memoryd_server.system import DISK_FULL

LATEST_NS: Final = (1 << 63) - 1
"""The latest time that the tables can store; some file systems can store later ones."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How to copy. Without `replace`, a file that differs at its destination is kept there, and is a conflict.

    With `dry_run`, nothing is copied. `progress` is called with the number of completed files and of all files.
    """

    replace: bool = False
    dry_run: bool = False
    progress: Callable[[int, int], None] = lambda _done, _total: None


@dataclass(slots=True)
class CopyReport:
    """What a copy did. `copied` files were missing at the destination, `equal` ones were there already.

    `conflicts` are the files that differ and were kept, `skipped` those that could not be copied, with the reason, and
    `mismatched` those whose content at the destination was another than the copied one after the copy. `verified` is
    the number of files that were compared after the copy. `others` are files below `memory/` that are not Markdown, and
    are not copied. In a dry run, `copied` and `replaced` count the files that would be copied and replaced.
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
        """Whether the destination has all memory files of the source, byte for byte."""
        return not (self.conflicts or self.skipped or self.mismatched)


@contextmanager
def skipping(name: str, report: CopyReport) -> Iterator[None]:
    """Record a file as skipped if it is missing, is not a regular file, or if the file system reports an error.

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
