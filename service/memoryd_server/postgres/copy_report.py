"""CopyReport: what a copy of an agent between a folder and the database did, and how it is asked for."""

from collections.abc import Callable
from dataclasses import dataclass, field


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
    compared after the copy. In a dry run, `copied` and `replaced` are those that would be.
    """

    copied: int = 0
    replaced: int = 0
    equal: int = 0
    copied_bytes: int = 0
    verified: int = 0
    conflicts: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    mismatched: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether the destination has every file of the origin, byte for byte."""
        return not (self.conflicts or self.skipped or self.mismatched)
