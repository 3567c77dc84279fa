"""Move an index of memoryd 0.1.0, `<agent>.sqlite`, to its present name, `<agent>.memoryd.sqlite`.

Early versions of OpenClaw kept an index of their own under the first name. A current OpenClaw imports it from there,
and its gateway does not start if the file is anything else.
"""

from pathlib import Path

import apsw

from memoryd_server.errors import IndexBusy
from memoryd_server.sqlite.connection import JournalMode, is_damage, open_writer
from memoryd_server.system import FileLock, sync_folder

_INDEX = ".memoryd.sqlite"
_FORMER_INDEX = ".sqlite"
_CACHE = ".memoryd.embeddings.sqlite"
_FORMER_CACHE = ".embeddings.sqlite"
_LOGS = ("-wal", "-journal")


def former_path(path: Path) -> Path | None:
    """Return where memoryd 0.1.0 kept the index that now is at `path`; None if the path has another form."""
    agent = path.name.removesuffix(_INDEX)
    return None if agent == path.name else path.with_name(agent + _FORMER_INDEX)


def move_former(path: Path, former: Path, journal: JournalMode) -> None:
    """Move the index at `former`, and the vector cache next to it, to `path`.

    A crash leaves each file complete under one of its names, and the next call moves the others.

    Raises:
        IndexBusy: another process holds the index.
        apsw.Error: a log cannot be applied, and the database is not damaged.
        OSError: a file cannot be moved.
    """
    agent = path.name.removesuffix(_INDEX)
    lock = FileLock(former.with_name(former.name + ".lock"))
    lock.acquire()
    try:
        # The index is the last one: as long as it has its former name, the others are moved.
        _move(path.with_name(agent + _FORMER_CACHE), path.with_name(agent + _CACHE), journal)
        _move(former, path, journal)
    finally:
        lock.release()


def _move(source: Path, target: Path, journal: JournalMode) -> None:
    """Move a database. At each step, its rows are at one of the two names, and it has the former one until the end."""
    if not source.exists() or target.exists():
        return
    if _apply_log(source, journal):
        # SQLite would apply a log at the new name that is of another database.
        for log in (*_logs(source), *_logs(target)):
            log.unlink(missing_ok=True)
    else:
        for log, moved in zip(_logs(source), _logs(target), strict=True):
            if log.exists():
                log.replace(moved)
    source.with_name(source.name + "-shm").unlink(missing_ok=True)
    sync_folder(source.parent)
    source.replace(target)
    sync_folder(source.parent)


def _apply_log(path: Path, journal: JournalMode) -> bool:
    """Write the rows in the log of a database to the database itself; return False if the database is damaged.

    A damaged database is found to be damaged again when it is opened at its new name.

    Raises:
        apsw.Error: the rows cannot be written now, for example because the disk is full.
        IndexBusy: another process writes to the database.
    """
    try:
        connection = open_writer(path, journal)
        try:
            # An error of the checkpoint that SQLite makes when it closes a database is not reported.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    except apsw.Error as error:
        if is_damage(error):
            return False
        raise
    if any(log.exists() and log.stat().st_size for log in _logs(path)):
        raise IndexBusy(f"another process writes to {path}; end it, so that the index can be moved")
    return True


def _logs(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _LOGS]
