"""An import that is killed leaves whole files only, and the repeated import completes it."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memoryd_server.imports.note import parse_stored
from unit.imports.importing_child import COUNT, run

CHILD = Path(__file__).parent / "importing_child.py"
TESTS = Path(__file__).parents[2]


def kill_after(lines, workspace, sessions, messages):
    """Run an import in a process, and kill the process after it has imported the given number of conversations."""
    command = [sys.executable, CHILD, workspace, sessions, str(messages)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as child:
        for _ in range(lines):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_killed_import_is_completed_by_the_next_one(tmp_path, seed):
    places = [(tmp_path / name / "w", tmp_path / name / "s") for name in ("killed", "whole")]
    for workspace, _ in places:
        workspace.mkdir(parents=True)
    chance = random.Random(seed)
    # First, the notes and transcripts are new; then they grow.
    for messages in (4, 6):
        kill_after(chance.randrange(1, 2 * COUNT), *places[0], messages)
        for path in places[0][0].rglob("*.md"):
            assert not parse_stored(path.name, path.read_bytes()).is_edited
        notes, sessions = run(*places[0], messages)
        assert not notes.conflicts
        assert not sessions.conflicts
        run(*places[1], messages)
        assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
