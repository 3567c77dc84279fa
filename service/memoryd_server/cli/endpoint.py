"""What a daemon notes of itself in its state directory, for the commands that look for it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memoryd_server.system import FileLock, try_lock

_LOCK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LastReload:
    """How the settings in force came about: `loads` counts every time that settings were read, the start included."""

    loads: int = 1
    error: str = ""
    changed: tuple[str, ...] = ()
    awaiting_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A daemon that runs: its process, and how its last reload went."""

    pid: int
    reload: LastReload


def _file(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.json"


@contextmanager
def marked_alive(state_dir: Path) -> Iterator[None]:
    """Marks the notes of this process as those of one that lives. The mark goes with the process, however it ends.

    A state directory that takes no file gets none: `memoryd reload` then finds no daemon.
    """
    mark = FileLock(_mark(state_dir))
    with suppress(OSError):
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        # `running` in another process holds the mark for a moment; a second daemon, until it is refused its index.
        mark.wait(_LOCK_SECONDS)
    try:
        yield
    finally:
        mark.release()


def _mark(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.lock"


def _is_marked(state_dir: Path) -> bool:
    """Return whether a process holds the mark, or the file system has no locks to tell by.

    Raises:
        OSError: there is no mark.
    """
    with _mark(state_dir).open("rb") as mark, suppress(OSError):
        return not try_lock(mark.fileno())
    return True


def note_endpoint(state_dir: Path, addresses: Sequence[str], reload: LastReload) -> None:
    """Notes the addresses of a daemon that has started, and how its settings were read.

    Raises:
        OSError: the state directory takes no file.
    """
    noted = {"addresses": list(addresses), "pid": os.getpid(), "reload": asdict(reload)}
    temporary = _file(state_dir).with_suffix(".tmp")
    temporary.write_text(json.dumps(noted) + "\n", "utf-8")
    temporary.chmod(0o600)
    temporary.replace(_file(state_dir))


def forget_endpoint(state_dir: Path) -> None:
    """Removes the note of a daemon that has stopped, where it can be removed."""
    with suppress(OSError):
        _file(state_dir).unlink(missing_ok=True)


def running(state_dir: Path) -> Note | None:
    """The daemon that runs on this state directory; None when none does. A note that outlived its daemon is none."""
    try:
        if not _is_marked(state_dir):
            return None
        noted = _noted(state_dir)
        reload = noted["reload"]
        lists = {name: tuple(map(str, reload[name])) for name in ("changed", "awaiting_restart")}
        return Note(int(noted["pid"]), LastReload(int(reload["loads"]), str(reload["error"]), **lists))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _noted(state_dir: Path) -> Mapping[str, Any]:
    noted: Mapping[str, Any] = json.loads(_file(state_dir).read_text("utf-8"))
    return noted
