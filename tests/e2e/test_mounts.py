"""Real mounts and limits: a daemon in its own namespaces, where any user may mount and set limits."""

import subprocess
from dataclasses import dataclass

import pytest

from e2e import namespaces
from e2e.daemon_fixture import client, paths
from memoryd.messages import DegradationKind, IndexState, WatcherMode
from waiting import wait_until

NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount")


@pytest.fixture(scope="module", autouse=True)
def _namespaces():
    namespaces.require(NAMESPACES)


def after(script):
    """A command that runs `script`, and then the daemon in the same namespaces."""
    return (*NAMESPACES, "sh", "-ec", f'{script}; exec "$@"', "sh")


@dataclass
class Inside:
    """A daemon, and a shell in its namespaces."""

    served: object

    def run(self, script):
        pid = str(self.served.process.pid)
        entered = ("nsenter", "--target", pid, "--user", "--mount", "--preserve-credentials", "sh", "-ec", script)
        done = subprocess.run(entered, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def start(daemons, script):
    probe = subprocess.run([*after(script), "true"], capture_output=True, text=True, timeout=30, check=False)
    if probe.returncode:
        pytest.skip(f"not to be had here: {probe.stderr.strip()}")
    return Inside(daemons.start(within=after(script)))


def found(connection, query, expected):
    wait_until(lambda: paths(connection, query) == expected)


def mode(connection, at=0):
    watcher = connection.status().watchers[at]
    return WatcherMode.Name(watcher.mode).removeprefix("WATCHER_MODE_"), watcher.reason


def kinds(connection):
    found = connection.status().degradations
    return [DegradationKind.Name(each.kind).removeprefix("DEGRADATION_KIND_") for each in found]


@pytest.mark.slow
def test_a_drive_that_is_unmounted_is_not_forgotten_and_found_again_when_it_is_back(daemons):
    """Its mount point is then an empty folder, as if every note had been deleted."""
    daemons.configure(debounce_ms=50, reconcile_seconds=1)
    drive = daemons.home / "drive"
    drive.mkdir()
    mount = f"mount --bind {drive} {daemons.workspace}"
    inside = start(
        daemons,
        f"mount -t tmpfs drive {drive}; mkdir {drive}/memory; echo the first heron > {drive}/memory/a.md; {mount}",
    )
    with client(inside.served) as connection:
        found(connection, "heron", ["memory/a.md"])
        indexed = connection.status().index.revision
        inside.run(f"umount --lazy {daemons.workspace}")
        wait_until(lambda: kinds(connection) == ["SOURCE_SKIPPED"])
        # Two passes, of which each would forget the files if it took them for deleted.
        wait_until(lambda: "replaced" not in mode(connection)[1])
        status = connection.status()
        assert (status.index.files, status.index.revision, status.index.dirty) == (1, indexed, True)
        assert (status.index.sources[0].files_on_disk, status.index.sources[0].files_indexed) == (0, 1)
        assert "other drive" in status.degradations[0].reason
        assert paths(connection, "heron") == []
        inside.run(mount)
        found(connection, "heron", ["memory/a.md"])
        wait_until(lambda: kinds(connection) == [])
        inside.run(f"echo a kestrel > {daemons.workspace}/memory/b.md")
        found(connection, "kestrel", ["memory/b.md"])
        wait_until(lambda: mode(connection) == ("NATIVE", ""))
        assert IndexState.Name(connection.status().index.state) == "INDEX_STATE_READY"


@pytest.mark.slow
def test_a_mount_that_is_silent_without_our_knowing_is_found_out_and_polled(daemons):
    """An overlay tells nothing of what is written to the folder under it."""
    daemons.configure(debounce_ms=50, reconcile_seconds=9, watcher={"pollSeconds": 0.5})
    lower = daemons.home / "lower"
    for name in ("lower", "lower/memory", "upper", "work"):
        (daemons.home / name).mkdir()
    (lower / "memory" / "a.md").write_text("the first heron")
    options = ",".join(f"{name}dir={daemons.home}/{name}" for name in ("lower", "upper", "work"))
    inside = start(daemons, f"mount -t overlay overlay -o {options} {daemons.workspace}")
    with client(inside.served) as connection:
        found(connection, "heron", ["memory/a.md"])
        assert mode(connection) == ("NATIVE", "")
        for number in range(100):
            (lower / "memory" / f"{number}.md").write_text(f"kestrel{number} hovers")
            wait_until(lambda n=number: paths(connection, f"kestrel{n}") == [f"memory/{n}.md"])
            if mode(connection)[0] == "POLLING":
                break
        assert "changes came without one" in mode(connection)[1]
        assert kinds(connection) == ["WATCHER_IMPAIRED"]
        (lower / "memory" / "last.md").write_text("a stork")
        found(connection, "stork", ["memory/last.md"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "words"),
    [("max_inotify_watches", "max_user_watches"), ("max_inotify_instances", "max_user_instances")],
)
def test_where_inotify_is_used_up_the_files_are_polled_and_status_says_so(daemons, limit, words):
    daemons.configure(debounce_ms=50, watcher={"pollSeconds": 0.2})
    daemons.write("memory/a.md", "the first heron")
    inside = start(daemons, f"echo 0 > /proc/sys/user/{limit}")
    with client(inside.served) as connection:
        found(connection, "heron", ["memory/a.md"])
        chosen, reason = mode(connection)
        assert (chosen, words in reason) == ("POLLING", True), reason
        assert kinds(connection) == ["WATCHER_IMPAIRED"]
        daemons.write("memory/b.md", "a kestrel")
        found(connection, "kestrel", ["memory/b.md"])
        (daemons.workspace / "memory/b.md").unlink()
        wait_until(lambda: connection.status().index.files == 1)


@pytest.mark.slow
def test_a_workspace_that_cannot_be_read_any_more_is_not_forgotten(daemons):
    """A file system that stops answering: every look at it fails."""
    daemons.configure(debounce_ms=50, reconcile_seconds=1)
    daemons.write("memory/a.md", "the first heron")
    inside = start(daemons, "true")
    with client(inside.served) as connection:
        found(connection, "heron", ["memory/a.md"])
        revision = connection.status().index.revision
        broken = daemons.home / "broken"
        broken.symlink_to(broken)
        moved = daemons.home / "moved"
        daemons.workspace.rename(moved)
        daemons.workspace.symlink_to(broken)
        wait_until(lambda: kinds(connection) == ["SOURCE_SKIPPED"])
        assert connection.status().index.revision == revision
        assert mode(connection)[0] == "DEAD"
        daemons.workspace.unlink()
        moved.rename(daemons.workspace)
        found(connection, "heron", ["memory/a.md"])
        wait_until(lambda: mode(connection)[0] == "NATIVE")
