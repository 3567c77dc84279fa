"""Checks of the machine: its file systems, its room, its limits, its clock."""

import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memoryd_server.doctor.checks import Check, failure, warning, well
from memoryd_server.sources import MOUNT_TABLE, file_system_of, is_remote

# Free space below this lets an index and its rebuild fail.
_LEAST_FREE_BYTES = 256 * 2**20
_LEAST_FREE_FILES = 1_000

_LEAST_WATCHES = 8_192
# From this share on a shortage is near.
_NEARLY_ALL = 0.8

# What an agent in use has open, and what the daemon has besides.
_DESCRIPTORS_OF_AN_AGENT = 12
_DESCRIPTORS_BESIDES = 256

_ROLLBACK = "the index uses a rollback journal, as a log is not safe there: searches wait while a sync commits"

# A clock may be so far off before it matters here.
_SKEW = timedelta(minutes=2)
# Nobody had this program before.
_FIRST_DAY = datetime(2025, 1, 1, tzinfo=UTC)

PROC = Path("/proc")


def check_state_dir(
    state_dir: Path,
    mounts: Path = MOUNT_TABLE,
    *,
    disk_usage: Callable[[Path], Any] = shutil.disk_usage,
    statvfs: Callable[[Path], Any] = os.statvfs,
) -> Iterator[Check]:
    """Whether indexes can be written and nobody else reads them, whether there is room, and what disk it is."""
    name = "state directory"
    nearest = next(path for path in (state_dir, *state_dir.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield failure(
            name,
            f"{state_dir} cannot be written",
            "nothing new is indexed; an index in it answers as it is",
            "make it writable for the daemon's user, or choose another with --state-dir",
        )
        return
    mode = stat.S_IMODE(nearest.stat().st_mode)
    if nearest == state_dir and mode & 0o022:
        yield warning(
            name,
            f"others can write {state_dir} (mode {mode:04o})",
            "they can put an index or tokens of their own in the place of yours",
            f"chmod 700 {state_dir}",
        )
    else:
        yield well(name, str(state_dir))
    yield from _room("free space", disk_usage(nearest).free, statvfs(nearest))
    yield _file_system("file system", nearest, mounts)


def _room(name: str, free: int, figures: os.statvfs_result) -> Iterator[Check]:
    if free < _LEAST_FREE_BYTES:
        yield warning(
            name,
            f"{free // 2**20:,} MiB",
            "a rebuild writes a second index beside the first; on a full disk syncs fail with DISK_FULL",
            "free some space, or move the state directory to a larger disk",
        )
    else:
        yield well(name, f"{free // 2**20:,} MiB")
    # Some file systems count no files.
    if figures.f_files and figures.f_favail < _LEAST_FREE_FILES:
        yield warning(
            name,
            f"the file system has room for {figures.f_favail:,} more files",
            "no new file can be made although there is space",
            "delete files that nobody needs, or make the file system anew with more inodes",
        )


def _file_system(name: str, folder: Path, mounts: Path, remote_means: str = "") -> Check:
    kind = file_system_of(folder, mounts) or "unknown"
    if not is_remote(kind):
        return well(name, f"{kind} holds {folder}")
    return warning(
        name,
        f"{kind}, which is on another machine or a host's, holds {folder}",
        remote_means or _ROLLBACK,
        "keep it on a local disk",
    )


def check_set_aside(state_dir: Path) -> Iterator[Check]:
    """Whether damaged files lie about. They hold notes, deleted ones too."""
    for path in sorted(state_dir.rglob("*.damaged-*")):
        yield warning(
            "damaged file",
            f"{path} was set aside and built anew",
            "something wrote over the file, or the disk fails; it holds the text of its day, deleted notes too",
            "look at the disk if this happens again; the file may be deleted",
        )


def check_workspace(
    agent_id: str,
    workspace: Path,
    mounts: Path = MOUNT_TABLE,
    *,
    access: Callable[[Path, int], bool] = os.access,
) -> Iterator[Check]:
    """Whether an agent's workspace is there, can be read and written, and tells of changes."""
    name = f"workspace of {agent_id}"
    if not workspace.is_dir():
        yield warning(
            name,
            f"{workspace} does not exist",
            "there is nothing to index; what was indexed of it is kept and not shown",
            "create it, mount its disk, or set agents.defaults.workspace",
        )
        return
    if not access(workspace, os.R_OK | os.X_OK):
        yield failure(
            name,
            f"{workspace} cannot be read",
            "nothing in it is indexed",
            "let the daemon's user read it",
        )
        return
    if not access(workspace, os.W_OK):
        yield warning(
            name,
            f"{workspace} cannot be written",
            "it is searched and synced, and appends fail with WORKSPACE_READ_ONLY",
            "let the daemon's user write it, if agents are to append",
        )
    else:
        yield well(name, str(workspace))
    kind = file_system_of(workspace, mounts)
    if is_remote(kind):
        means = f"changes are found by comparing the files, as {kind} does not tell of those made elsewhere"
        yield _file_system(name, workspace, mounts, means)


@dataclass(frozen=True, slots=True)
class InotifyUse:
    """What the processes of one user have of the kernel's inotify, as far as they can be looked into."""

    instances: int
    watches: int


def inotify_use(proc: Path = PROC) -> InotifyUse:
    """Counts in /proc, for the user of this process."""
    instances = watches = 0
    for process in proc.glob("[0-9]*"):
        try:
            if process.stat().st_uid != os.geteuid():
                continue
            for info in (process / "fdinfo").iterdir():
                found = info.read_text("ascii", "replace").count("inotify wd:")
                watches += found
                instances += (process / "fd" / info.name).readlink().name.startswith("anon_inode:inotify")
        except OSError:
            # It has ended meanwhile, or is not ours to look into.
            continue
    return InotifyUse(instances, watches)


def check_inotify(proc: Path = PROC) -> Iterator[Check]:
    """Whether the kernel gives enough watches and instances, and how many are taken."""
    name, limits = "inotify", proc / "sys/fs/inotify"
    try:
        watches = int((limits / "max_user_watches").read_text("ascii"))
        instances = int((limits / "max_user_instances").read_text("ascii"))
    except (OSError, ValueError):
        yield warning(
            name,
            "there is none here",
            "changes are found by comparing the files, every memoryd.watcher.pollSeconds",
            "nothing, unless that takes too long: raise pollSeconds",
        )
        return
    use = inotify_use(proc)
    polled = "folders beyond that are compared at intervals instead of watched"
    for what, used, limit, least in (
        ("watches", use.watches, watches, _LEAST_WATCHES),
        ("instances", use.instances, instances, 2),
    ):
        key = f"fs.inotify.max_user_{what}"
        if limit < least or used >= _NEARLY_ALL * limit:
            advice = f"raise it: sysctl {key}={max(4 * limit, 2 * least)}, and in /etc/sysctl.d for the next start"
            yield warning(name, f"{used:,} of {limit:,} {what} are taken ({key})", polled, advice)
        else:
            yield well(name, f"{used:,} of {limit:,} {what} are taken")


def check_descriptors(agents: int, hard_limit: int | None = None) -> Check:
    """Whether a daemon of so many agents may open enough files. It raises the soft limit by itself."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if hard_limit is None else hard_limit
    needed = _DESCRIPTORS_BESIDES + _DESCRIPTORS_OF_AN_AGENT * agents
    if most == resource.RLIM_INFINITY or most >= needed:
        limit = "no limit" if most == resource.RLIM_INFINITY else f"{most:,}"
        return well("open files", f"{limit}; {agents:,} agents need some {needed:,}")
    return warning(
        "open files",
        f"{most:,}, and {agents:,} agents need some {needed:,}",
        "indexes of some agents cannot be opened, and connections are refused",
        f"raise the hard limit: LimitNOFILE={2 * needed} in the systemd unit, or ulimit -Hn",
    )


def check_clock(now: datetime, newest: datetime | None) -> Check:
    """Whether the clock is plausible; `newest` is the latest moment that is known to be past, if any is."""
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    means = "tokens and certificates seem valid or expired when they are not, and decay misjudges the age of notes"
    if now < _FIRST_DAY:
        return warning("clock", f"{shown}, which is before this program was made", means, "set the clock; use NTP")
    if newest is not None and now < newest - _SKEW:
        detail = f"{shown}, and the last sync was at {newest:%Y-%m-%d %H:%M:%S}"
        return warning("clock", detail, f"it was set back: {means}", "set the clock; use NTP")
    return well("clock", shown)
