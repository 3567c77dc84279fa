"""Where the tokens of a daemon are."""

from dataclasses import dataclass
from pathlib import Path

PLAIN_FILE = "memoryd.token"
STORE_FILE = "memoryd.tokens.json"


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """`plain` has tokens for every agent, one a line; `store` the records of those that `memoryd token` made.

    `named` says that the settings name `plain`: then it must be there, and is never made.
    """

    plain: Path
    named: bool
    store: Path

    @classmethod
    def beneath(cls, state_dir: Path, named: Path | None) -> "TokenFiles":
        """The files of a state directory, with the plain one that the settings name, if they do."""
        return cls(named or state_dir / PLAIN_FILE, named is not None, state_dir / STORE_FILE)
