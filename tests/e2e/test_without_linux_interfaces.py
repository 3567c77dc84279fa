"""The daemon without the interfaces that only Linux has, as on macOS: inotify, leases, `os.waitid` and others.

This does not replace tests on macOS. It shows that the daemon does not need these interfaces to start and to work.
"""

import sys

import pytest

from daemon_process import end, start
from waiting import wait_until

# Python's own modules are imported before sys.platform changes: for macOS they have files that this system lacks.
WITHOUT_LINUX = """
import fcntl, os, socket, sys
import zoneinfo, watchdog.observers
sys.modules["watchdog.observers.inotify_c"] = None
import memoryd_server.app.daemon, memoryd_server.cli.main, memoryd_server.cli.serve
sys.platform = "darwin"
missing = {
    os: ("O_PATH", "pidfd_open", "sched_getaffinity", "waitid"),
    fcntl: ("F_GETLEASE", "F_SETLEASE", "F_SETSIG"),
    socket: ("SOCK_CLOEXEC", "SO_PEERCRED"),
}
for module, names in missing.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
memoryd_server.cli.main.main()
"""


@pytest.mark.slow
def test_the_daemon_works_without_the_interfaces_that_only_linux_has(tmp_path):
    workspace, state = tmp_path / "workspace", tmp_path / "state"
    notes = workspace / "memory"
    notes.mkdir(parents=True)
    state.mkdir(mode=0o700)
    (state / "memoryd.json5").write_text("{memoryd: {watcher: {pollSeconds: 0.2}}}", "utf-8")
    served = start(workspace, state, home=tmp_path, memoryd=(sys.executable, "-c", WITHOUT_LINUX))
    try:
        assert "polling (inotify cannot be used: this system has no inotify)" in served.memoryd("status").stdout
        (notes / "birds.md").write_text("A heron nests in the reeds.\n", "utf-8")
        wait_until(lambda: "memory/birds.md" in served.memoryd("search", "heron").stdout, pause=0.5)
        assert "Appended: memory/" in served.memoryd("append", "Kingfishers nest in the bank.").stdout
        assert "Kingfishers nest" in served.memoryd("search", "kingfishers").stdout
    finally:
        code = end(served.process)
    assert code == 0
