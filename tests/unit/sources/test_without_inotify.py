"""On a system without inotify, such as macOS, watchdog's module for it cannot be imported."""

import subprocess
import sys

IMPORT_DAEMON = """
import sys
import watchdog.observers
sys.modules["watchdog.observers.inotify_c"] = None
import memoryd_server.app.daemon
import memoryd_server.cli.doctor_checks
from memoryd_server.sources import open_inotify
sys.platform = "darwin"
try:
    open_inotify()
except OSError as error:
    print(error.strerror)
"""


def test_the_daemon_is_imported_without_inotify_and_reports_that_it_is_missing():
    command = [sys.executable, "-W", "error", "-c", IMPORT_DAEMON]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "this system has no inotify\n"
