"""Where a missing file proves nothing, because the folder that would hold it could not be looked into.

A drive that is not mounted, a server that does not answer or a folder without permission hides files; nobody has
deleted them.
"""

from dataclasses import dataclass

from memoryd_server.model import Source


@dataclass(frozen=True, slots=True)
class Unseen:
    """A place whose files could not be looked for.

    `prefixes` are the display paths it would hold: those that end in "/", or are empty, stand for all that begins so.
    With a `device` (st_dev), the place is there and empty, and only files indexed on another device are hidden: where
    a drive was mounted, an empty folder is left. Only files of `source` are meant.
    """

    place: str
    reason: str
    prefixes: tuple[str, ...]
    device: int | None = None
    source: Source = Source.MEMORY

    def would_hold(self, path: str) -> bool:
        """Tells whether the file with this display path would be found here."""
        return any(_begins(path, prefix) for prefix in self.prefixes)


def below(folder: str) -> str:
    """Returns the prefix that stands for all files below a folder's display path."""
    return "" if folder == "." else f"{folder}/"


def _begins(path: str, prefix: str) -> bool:
    if not prefix:
        return not path.startswith("../")
    return path.startswith(prefix) if prefix.endswith("/") else path == prefix
