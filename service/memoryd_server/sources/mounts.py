"""Which mounts do not tell the kernel of changes made on their other side."""

from collections.abc import Iterator
from pathlib import Path

from memoryd_server.sources.roots import is_within
from memoryd_server.sources.watch_scope import Scope

MOUNT_TABLE = Path("/proc/self/mountinfo")

_SILENT = frozenset({"9p", "afs", "ceph", "cifs", "drvfs", "fakeowner", "lustre", "ncpfs", "nfs", "nfs4"})
_SILENT_TOO = frozenset({"fuse.grpcfuse", "fuse.osxfs", "fuse.sshfs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs"})


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
