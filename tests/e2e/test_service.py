"""`memoryd service` with a real user manager of systemd, in namespaces of the test's own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daemon_process import COMMAND, environment, memoryd
from e2e.namespaces import require

SYSTEMD = Path("/lib/systemd/systemd")
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")
PROGRAM = Path(sys.prefix) / "bin" / "memoryd"

# The manager needs a folder for sockets, and refuses to run if systemd did not start the system.
SCRIPT = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
/lib/systemd/systemd --user > "$HOME/systemd.log" 2>&1 &
manager=$!
for _ in $(seq 100); do test -S "$XDG_RUNTIME_DIR/systemd/private" && break; sleep 0.1; done
set +e
"""


@pytest.fixture
def under_systemd(tmp_path):
    """Run shell commands with a user manager of systemd, which ends with them."""
    if not SYSTEMD.exists() or shutil.which("systemctl") is None:
        pytest.skip("systemd is missing: `apt install systemd` installs it")
    require(NAMESPACES)
    home = tmp_path / "home"
    home.mkdir()

    def run(script):
        env = {**environment(home), "XDG_RUNTIME_DIR": "/run/user/memoryd-test", "M": str(PROGRAM)}
        done = subprocess.run(
            [*NAMESPACES, "bash", "-c", SCRIPT + script],
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        log = home / "systemd.log"
        return done, done.stdout + done.stderr + (log.read_text("utf-8") if log.exists() else "")

    return home, run


@pytest.mark.slow
def test_the_service_is_installed_started_found_and_removed(under_systemd):
    home, run = under_systemd
    (home / "notes").mkdir()
    (home / "notes" / "a.md").write_text("# Heron\n\nThe heron nests by the weir.\n", "utf-8")
    done, shown = run("""
        "$M" init "$HOME/notes" --json > "$HOME/init.json" || exit 11
        "$M" service install || exit 12
        "$M" service status --json > "$HOME/status.json" || exit 13
        "$M" search heron > "$HOME/search.txt" || exit 14
        systemctl --user show memoryd.service --property=MainPID,Type,NRestarts > "$HOME/show.txt"
        "$M" service install || exit 15
        env -u XDG_RUNTIME_DIR "$M" service uninstall 2> "$HOME/unreachable.txt" && exit 19
        test -e "$HOME/.config/systemd/user/memoryd.service" || exit 20
        "$M" service uninstall || exit 16
        "$M" service status > "$HOME/after.txt" && exit 17
        "$M" reload; test $? -eq 5 || exit 18
        kill $manager
    """)
    assert done.returncode == 0, shown
    unit = home / ".config" / "systemd" / "user" / "memoryd.service"
    status = json.loads((home / "status.json").read_text("utf-8"))
    assert status == {
        "manager": "systemd",
        "definition": str(unit),
        "installed": True,
        "starts_at_login": True,
        "active": True,
        "reachable": True,
        "detail": "active",
    }
    assert "a.md:1-" in (home / "search.txt").read_text("utf-8")
    shown = (home / "show.txt").read_text("utf-8")
    assert "Type=notify" in shown
    assert "MainPID=0" not in shown
    assert "the service cannot be stopped: " in (home / "unreachable.txt").read_text("utf-8")
    assert "Running          no" in (home / "after.txt").read_text("utf-8")
    assert not unit.exists()


@pytest.mark.slow
def test_a_daemon_that_does_not_start_is_reported_with_its_log(under_systemd):
    home, run = under_systemd
    (home / ".openclaw").mkdir()
    (home / ".openclaw" / "memoryd.json5").write_text("{memoryd: {listen: ['unix:/proc/x.sock']}}", "utf-8")
    done, shown = run("""
        "$M" service install; code=$?
        systemctl --user show memoryd.service --property=ActiveState,UnitFileState > "$HOME/show.txt"
        kill $manager; exit $code
    """)
    assert done.returncode == 2, shown
    # It is not started again and again.
    assert "UnitFileState=disabled" in (home / "show.txt").read_text("utf-8")
    assert "ActiveState=activating" not in (home / "show.txt").read_text("utf-8")
    assert "`systemctl --user restart memoryd.service` failed" in done.stderr
    assert "see journalctl --user --unit memoryd.service" in done.stderr


def test_without_a_user_manager_the_error_says_what_to_do(tmp_path):
    done = memoryd("service", "install", home=tmp_path)
    assert done.returncode == 2
    assert "`memoryd serve`" in done.stderr
    assert not (tmp_path / ".config").exists()
    written = memoryd("service", "install", "--no-start", home=tmp_path)
    assert written.returncode == 0
    assert memoryd("service", "status", home=tmp_path).returncode == 1
    assert "Removed" in memoryd("service", "uninstall", home=tmp_path).stdout


def test_variables_are_written_as_the_service_needs_them_or_named(tmp_path):
    variables = {"MEMORYD_STATE_DIR": "rel", "MEMORYD_CONFIRM_ABOVE_TOKENS": "10", "MEMORYD_TLS_CA": "/ca.pem"}
    done = subprocess.run(
        [*COMMAND, "service", "install", "--no-start"],
        env={**environment(tmp_path), **variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    unit = (tmp_path / ".config/systemd/user/memoryd.service").read_text("utf-8")
    assert f'Environment="MEMORYD_STATE_DIR={tmp_path}/rel"' in unit
    assert done.stderr == (
        "memoryd: the service does not get MEMORYD_CONFIRM_ABOVE_TOKENS of this shell; write the setting to "
        "memoryd.json5\n"
    )


def test_keys_that_only_this_shell_has_are_named(tmp_path):
    (tmp_path / ".openclaw").mkdir()
    (tmp_path / ".openclaw" / "memoryd.json5").write_text("{memory: {search: {provider: 'openai'}}}", "utf-8")
    done = subprocess.run(
        [*COMMAND, "service", "install", "--no-start"],
        env={**environment(tmp_path), "OPENAI_API_KEY": "sk-of-this-test"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    expected = f"the service does not see OPENAI_API_KEY of this shell; write it to {tmp_path}/.openclaw/.env"
    assert expected in done.stderr
    assert "sk-of-this-test" not in done.stderr + done.stdout
    assert "sk-of-this-test" not in (tmp_path / ".config/systemd/user/memoryd.service").read_text("utf-8")
