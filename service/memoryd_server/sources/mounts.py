"""Which mounts do not tell the kernel of changes made on their other side."""

from collections.abc import Iterator
from pathlib import Path

from memoryd_server.sources.roots import is_within
from memoryd_server.sources.watch_scope import Scope

MOUNT_TABLE = Path("/proc/self/mountinfo")

_SILENT = frozenset({"9p", "afs", "ceph", "cifs", "drvfs", "fakeowner", "lustre", "ncpfs", "nfs", "nfs4"})
_SILENT_TOO = frozenset({"fuse.grpcfuse", "fuse.osxfs", "fuse.sshfs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs"})


def file_system_of(path: Path, table: Path = MOUNT_TABLE) -> str:
    """Returns the type of the file system that holds `path`, such as "ext4"; "" where the table does not tell."""
    real = str(path.resolve())
    holders = [mount for mount in _mounts(table) if is_within(real, mount[0])]
    # Of several mounts on one point the last one is seen.
    return max(reversed(holders), key=lambda mount: len(mount[0]), default=("", ""))[1]


def is_remote(file_system: str) -> bool:
    """Whether another machine, or the host of a virtual one, keeps the files of such a file system."""
    return file_system in _SILENT | _SILENT_TOO or file_system.startswith("fuse.")


def silent_mount(scope: Scope, table: Path = MOUNT_TABLE) -> str:
    """Returns the type of a mount that holds the scope's top, or a folder it enters, and is silent; "" if none is."""
    mounts = list(_mounts(table))
    holder = max(
        (mount for mount in mounts if is_within(scope.top, mount[0])), key=lambda mount: len(mount[0]), default=None
    )
    inside = [mount for mount in mounts if is_within(mount[0], scope.top) and scope.enters(_below(mount[0], scope.top))]
    kinds = [kind for _, kind in [*inside, *([holder] if holder else [])] if kind in _SILENT | _SILENT_TOO]
    return kinds[0] if kinds else ""


def _below(path: str, top: str) -> tuple[str, ...]:
    return tuple(part for part in path[len(top) :].split("/") if part)


def _mounts(table: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = table.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        # "36 35 98:0 /root /mount/point rw,... [optional fields] - type source options", blanks as \\040.
        fields, _, tail = line.partition(" - ")
        point = fields.split(" ")[4:5]
        kind = tail.split(" ")[:1]
        if point and kind:
            yield point[0].replace("\\040", " "), kind[0]
