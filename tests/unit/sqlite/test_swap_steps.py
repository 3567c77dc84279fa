"""`kill -9` before each step of a rebuild and its swap leaves the old index or the new one, whole, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from disks import unwritable
from index_fixture import SOUND, IndexFixture

CHILD = Path(__file__).with_name("rebuilding_child.py")
TESTS = Path(__file__).parents[2]
OLD, NEW = "heron", "kestrel"
KNOWN = {"main.sqlite", "main.sqlite-wal", "main.sqlite-shm", "main.sqlite.lock"}
LEAST_STEPS = 8


@pytest.fixture
def outcomes(tmp_path):
    """The desks that rebuilds leave which die before their first step, their second, and so on, in that order."""
    beginning = IndexFixture(tmp_path / "beginning")
    beginning.write("memory/a.md", OLD)
    beginning.write("memory/b.md", "always there")
    revision = beginning.open().sync().revision
    beginning.close()
    desks = []

    def made(*more_steps):
        command = [sys.executable, CHILD, tmp_path / "beginning", tmp_path / "outcomes", *more_steps]
        path = f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert done.returncode == 0, done.stderr
        desks.extend(IndexFixture(Path(line)) for line in done.stdout.splitlines())
        assert len(desks) >= LEAST_STEPS, "the steps are no longer those of a swap"
        return desks

    made.revision = revision
    yield made
    for index in desks:
        index.close()


def check_whole(index, before):
    """Answers from one index alone, and goes on from there. Returns which one it was."""
    index.open()
    found = OLD if index.found(OLD) else NEW
    assert index.found(found) == ["memory/a.md"]
    assert index.found(NEW if found == OLD else OLD) == []
    assert index.found("always") == ["memory/b.md"]
    assert index.integrity() == SOUND
    assert set(index.file_names()) <= KNOWN
    assert index.store.degradations() == ()
    assert index.revision() >= before
    index.sync()
    assert index.found(NEW) == ["memory/a.md"]
    assert index.revision() > before
    index.close()
    return found


def test_a_kill_before_each_step_leaves_one_whole_index(outcomes):
    seen = [check_whole(index, outcomes.revision) for index in outcomes()]
    turn = seen.index(NEW)
    assert seen == [OLD] * turn + [NEW] * (len(seen) - turn), "once the new index was there, the old one came back"
    assert turn


@pytest.mark.slow
@pytest.mark.parametrize("again", [(1,), (2,), (3, 1), (5, 4)])
def test_more_crashes_while_recovering_from_the_first_do_no_more_harm(outcomes, again):
    for index in outcomes(*again):
        check_whole(index, outcomes.revision)


@pytest.mark.slow
def test_the_index_after_each_crash_can_be_read_read_only(outcomes):
    for index in outcomes():
        with unwritable(index.path.parent):
            index.open()
            assert "cannot be written" in index.store.degradations()[-1].reason
            assert {tuple(index.found(OLD)), tuple(index.found(NEW))} == {(), ("memory/a.md",)}
            index.close()
        index.open().sync()
        assert index.found(NEW) == ["memory/a.md"]
        index.close()
