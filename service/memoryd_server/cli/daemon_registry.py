"""The registry of running daemons: endpoint files, locks, and the order in which a command tries the daemons.

A daemon writes its addresses, its process id and the result of its last reload to `memoryd.endpoint.json` in its state
directory. It also holds a lock file there; the endpoint file is valid only while that lock is held.

It also registers its state directory in a folder of the user, so that a command finds it without being told the state
directory. Only the `memoryd` command uses this registry: a gateway whose daemon is stopped
must not write to the memory of another daemon. This module imports neither gRPC nor the settings.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from memoryd.discovery import Environment
from memoryd_server.system import FileLock, is_locked

_LOCK_SECONDS = 1.0
_PROBE_SECONDS = 1.0
_MAX_FILE_BYTES = 1_000_000
_REGISTRY = Path(".local", "state", "memoryd", "daemons")
_OF_THE_WORKSPACE = (
    *("MEMORYD_CONFIG", "MEMORYD_WORKSPACE"),
    *("OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE", "OPENCLAW_WORKSPACE_DIR"),
)
_OF_THE_STATE_DIR = ("MEMORYD_STATE_DIR", "OPENCLAW_STATE_DIR", "OPENCLAW_HOME")
# What a state directory contains if it has been set up.
_SIGNS_OF_A_MEMORY = ("memoryd.json5", "openclaw.json", "clawdbot.json", "workspace")


@dataclass(frozen=True, slots=True)
class LastReload:
    """The result of the last reload; `loads` counts every time the settings were read, including at the start."""

    loads: int = 1
    error: str = ""
    changed: tuple[str, ...] = ()
    awaiting_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """The process id of a running daemon, and the result of its last reload."""

    pid: int
    reload: LastReload


def _endpoint_file(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.json"


def _lock_file(state_dir: Path) -> Path:
    return state_dir / "memoryd.endpoint.lock"


@contextmanager
def endpoint_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock that makes the endpoint file of this process valid. It ends with the process in any case.

    If the state directory is not writable there is no lock, and `memoryd reload` does not find the daemon.
    """
    lock = FileLock(_lock_file(state_dir))
    with suppress(OSError):
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        # `running_daemon` in another process holds the lock for a moment. A second daemon holds it until it is refused
        # the indexes.
        lock.wait(_LOCK_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _is_locked(state_dir: Path) -> bool:
    """Return whether a process holds the lock, or the file system does not support locks.

    Raises:
        OSError: the lock file does not exist, or is no file.
    """
    with _open_file(_lock_file(state_dir)) as file, suppress(OSError):
        return is_locked(file.fileno())
    return True


def _open_file(file: Path) -> BinaryIO:
    """Open a file for reading. Does not follow a link, and does not wait for the writer of a pipe.

    Raises:
        OSError: it does not exist, or is no regular file.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    opened = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        opened.close()
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    return opened


def _read_json(file: Path) -> Any:
    """Return the content of a small JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON.
    """
    with _open_file(file) as opened:
        return json.loads(opened.read(_MAX_FILE_BYTES))


def write_endpoint_file(state_dir: Path, addresses: Sequence[str], reload: LastReload) -> None:
    """Write the addresses of this daemon and the result of its last reload.

    Raises:
        OSError: the state directory is not writable, or the disk is full.
    """
    content = {"addresses": list(addresses), "pid": os.getpid(), "reload": asdict(reload)}
    _write_private(_endpoint_file(state_dir), content)


def _write_private(file: Path, content: Mapping[str, object]) -> None:
    """Write a file that only its owner can read, in one step. Does not follow a link that is there."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(json.dumps(content) + "\n")
        Path(temporary).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def remove_endpoint_file(state_dir: Path) -> None:
    """Remove the endpoint file of a daemon that has stopped, if the state directory is writable."""
    with suppress(OSError):
        _endpoint_file(state_dir).unlink(missing_ok=True)


def running_daemon(state_dir: Path) -> RunningDaemon | None:
    """Return the daemon that runs with this state directory, or None. A file left by a killed daemon is ignored."""
    try:
        if not _is_locked(state_dir):
            return None
        content: Mapping[str, Any] = _read_json(_endpoint_file(state_dir))
        reload = content["reload"]
        lists = {name: tuple(map(str, reload[name])) for name in ("changed", "awaiting_restart")}
        return RunningDaemon(int(content["pid"]), LastReload(int(reload["loads"]), str(reload["error"]), **lists))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def registry_folder(environment: Environment) -> Path:
    """Return the folder in which the running daemons of the user are registered."""
    runtime = environment.path("XDG_RUNTIME_DIR")
    if runtime is not None and runtime.is_absolute() and runtime.is_dir():
        return runtime / "memoryd" / "daemons"
    return environment.home / _REGISTRY


def selects_memory(environment: Environment) -> bool:
    """Return whether a variable selects a state directory, a workspace or a settings file."""
    return selects_workspace(environment) or _is_any_set(environment, _OF_THE_STATE_DIR)


def selects_workspace(environment: Environment) -> bool:
    """Return whether a variable selects a workspace, or a settings file, which can set one."""
    return _is_any_set(environment, _OF_THE_WORKSPACE)


def _is_any_set(environment: Environment, names: Sequence[str]) -> bool:
    return any(environment.text(name) not in {None, "undefined", "null"} for name in names)


def register(registry: Path, state_dir: Path) -> None:
    """Add the daemon of this process to the registry.

    Raises:
        OSError: the registry cannot be written, or other users can write it.
    """
    for folder in (registry.parent, registry):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_private(registry):
        raise PermissionError(errno.EPERM, "other users can write this folder", str(registry))
    _write_private(_registration(registry, state_dir), {"state_dir": str(state_dir), "pid": os.getpid()})


def remove_stopped(registry: Path, own: Path) -> None:
    """Remove daemons from the registry that no longer run. Blocks, possibly for long on a network file system."""
    for state_dir in _registered_state_dirs(registry):
        if state_dir != own and running_daemon(state_dir) is None:
            unregister(registry, state_dir)


def _is_private(folder: Path) -> bool:
    """Return whether a folder and its parent belong to this user, and no other user can write them."""
    for each in (folder, folder.parent):
        status = each.lstat()
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return True


def unregister(registry: Path, state_dir: Path) -> None:
    """Remove a daemon from the registry, if it can be written."""
    with suppress(OSError):
        _registration(registry, state_dir).unlink(missing_ok=True)


def _registration(registry: Path, state_dir: Path) -> Path:
    name = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    return registry / f"{name}.json"


def _registered_state_dirs(registry: Path) -> list[Path]:
    """Return the state directories in the registry, the last registered one first.

    Unreadable files are ignored, and all of them if another user can write the registry.
    """
    found: list[tuple[int, Path]] = []
    with suppress(OSError):
        for file in registry.glob("*.json") if _is_private(registry) else ():
            with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                state_dir = Path(_read_json(file)["state_dir"])
                if state_dir.is_absolute():
                    found.append((file.lstat().st_mtime_ns, state_dir))
    return [state_dir for _, state_dir in sorted(found, reverse=True)]


def running_state_dirs(registry: Path) -> list[Path]:
    """Return the state directories of the registered daemons that run, the last started one first.

    Those on a file system that does not answer within a second are left out.
    """
    return [state_dir for state_dir in _registered_state_dirs(registry) if _runs(state_dir)]


def _runs(state_dir: Path) -> bool:
    """Return whether a daemon of this user runs with a state directory; False if that is not known in time."""
    answers: list[bool] = []

    def probe() -> None:
        with suppress(OSError):
            is_own = state_dir.stat().st_uid == os.geteuid()
            answers.append(is_own and running_daemon(state_dir) is not None)

    thread = threading.Thread(target=probe, name="probe", daemon=True)
    thread.start()
    thread.join(_PROBE_SECONDS)
    return answers == [True]


def candidate_state_dirs(environment: Environment, given: Path | None) -> list[Path]:
    """Return the state directories of the running daemons that a command may call, the preferred one first.

    This is the own state directory, `given` or else that of the environment. If no daemon runs with it, these are the
    registered ones, unless an option or a variable selects a memory, or the own state directory has one.
    """
    own = own_state_dir(environment, given)
    if running_daemon(own) is not None:
        return [own]
    if given is not None or selects_memory(environment) or has_memory(own):
        return []
    return running_state_dirs(registry_folder(environment))


def has_memory(state_dir: Path) -> bool:
    """Return whether a memory has been set up in a state directory. An index alone is none."""
    return any((state_dir / name).exists() for name in _SIGNS_OF_A_MEMORY)


def own_state_dir(environment: Environment, given: Path | None) -> Path:
    """Return the state directory that an option names, as an absolute path, or else that of the environment."""
    if given is None:
        return environment.state_dir
    return Path(os.path.normpath(Path.cwd() / given.expanduser()))
