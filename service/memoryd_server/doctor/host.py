"""Checks of the machine: file systems, free space, inotify, the limit of open files, and the clock."""

import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from memoryd_server.doctor.checks import Check, failure, warning, well
from memoryd_server.sources import MOUNT_TABLE, file_system_of, is_remote

# With less free space, an index or its rebuild may fail.
_MIN_FREE_BYTES = 256 * 2**20
_MIN_FREE_FILES = 1_000

_MIN_WATCHES = 8_192
# The share of a limit in use from which a warning is due.
_WARNING_SHARE = 0.8

# The open files of an agent in use, and those of the daemon itself.
_DESCRIPTORS_PER_AGENT = 12
_DESCRIPTORS_OF_DAEMON = 256

_ROLLBACK = "the index uses a rollback journal, because a log is not safe there: searches wait while a sync commits"

# The error of a clock that is tolerated.
_MAX_SKEW = timedelta(minutes=2)
# The program did not exist before this day.
_FIRST_DAY = datetime(2025, 1, 1, tzinfo=UTC)

PROC = Path("/proc")


def check_state_dir(
    state_dir: Path,
    mounts: Path = MOUNT_TABLE,
    *,
    disk_usage: Callable[[Path], Any] = shutil.disk_usage,
    statvfs: Callable[[Path], Any] = os.statvfs,
) -> Iterator[Check]:
    """Check that only the daemon's user can write the state directory, its free space, and its file system."""
    name = "state directory"
    nearest = next(path for path in (state_dir, *state_dir.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield failure(
            name,
            f"{state_dir} cannot be written",
            "no changes are indexed; searches use the existing index",
            "make it writable for the daemon's user, or choose another with --state-dir",
        )
        return
    mode = stat.S_IMODE(nearest.stat().st_mode)
    if nearest == state_dir and mode & 0o022:
        yield warning(
            name,
            f"other users can write {state_dir} (mode {mode:04o})",
            "they can replace the index and the tokens",
            f"chmod 700 {state_dir}",
        )
    else:
        yield well(name, str(state_dir))
    yield from _check_free_space("free space", disk_usage(nearest).free, statvfs(nearest))
    yield _check_file_system("file system", nearest, mounts)


def _check_free_space(name: str, free: int, figures: os.statvfs_result) -> Iterator[Check]:
    if free < _MIN_FREE_BYTES:
        yield warning(
            name,
            f"{free // 2**20:,} MiB",
            "a rebuild writes a second index before it deletes the first; on a full disk syncs fail with DISK_FULL",
            "free some space, or move the state directory to a larger disk",
        )
    else:
        yield well(name, f"{free // 2**20:,} MiB")
    # Some file systems do not count files.
    if figures.f_files and figures.f_favail < _MIN_FREE_FILES:
        yield warning(
            name,
            f"the file system has room for {figures.f_favail:,} more files",
            "no new file can be created although there is space",
            "delete unused files, or re-create the file system with more inodes",
        )


def _check_file_system(name: str, folder: Path, mounts: Path, meaning: str = _ROLLBACK) -> Check:
    kind = file_system_of(folder, mounts) or "unknown"
    if not is_remote(kind):
        return well(name, f"{folder} is on {kind}")
    return warning(
        name,
        f"{folder} is on {kind}, which is a network or host file system",
        meaning,
        "move it to a local disk",
    )


def check_set_aside(state_dir: Path) -> Iterator[Check]:
    """Report damaged files that were set aside. They contain the text of notes, also of deleted ones."""
    for path in sorted(_files_below(state_dir, "*.damaged-*")):
        yield warning(
            "damaged file",
            f"{path} was set aside, and the file was rebuilt",
            "another program overwrote the file, or the disk fails; it contains notes, also deleted ones",
            "check the disk if this happens again; the file may be deleted",
        )


def _files_below(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the files whose names match, without recursion: a workspace below the folder may be of any depth."""
    waiting = [os.fspath(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif fnmatchcase(entry.name, pattern):
                    yield Path(entry.path)


def check_workspace(
    agent_id: str,
    workspace: Path,
    mounts: Path = MOUNT_TABLE,
    *,
    access: Callable[[Path, int], bool] = os.access,
) -> Iterator[Check]:
    """Check that an agent's workspace exists, can be read and written, and reports changes."""
    name = f"workspace of {agent_id}"
    if not workspace.is_dir():
        yield warning(
            name,
            f"{workspace} does not exist",
            "no files are indexed; files that were indexed stay in the index and are not returned",
            "create it, mount its disk, or set agents.defaults.workspace",
        )
        return
    if not access(workspace, os.R_OK | os.X_OK):
        yield failure(
            name,
            f"{workspace} cannot be read",
            "no file in it is indexed",
            "make it readable for the daemon's user",
        )
        return
    if not access(workspace, os.W_OK):
        yield warning(
            name,
            f"{workspace} cannot be written",
            "search and sync work; appends fail with WORKSPACE_READ_ONLY",
            "if agents append, make it writable for the daemon's user",
        )
    else:
        yield well(name, str(workspace))
    kind = file_system_of(workspace, mounts)
    if is_remote(kind):
        means = f"changes are found by comparing the files, because {kind} does not report those of other machines"
        yield _check_file_system(name, workspace, mounts, means)


@dataclass(frozen=True, slots=True)
class InotifyUse:
    """The inotify instances and watches of one user's processes, as far as /proc shows them."""

    instances: int
    watches: int


def inotify_use(proc: Path = PROC) -> InotifyUse:
    """Count the inotify instances and watches of this process's user in /proc."""
    instances = watches = 0
    for process in proc.glob("[0-9]*"):
        try:
            if process.stat().st_uid != os.geteuid():
                continue
            for info in (process / "fdinfo").iterdir():
                watches += info.read_text("ascii", "replace").count("inotify wd:")
                instances += (process / "fd" / info.name).readlink().name.startswith("anon_inode:inotify")
        except OSError:
            # The process has ended, or its files cannot be read.
            continue
    return InotifyUse(instances, watches)


def check_inotify(proc: Path = PROC) -> Iterator[Check]:
    """Check the kernel's limits of inotify watches and instances, and how many are in use."""
    name, limits = "inotify", proc / "sys/fs/inotify"
    try:
        watches = int((limits / "max_user_watches").read_text("ascii"))
        instances = int((limits / "max_user_instances").read_text("ascii"))
    except (OSError, ValueError):
        yield warning(
            name,
            "not available on this system",
            "changes are found by comparing the files, every memoryd.watcher.pollSeconds",
            "nothing; if comparing takes too long, raise pollSeconds",
        )
        return
    use = inotify_use(proc)
    means = "folders beyond the limit are compared at intervals instead of watched"
    for resource_name, used, limit, minimum in (
        ("watches", use.watches, watches, _MIN_WATCHES),
        ("instances", use.instances, instances, 2),
    ):
        key = f"fs.inotify.max_user_{resource_name}"
        detail = f"{used:,} of {limit:,} {resource_name} are in use"
        if limit < minimum or used >= _WARNING_SHARE * limit:
            advice = f"raise it: sysctl {key}={max(4 * limit, 2 * minimum)}, and in /etc/sysctl.d for the next boot"
            yield warning(name, f"{detail} ({key})", means, advice)
        else:
            yield well(name, detail)


def check_descriptors(agents: int, hard_limit: int | None = None) -> Check:
    """Check that a daemon with this number of agents may open enough files. It raises the soft limit by itself."""
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if hard_limit is None else hard_limit
    needed = _DESCRIPTORS_OF_DAEMON + _DESCRIPTORS_PER_AGENT * agents
    if hard_limit == resource.RLIM_INFINITY or hard_limit >= needed:
        limit = "no limit" if hard_limit == resource.RLIM_INFINITY else f"{hard_limit:,}"
        return well("open files", f"{limit}; {agents:,} agents need about {needed:,}")
    return warning(
        "open files",
        f"{hard_limit:,}, and {agents:,} agents need about {needed:,}",
        "the indexes of some agents cannot be opened, and connections are refused",
        f"raise the hard limit: LimitNOFILE={2 * needed} in the systemd unit, or ulimit -Hn",
    )


def check_clock(now: datetime, newest: datetime | None) -> Check:
    """Check that the clock is plausible. `newest` is the latest time that is known to be past; None if unknown."""
    time = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    means = "expired tokens and certificates may be accepted and valid ones refused, and decay computes wrong ages"
    if now < _FIRST_DAY:
        return warning("clock", f"{time}, which is before memoryd was released", means, "set the clock; use NTP")
    if newest is not None and now < newest - _MAX_SKEW:
        detail = f"{time}, and the last sync was at {newest:%Y-%m-%d %H:%M:%S}"
        return warning("clock", detail, f"it was set back: {means}", "set the clock; use NTP")
    return well("clock", time)
