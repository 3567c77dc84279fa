"""Checks of the ground that memoryd stands on, each with what to do when it does not hold."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

# Free space below this lets an index and its rebuild fail.
_LEAST_FREE_BYTES = 256 * 2**20
_LEAST_WATCHES = 8_192


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `advice` says what to do; it is empty when all is well."""

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""


def check_state_dir(state_dir: Path) -> Iterator[Check]:
    """Whether indexes can be written, and whether there is room."""
    nearest = next(path for path in (state_dir, *state_dir.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        advice = "make it writable, or choose another with --state-dir; an index in it answers as it is"
        yield Check("state directory", Verdict.FAILED, f"{state_dir} cannot be written", advice)
        return
    yield Check("state directory", Verdict.OK, str(state_dir))
    free = shutil.disk_usage(nearest).free
    enough = free >= _LEAST_FREE_BYTES
    advice = "" if enough else "free some space: a rebuild writes a second index beside the first"
    yield Check("free space", Verdict.OK if enough else Verdict.WARNING, f"{free // 2**20:,} MiB", advice)


def check_set_aside(state_dir: Path) -> Iterator[Check]:
    """Whether damaged files lie about. They hold notes, deleted ones too."""
    for path in sorted(state_dir.rglob("*.damaged-*")):
        advice = "look at the disk if this happens again; the file may be deleted"
        yield Check("damaged file", Verdict.WARNING, f"{path} was set aside and built anew", advice)


def check_workspace(agent_id: str, workspace: Path) -> Check:
    """Whether an agent's workspace is there."""
    name = f"workspace of {agent_id}"
    if workspace.is_dir():
        return Check(name, Verdict.OK, str(workspace))
    return Check(name, Verdict.WARNING, f"{workspace} does not exist", "create it, or set agents.defaults.workspace")


def check_inotify(limit: Path = Path("/proc/sys/fs/inotify/max_user_watches")) -> Check:
    """Whether the kernel gives enough watches."""
    try:
        watches = int(limit.read_text("ascii"))
    except (OSError, ValueError):
        return Check("inotify", Verdict.WARNING, "no inotify here", "changes are found by polling")
    if watches < _LEAST_WATCHES:
        advice = "raise fs.inotify.max_user_watches; beyond it changes are found by polling"
        return Check("inotify", Verdict.WARNING, f"{watches:,} watches", advice)
    return Check("inotify", Verdict.OK, f"{watches:,} watches")


def check_keyword_engine(version: str, probe: Callable[[], None]) -> Check:
    """Whether SQLite can build and search a keyword table; `probe` does so and raises when it cannot."""
    try:
        probe()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the finding
        return Check("SQLite", Verdict.FAILED, f"{version}: {error}", "install apsw from its published wheels")
    return Check("SQLite", Verdict.OK, f"{version}, FTS5 answers")
