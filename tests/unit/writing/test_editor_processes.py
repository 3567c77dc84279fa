"""Processes that append to one file and edit it at the same time: no acknowledged text is lost."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from editors import SAVES
from memoryd_server.errors import ContentChanged, FileBusy, InvalidRequest
from memoryd_server.writing import LineInsertion
from unit.writing import competing_child
from unit.writing.competing_child import NOTE
from unit.writing.edit_fixture import EditFixture

pytestmark = pytest.mark.faults

TESTS = Path(__file__).parents[2]


def run(folder, roles, count):
    """Run one process per role, and return the lines that were acknowledged, and the processes' fixtures."""
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    processes = {}
    for number, role in enumerate(roles):
        name = f"{role}{number}"
        command = [sys.executable, competing_child.__file__, str(folder), role, name, str(count)]
        processes[name] = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    lines = []
    for process in processes.values():
        output, _ = process.communicate(timeout=110)
        assert process.returncode == 0
        lines += output.splitlines()
    return lines, [EditFixture(folder, agent=name) for name in processes]


@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_each_acknowledged_append_and_edit_is_in_the_file_once(tmp_path, count):
    start = EditFixture(tmp_path)
    start.put(NOTE, b"# Notes\n")
    acknowledged, agents = run(tmp_path, ["append", "append", "insert", "insert"], count)
    lines = start.file(NOTE).read_text().splitlines()
    assert len(acknowledged) == 4 * count
    assert sorted(line for line in lines if line and line != "# Notes") == sorted(acknowledged)
    assert list(start.files()) == [NOTE]
    for agent in agents:
        assert agent.history.unfinished() == []
        agent.close()


@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_what_is_deleted_and_moved_in_between_is_in_a_file_or_in_the_history(tmp_path, count):
    start = EditFixture(tmp_path)
    start.put(NOTE, b"# Notes\n")
    acknowledged, agents = run(tmp_path, ["append", "insert", "append", "churn"], count)
    kept = list(start.files().values())
    for agent in agents:
        assert agent.history.unfinished() == []
        records = agent.history.records("", older_than=None, limit=1000)
        kept += [agent.history.content(record.before) for record in records if record.before is not None]
        agent.close()
    text = b"".join(kept)
    assert [line for line in acknowledged if line.encode() not in text] == []
    assert [path for path in start.files() if not path.endswith(".md")] == []


@pytest.mark.parametrize("count", [12, pytest.param(150, marks=pytest.mark.slow)])
def test_an_append_while_the_file_is_moved_leaves_one_copy_of_the_text(tmp_path, count):
    start = EditFixture(tmp_path)
    start.put(NOTE, b"# Notes\n")
    acknowledged, agents = run(tmp_path, ["append", "append", "shuffle"], count)
    text = b"\n".join(start.files().values()).decode().splitlines()
    assert sorted(line for line in text if line and line != "# Notes") == sorted(acknowledged)
    for agent in agents:
        agent.close()


MOVED_BEFORE_THE_LOCK = """
import os, sys
from pathlib import Path
from unit.writing.competing_child import NOTE
from unit.writing.edit_fixture import EditFixture
from unit.writing.patient import PatientAppender
edits = EditFixture(Path(sys.argv[1]))
note, moved = edits.file(NOTE), edits.file("memory/moved.md")

def move(event, arguments):
    if event == "fcntl.flock" and not moved.exists() and os.path.samestat(os.fstat(arguments[0]), note.stat()):
        note.rename(moved)

sys.addaudithook(move)
PatientAppender(edits.workspace, edits.ledger).append("appended", path=NOTE)
"""


def test_an_append_to_a_file_that_is_moved_before_its_lock_leaves_the_moved_file_unchanged(tmp_path):
    edits = EditFixture(tmp_path)
    edits.put(NOTE, b"# Notes\n")
    command = [sys.executable, "-c", MOVED_BEFORE_THE_LOCK, str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(TESTS)}, timeout=60, check=False)
    assert done.returncode == 0
    assert edits.files() == {"memory/moved.md": b"# Notes\n", NOTE: b"appended\n"}


WRITTEN_AFTER_THE_COMPARISON = """
import fcntl, sys
from pathlib import Path
from memoryd_server.errors import ContentChanged
from unit.writing.competing_child import NOTE
from unit.writing.edit_fixture import EditFixture
edits = EditFixture(Path(sys.argv[1]))
stream, attempts = edits.file(NOTE).open("ab"), []

def write(event, arguments):
    if event == "fcntl.fcntl" and arguments[1] == fcntl.F_SETLEASE and arguments[2] == fcntl.F_WRLCK:
        attempts.append(arguments)
        if len(attempts) == 2:
            stream.write(b"late\\n")
            stream.close()

sys.addaudithook(write)
try:
    edits.write(NOTE, b"new")
except ContentChanged:
    sys.exit(7)
"""


def test_a_write_through_an_old_descriptor_within_milliseconds_is_kept(tmp_path):
    edits = EditFixture(tmp_path)
    edits.put(NOTE, b"# Notes\n")
    command = [sys.executable, "-c", WRITTEN_AFTER_THE_COMPARISON, str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(TESTS)}, timeout=60, check=False)
    # `ContentChanged`.
    assert done.returncode == 7
    assert edits.files() == {NOTE: b"# Notes\nlate\n"}


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("save", SAVES)
def test_no_text_that_an_editor_saves_during_an_edit_is_lost(tmp_path, save, rounds):
    edits = EditFixture(tmp_path)
    note = edits.put(NOTE, b"")
    start, end = threading.Barrier(2), threading.Barrier(2)

    def save_each_round():
        for number in range(rounds):
            start.wait(60)
            save(note, f"saved {number}\n")
            end.wait(60)

    editor = threading.Thread(target=save_each_round)
    editor.start()
    lost = []
    for number in range(rounds):
        note.write_bytes(b"before\n" * 10)
        start.wait(60)
        # The file is missing for a moment if an editor renames it to a backup.
        with contextlib.suppress(ContentChanged, FileBusy, FileNotFoundError, InvalidRequest):
            edits.write(NOTE, LineInsertion(0, b"edited"))
        end.wait(60)
        # Emacs leaves a backup.
        found = {path: data for path, data in edits.files().items() if not path.endswith("~")}
        if f"saved {number}\n".encode() not in found.get(NOTE, b"") or len(found) != 1:
            lost.append((number, found))
        for path in set(found) - {NOTE}:
            edits.file(path).unlink()
    editor.join()
    edits.close()
    assert lost == []
