"""Puts a rebuilt index in the place of the old one, so that a crash at any step leaves one whole index.

The steps: the new file is complete and closed (`.rebuilding`, no WAL of its own) → it is renamed to `.ready`, which
says so → the old file's journals go, for a leftover one would bring the old rows back, silently → `.ready` is renamed
over the old file. Start-up looks which of these had happened and finishes or undoes the rest.
"""

import glob
import time
from pathlib import Path

from memoryd_server.durable import sync_folder

MOST_KEPT = 2
"""Damaged files that are kept, the newest ones: they are for whoever wants to know what happened."""

_JOURNALS = ("-wal", "-shm", "-journal")


def rebuilding_path(path: Path) -> Path:
    """Where a rebuild writes."""
    return path.with_name(path.name + ".rebuilding")


def ready_path(path: Path) -> Path:
    """Where a finished rebuild waits for its swap."""
    return path.with_name(path.name + ".ready")


def commit(path: Path) -> None:
    """Puts the finished rebuild in place. Both files are closed, and nobody opens them meanwhile."""
    rebuilding_path(path).replace(ready_path(path))
    sync_folder(path.parent)
    _finish(path)


def recover(path: Path) -> None:
    """Finishes a swap that had begun and removes what an unfinished rebuild left."""
    remove_database(rebuilding_path(path))
    if ready_path(path).exists():
        _finish(path)


def discard(path: Path) -> None:
    """Removes what a rebuild that failed left, so that no later start-up takes it for newer than the index."""
    remove_database(rebuilding_path(path))
    ready_path(path).unlink(missing_ok=True)


def set_aside(path: Path, unix_seconds: float) -> Path:
    """Renames a damaged database to a name that says so and when, removes its journals, and answers with that name.

    Older ones beyond `MOST_KEPT` are removed.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_seconds))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    path.replace(aside)
    remove_journals(path)
    for old in sorted(path.parent.glob(f"{glob.escape(path.name)}.damaged-*"))[:-MOST_KEPT]:
        old.unlink(missing_ok=True)
    sync_folder(path.parent)
    return aside


def remove_database(path: Path) -> None:
    """Removes a database file with its journals; absent ones are fine."""
    path.unlink(missing_ok=True)
    remove_journals(path)


def remove_journals(path: Path) -> None:
    """Removes the journals of a database that is gone or set aside."""
    for suffix in _JOURNALS:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _finish(path: Path) -> None:
    remove_journals(path)
    sync_folder(path.parent)
    ready_path(path).replace(path)
    sync_folder(path.parent)
