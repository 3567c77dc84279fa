"""Move an index of memoryd 0.1.0, `<agent>.sqlite`, to its present name, `<agent>.memoryd.sqlite`.

Early versions of OpenClaw kept an index of their own under the first name. A current OpenClaw imports it from there,
and its gateway does not start if the file is anything else.
"""

from contextlib import suppress
from pathlib import Path

import apsw

from memoryd_server.sqlite.connection import JournalMode, open_writer
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
        OSError: a file cannot be moved.
    """
    agent = path.name.removesuffix(_INDEX)
    lock = FileLock(former.with_name(former.name + ".lock"))
    lock.acquire()
    try:
        # The index is the last one: as long as it has its former name, the others are moved.
        _move(path.with_name(agent + _FORMER_CACHE), path.with_name(agent + _CACHE), journal)
        _move(former, path, journal)
        sync_folder(path.parent)
    finally:
        lock.release()


def _move(source: Path, target: Path, journal: JournalMode) -> None:
    if not source.exists() or target.exists():
        return
    # Opening and closing a database applies its log. A damaged one is moved as it is, and found to be damaged later.
    with suppress(apsw.Error):
        open_writer(source, journal).close()
    for suffix in ("", *_LOGS):
        part = source.with_name(source.name + suffix)
        if part.exists():
            part.replace(target.with_name(target.name + suffix))
    source.with_name(source.name + "-shm").unlink(missing_ok=True)
