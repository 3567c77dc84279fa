"""The gateway example of every language does its turn against a real daemon."""

import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from certificates import needs_openssl
from clients.languages import LANGUAGES
from clients.runner import REPOSITORY
from daemon_process import environment

pytestmark = [needs_openssl, pytest.mark.clients]

QUESTION = "which crane was repaired?"
FILES = {
    "MEMORY.md": "# Lasting\n\nIlse is the harbour master.\n",
    "memory/cranes.md": "# Cranes\n\nThe crane of pier seven was repaired.\n",
}


def examples():
    return [pytest.param(each, id=each.name, marks=each.marks) for each in LANGUAGES if each.example]


def log_of_today(daemon):
    """Today's log; on a machine where midnight comes between, yesterday's."""
    days = [datetime.now(UTC) - timedelta(days=ago) for ago in (0, 1)]
    names = [daemon.workspace / "memory" / f"{day:%Y-%m-%d}.md" for day in days]
    return next((name.read_text("utf-8") for name in names if name.exists()), "")


@pytest.mark.parametrize("language", examples())
@pytest.mark.parametrize("over", ["unix", "tls"])
def test_an_example_turn_searches_appends_and_reports(language, over, daemons, tmp_path):
    daemon = daemons()
    daemon.reset(FILES, {})
    values = daemon.values()
    secured = {"MEMORYD_TOKEN_FILE": values["token_file"], "MEMORYD_TLS_CA": values["ca_file"]}
    found = {"unix": {"MEMORYD_ADDRESS": values["unix"]}, "tls": {"MEMORYD_ADDRESS": values["tcp"], **secured}}[over]
    command = [*language.or_skip().example, QUESTION]
    for _ in range(2):
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=environment(tmp_path) | found,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert "memory/cranes.md" in done.stdout
        # No terminal, so no bar is drawn over another.
        assert "\r" not in done.stdout.replace("\r\n", "\n")
        assert "\x1b" not in done.stdout
    assert len(log_of_today(daemon).splitlines()) >= 2, "a turn appends a line"


@pytest.mark.parametrize("language", examples())
def test_on_a_terminal_the_bar_is_drawn_in_place(language, daemons, tmp_path):
    daemon = daemons()
    daemon.reset(FILES, {})
    terminal, theirs = pty.openpty()
    surroundings = environment(tmp_path) | {
        "MEMORYD_ADDRESS": daemon.values()["unix"],
        "TERM": "xterm",
        "COLUMNS": "80",
    }
    process = subprocess.Popen(
        [*language.or_skip().example, QUESTION],
        cwd=REPOSITORY,
        env=surroundings,
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        # Reading ends with an error when the other side is closed.
        while part := os.read(terminal, 65_536):
            shown += part
    except OSError:
        pass
    os.close(terminal)
    assert process.wait(60) == 0, shown
    assert b"\r" in shown.replace(b"\r\n", b""), shown


@pytest.mark.slow
@pytest.mark.parametrize("language", examples())
def test_an_example_without_a_daemon_reports_it_and_fails(language, tmp_path):
    surroundings = environment(tmp_path) | {"MEMORYD_ADDRESS": f"unix:{tmp_path}/none.sock"}
    done = subprocess.run(
        [*language.or_skip().example, QUESTION],
        cwd=REPOSITORY,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "UNAVAILABLE" in (done.stdout + done.stderr).upper()
