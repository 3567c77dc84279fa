"""The registry of running daemons: endpoint files, locks, and the order in which a command tries the daemons.

A daemon writes its addresses, its process id and the result of its last reload to `memoryd.endpoint.json` in its state
directory. It also holds a lock file there; the endpoint file is valid only while that lock is held.

It also registers its state directory in a folder of the user, so that a command finds it without being told the state
directory. Only the `memoryd` command uses this registry: a gateway whose daemon is stopped
must not write to the memory of another daemon. This module imports neither gRPC nor the settings.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memoryd.discovery import Environment
from memoryd_server.system import FileLock, try_lock

_LOCK_SECONDS = 1.0
_REGISTRY = Path(".local", "state", "memoryd", "daemons")
# Each selects a state directory, a workspace or a settings file.
_SELECTING = (
    *("MEMORYD_STATE_DIR", "MEMORYD_CONFIG", "MEMORYD_WORKSPACE"),
    *("OPENCLAW_STATE_DIR", "OPENCLAW_HOME", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE", "OPENCLAW_WORKSPACE_DIR"),
)
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
        OSError: the lock file does not exist.
    """
    with _lock_file(state_dir).open("rb") as file, suppress(OSError):
        return not try_lock(file.fileno())
    return True


def write_endpoint_file(state_dir: Path, addresses: Sequence[str], reload: LastReload) -> None:
    """Write the addresses of this daemon and the result of its last reload.

    Raises:
        OSError: the state directory is not writable, or the disk is full.
    """
    content = {"addresses": list(addresses), "pid": os.getpid(), "reload": asdict(reload)}
    _write_private(_endpoint_file(state_dir), content)


def _write_private(file: Path, content: Mapping[str, object]) -> None:
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(content) + "\n", "utf-8")
    temporary.chmod(0o600)
    temporary.replace(file)


def remove_endpoint_file(state_dir: Path) -> None:
    """Remove the endpoint file of a daemon that has stopped, if the state directory is writable."""
    with suppress(OSError):
        _endpoint_file(state_dir).unlink(missing_ok=True)


def running_daemon(state_dir: Path) -> RunningDaemon | None:
    """Return the daemon that runs with this state directory, or None. A file left by a killed daemon is ignored."""
    try:
        if not _is_locked(state_dir):
            return None
        content: Mapping[str, Any] = json.loads(_endpoint_file(state_dir).read_text("utf-8"))
        reload = content["reload"]
        lists = {name: tuple(map(str, reload[name])) for name in ("changed", "awaiting_restart")}
        return RunningDaemon(int(content["pid"]), LastReload(int(reload["loads"]), str(reload["error"]), **lists))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def registry_folder(environment: Environment) -> Path:
    """Return the folder in which the running daemons of the user are registered."""
    runtime = environment.path("XDG_RUNTIME_DIR")
    if runtime is not None and runtime.is_absolute():
        return runtime / "memoryd" / "daemons"
    return environment.home / _REGISTRY


def selects_memory(environment: Environment) -> bool:
    """Return whether a variable selects a state directory, a workspace or a settings file."""
    return any(environment.text(name) not in {None, "undefined", "null"} for name in _SELECTING)


def register(registry: Path, state_dir: Path) -> None:
    """Add the daemon of this process to the registry, and remove daemons from it that no longer run.

    Raises:
        OSError: the registry cannot be written.
    """
    registry.mkdir(parents=True, exist_ok=True, mode=0o700)
    for former in _registered_state_dirs(registry):
        if former != state_dir and running_daemon(former) is None:
            unregister(registry, former)
    _write_private(_registration(registry, state_dir), {"state_dir": str(state_dir), "pid": os.getpid()})


def unregister(registry: Path, state_dir: Path) -> None:
    """Remove a daemon from the registry, if it can be written."""
    with suppress(OSError):
        _registration(registry, state_dir).unlink(missing_ok=True)


def _registration(registry: Path, state_dir: Path) -> Path:
    name = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
    return registry / f"{name}.json"


def _registered_state_dirs(registry: Path) -> list[Path]:
    """Return the state directories in the registry, the last registered one first. Unreadable files are ignored."""
    found: list[tuple[int, Path]] = []
    with suppress(OSError):
        for file in registry.glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                state_dir = Path(json.loads(file.read_text("utf-8"))["state_dir"])
                if state_dir.is_absolute():
                    found.append((file.stat().st_mtime_ns, state_dir))
    return [state_dir for _, state_dir in sorted(found, reverse=True)]


def running_state_dirs(registry: Path) -> list[Path]:
    """Return the state directories of the registered daemons that run, the last started one first."""
    return [state_dir for state_dir in _registered_state_dirs(registry) if running_daemon(state_dir) is not None]


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
