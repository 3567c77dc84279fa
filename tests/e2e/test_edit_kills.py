"""An edit killed at each of its calls: the file has the old or the new content, and nothing else is left.

The killed process uses `Editor` and the real history directly: the daemon adds no step to them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unit.writing import failing_editor
from unit.writing.edit_fixture import SYSTEMS, EditFixture, digest
from unit.writing.failing_editor import NEW, NOTE, SCENARIOS, TEXT

pytestmark = pytest.mark.faults

REPOSITORY_TESTS = Path(__file__).parents[1]
OTHER = {"memory/other.md": b"other\n"}
BEFORE = {NOTE: TEXT, **OTHER}
INSERTED = TEXT.replace(b"one\n", b"one\ninserted\n", 1)
AFTER = {
    "create": {NEW: b"made\n" * 50, **BEFORE},
    "replace": {NOTE: INSERTED, **OTHER},
    "delete": OTHER,
    "move": {NEW: TEXT, **OTHER},
    "restore": {NOTE: b"before all\n", **OTHER},
}
# Every call that the edit makes at least.
CALLS = {
    "create": {"begin", "mkdir", "open", "write", "fsync", "link", "unlink", "finish"},
    "replace": {"begin", "open", "write", "fchmod", "fsync", "renameat2", "unlink", "finish"},
    "delete": {"begin", "open", "rename", "unlink", "fsync", "finish"},
    "move": {"begin", "mkdir", "open", "renameat2", "fsync", "finish"},
    "restore": {"begin", "open", "write", "fchmod", "fsync", "renameat2", "unlink", "finish"},
}
# A process that is killed on a file system without a single step for an edit leaves both names, or an empty file.
UNTIL_RECOVERY = {
    ("move", "links only"): [{NOTE: TEXT, NEW: TEXT, **OTHER}],
    ("move", "no links"): [],
    ("move", "plain renames only"): [{NOTE: TEXT, NEW: b"", **OTHER}],
    ("create", "plain renames only"): [{NEW: b"", **BEFORE}],
}


def outcomes(folder, scenario, system="all", fault="kill"):
    folder.mkdir()
    order = json.dumps({"scenario": scenario, "system": system, "fault": fault})
    command = [sys.executable, failing_editor.__file__, str(folder), order]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY_TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def memory(files):
    """Return the files that are memory: others are temporary."""
    return {path: data for path, data in files.items() if path.endswith(".md")}


def check(outcome, scenario, *, system, recover):
    """Check the files as the dead process left them, then what the next editor makes of them."""
    after = AFTER[scenario]
    edits = EditFixture(Path(outcome["folder"]), renames=SYSTEMS[system])
    allowed = [BEFORE, after, *UNTIL_RECOVERY.get((scenario, system), [])]
    assert memory(edits.files()) in allowed, outcome
    if recover:
        edits.editor.recover()
        found = edits.files()
        assert found in (BEFORE, after), outcome
        assert edits.history.unfinished() == []
        record = edits.history.with_key("k")
        assert (record is not None) == (found == after), outcome
        # What the write replaced can be restored.
        if record is not None and record.before is not None:
            assert edits.history.content(record.before) == TEXT
        assert edits.editor.issues() == ()
    # The client repeats its request, with the hash that it had seen.
    expected = None if scenario == "create" else digest(TEXT)
    request = SCENARIOS[scenario]
    receipt = request(Repeating(edits, expected))
    assert edits.files() == after, outcome
    assert receipt.version_id == edits.history.with_key("k").version_id
    assert edits.history.unfinished() == []
    assert edits.kinds()[1:] == [edits.history.get(receipt.version_id).kind.value], outcome
    assert request(Repeating(edits, expected)).already
    edits.close()


class Repeating:
    """The fixture's edits with the hash of the first attempt."""

    def __init__(self, edits, expected):
        self.history = edits.history
        self._edits = edits
        self._expected = expected

    def write(self, path, change, **more):
        return self._edits.write(path, change, expected=self._expected, **more)

    def move(self, path, new_path, **more):
        return self._edits.move(path, new_path, expected=self._expected, **more)

    def restore(self, version_id, **more):
        return self._edits.restore(version_id, expected=self._expected, **more)


@pytest.mark.parametrize("scenario", ["replace", "move", "delete", "create", "restore"])
def test_a_killed_edit_leaves_the_old_or_the_new_content(tmp_path, scenario):
    found = outcomes(tmp_path / "kills", scenario)
    assert {outcome["call"] for outcome in found} >= CALLS[scenario]
    for number, outcome in enumerate(found):
        check(outcome, scenario, system="all", recover=number % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("system", [system for system in SYSTEMS if system != "all"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_killed_edit_is_settled_where_a_step_is_missing(tmp_path, scenario, system):
    found = outcomes(tmp_path / "kills", scenario, system)
    assert len(found) > 8
    for number, outcome in enumerate(found):
        check(outcome, scenario, system=system, recover=number % 2 == 1)


@pytest.mark.all_kills
@pytest.mark.parametrize("recover", [True, False])
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_state_is_settled_at_the_start_and_before_the_next_edit(tmp_path, scenario, system, recover):
    for outcome in outcomes(tmp_path / "kills", scenario, system):
        check(outcome, scenario, system=system, recover=recover)
