"""Edits while disks, permissions and the history fail, or other programs change the same files."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from disks import fill_up, small_disk, unwritable
from memoryd_server.errors import (
    ContentChanged,
    DiskFull,
    FileBusy,
    FileNotFound,
    HistoryUnavailable,
    MemorydError,
    PathNotAllowed,
    WorkspaceReadOnly,
)
from memoryd_server.sources import Roots
from memoryd_server.system import try_lock
from memoryd_server.writing import AppendJob, FileDeletion, LineInsertion, NewContent
from memoryd_server.writing.append import Appender
from unit.writing import failing_editor
from unit.writing.edit_fixture import LIMIT, NOW_MS, SYSTEMS, EditFixture, digest, replace_file
from unit.writing.failing_editor import NEW, NOTE, SCENARIOS, TEXT

pytestmark = pytest.mark.faults

TESTS = Path(__file__).parents[2]


@pytest.fixture
def edits(tmp_path):
    edits = EditFixture(tmp_path)
    edits.put(NOTE, TEXT)
    yield edits
    edits.close()


def unchanged(edits):
    return (edits.files(), edits.kinds(), edits.history.unfinished()) == ({NOTE: TEXT}, [], [])


WRITES = {
    "create": lambda edits: edits.write(NEW, b"x" * 50_000),
    "replace": lambda edits: edits.write(NOTE, b"x" * 50_000),
    "delete": lambda edits: edits.write(NOTE, FileDeletion()),
    "move": lambda edits: edits.move(NOTE, NEW),
}


# Each call of an edit fails once.


def failed(folder, scenario, system, number):
    folder.mkdir()
    order = json.dumps({"scenario": scenario, "system": system, "fault": number})
    done = subprocess.run(
        [sys.executable, failing_editor.__file__, str(folder), order],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


MARKS = {name: [pytest.mark.slow, pytest.mark.all_kills] for name in SYSTEMS}
MARKS["plain renames only"] = [pytest.mark.slow]
ERRORS = {errno.ENOSPC: "DiskFull", errno.EACCES: "WorkspaceReadOnly", errno.EIO: "OSError"}


@pytest.mark.parametrize(
    ("scenario", "system", "number"),
    [
        ("replace", "all", errno.ENOSPC),
        ("move", "links only", errno.ENOSPC),
        ("create", "all", errno.EACCES),
        ("delete", "all", errno.EIO),
        *(
            pytest.param(scenario, system, errno.ENOSPC, marks=marks)
            for scenario in SCENARIOS
            for system, marks in MARKS.items()
        ),
    ],
)
def test_a_call_that_fails_leaves_the_file_as_it_was_or_the_edit_done(tmp_path, scenario, system, number):
    outcomes = failed(tmp_path / "faults", scenario, system, number)
    *failures, complete = outcomes
    assert complete["error"] == ""
    assert {outcome["error"] for outcome in failures} >= {ERRORS[number]}
    before = EditFixture(Path(outcomes[0]["folder"]).parent / "base").files()
    after = EditFixture(Path(complete["folder"])).files()
    assert before != after
    for outcome in failures:
        edits = EditFixture(Path(outcome["folder"]))
        found = edits.files()
        # A call that removes the temporary file itself can fail.
        if outcome["call"] == "unlink":
            found = {path: data for path, data in found.items() if not path.endswith(".memoryd-edit")}
        assert found in (before, after), outcome
        assert found == after or outcome["error"] in {ERRORS[number], "HistoryUnavailable"}, outcome
        assert edits.history.unfinished() == []
        assert (edits.history.with_key("k") is not None) == (found == after), outcome
        edits.close()


# Disks and permissions.


@pytest.mark.parametrize("write", ["replace", "create"])
def test_a_full_disk_changes_nothing_and_an_edit_succeeds_when_there_is_room(tmp_path, write):
    with small_disk(tmp_path / "workspace", 256) as disk:
        edits = EditFixture(tmp_path)
        edits.put(NOTE, TEXT)
        ballast = fill_up(disk)
        with pytest.raises(DiskFull):
            WRITES[write](edits)
        ballast.unlink()
        assert unchanged(edits)
        WRITES[write](edits)
        edits.close()


def test_a_full_disk_of_the_history_changes_nothing(tmp_path):
    with small_disk(tmp_path / "state", 256) as disk:
        edits = EditFixture(tmp_path)
        edits.put(NOTE, TEXT)
        edits.write(NOTE, TEXT + b"x")
        ballast = fill_up(disk)
        with pytest.raises((DiskFull, HistoryUnavailable)):
            edits.write(NOTE, os.urandom(100_000))
        assert edits.files() == {NOTE: TEXT + b"x"}
        ballast.unlink()
        edits.write(NOTE, b"new")
        assert edits.kinds() == ["REPLACE_CONTENT"] * 2
        edits.close()


@pytest.mark.parametrize("write", WRITES)
def test_a_read_only_file_system_is_reported(tmp_path, write):
    edits = EditFixture(tmp_path)
    edits.put(NOTE, TEXT)
    with unwritable(tmp_path / "workspace"), pytest.raises(WorkspaceReadOnly) as caught:
        WRITES[write](edits)
    assert caught.value.metadata["path"] in {NOTE, NEW}
    assert unchanged(edits)
    edits.close()


def test_a_limit_on_the_size_of_files_is_reported(edits):
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    edits.write("memory/first.md", b"opens the history")
    change = NewContent(b"x" * 900_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, most[1]))
    try:
        with pytest.raises(DiskFull, match="RLIMIT_FSIZE"):
            edits.write(NOTE, change)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert edits.files() == {NOTE: TEXT, "memory/first.md": b"opens the history"}
    assert edits.history.unfinished() == []


def test_a_file_that_is_a_mount_point_is_refused(edits, tmp_path):
    other = tmp_path / "other.md"
    other.write_bytes(TEXT)
    mounted = subprocess.run(["mount", "--bind", other, edits.file(NOTE)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting takes root: {mounted.stderr.strip()}")
    try:
        for write in ("replace", "delete", "move"):
            with pytest.raises(WorkspaceReadOnly, match="mount point"):
                WRITES[write](edits)
        assert unchanged(edits)
    finally:
        subprocess.run(["umount", "-l", edits.file(NOTE)], check=True)


def test_a_move_to_another_file_system_is_refused(edits):
    with small_disk(edits.workspace / "memory" / "b", 256):
        with pytest.raises(MemorydError, match="another file system"):
            edits.move(NOTE, NEW)
        assert unchanged(edits)


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from unit.writing.edit_fixture import EditFixture
from memoryd_server.errors import MemorydError
from memoryd_server.writing import FileDeletion
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
edits = EditFixture(Path(sys.argv[1]))
for write in (
    lambda: edits.write("MEMORY.md", b"new"),
    lambda: edits.write("MEMORY.md", FileDeletion()),
    lambda: edits.move("MEMORY.md", "USER.md"),
):
    try:
        print(write().content)
    except MemorydError as error:
        print(type(error).__name__, error.message)
print(sorted(edits.files()), edits.history.unfinished())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize(
    ("mode", "words"), [(0o666, ["the owner, the group"]), (0o644, ["make the workspace writable"] * 3)]
)
def test_a_file_of_another_user_is_refused(mode, words):
    """A file that all may write cannot keep its owner; one that only its owner may write is not touched at all."""
    folder = Path(tempfile.mkdtemp())
    try:
        for each in (folder, folder / "workspace", folder / "state", folder / "state" / "memory"):
            each.mkdir(exist_ok=True)
            each.chmod(0o777)
        file = folder / "workspace" / "MEMORY.md"
        file.write_bytes(TEXT)
        file.chmod(mode)
        done = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        for line, expected in zip(lines, words, strict=False):
            assert line.startswith("WorkspaceReadOnly")
            assert expected in line
        if len(words) > 1:
            assert lines[-1] == "['MEMORY.md'] []"
            assert file.read_bytes() == TEXT
    finally:
        shutil.rmtree(folder)


# Other programs that save between two steps.


@dataclass
class BusyRenames:
    """Renames during which another program acts: `before` and `after` the exchange, or the rename to a free name."""

    inner: object
    before: object = field(default=lambda: None)
    after: object = field(default=lambda: None)

    def exchange(self, *arguments):
        return self._act(self.inner.exchange, arguments)

    def to_free_name(self, *arguments):
        return self._act(self.inner.to_free_name, arguments)

    def link(self, *arguments):
        return self._act(self.inner.link, arguments)

    def _act(self, rename, arguments):
        before, self.before = self.before, lambda: None
        before()
        done = rename(*arguments)
        if done:
            after, self.after = self.after, lambda: None
            after()
        return done


def in_place(edits):
    with edits.file(NOTE).open("r+b") as stream:
        stream.write(b"SAVED")


def by_rename(edits):
    replace_file(edits.file(NOTE), b"SAVED" + TEXT[5:])


def by_link(edits):
    edits.file(NOTE).unlink()
    edits.file(NOTE).symlink_to("/etc/passwd")


SAVES = {"in place": in_place, "by rename": by_rename, "removed": lambda edits: edits.file(NOTE).unlink()}
SAVED = {"in place": {NOTE: b"SAVED" + TEXT[5:]}, "by rename": {NOTE: b"SAVED" + TEXT[5:]}, "removed": {}}


@pytest.fixture
def busy(tmp_path, request):
    edits = EditFixture(tmp_path, renames=BusyRenames(SYSTEMS[getattr(request, "param", "all")]))
    edits.put(NOTE, TEXT)
    yield edits
    edits.close()


@pytest.mark.parametrize("write", ["replace", "move"])
@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("busy", SYSTEMS, indirect=True)
def test_a_save_before_the_rename_is_kept_and_the_edit_fails(busy, write, save):
    busy.renames.before = lambda: SAVES[save](busy)
    with pytest.raises(ContentChanged) as caught:
        WRITES[write](busy)
    now = SAVED[save].get(NOTE)
    assert busy.files() == SAVED[save]
    assert caught.value.metadata == {"path": NOTE, "content_sha256": digest(now).hex() if now else ""}
    assert (busy.kinds(), busy.history.unfinished()) == ([], [])


@pytest.mark.parametrize("write", ["replace", "move"])
def test_a_link_in_place_of_the_file_is_put_back_and_not_followed(busy, write):
    busy.renames.before = lambda: by_link(busy)
    with pytest.raises(PathNotAllowed):
        WRITES[write](busy)
    assert busy.file(NOTE).is_symlink()
    assert [file.name for file in busy.file(NOTE).parent.iterdir()] == [busy.file(NOTE).name]
    assert busy.history.unfinished() == []


def test_a_file_that_appears_at_the_new_path_is_kept(busy):
    busy.renames.before = lambda: busy.put(NEW, b"just created")
    with pytest.raises(ContentChanged) as caught:
        busy.move(NOTE, NEW)
    assert caught.value.metadata["path"] == NEW
    busy.file(NEW).unlink()
    busy.renames.before = lambda: busy.put(NEW, b"just created")
    with pytest.raises(ContentChanged) as caught:
        busy.write(NEW, b"mine")
    assert caught.value.metadata == {"path": NEW, "content_sha256": digest(b"just created").hex()}
    assert busy.files() == {NOTE: TEXT, NEW: b"just created"}
    assert (busy.kinds(), busy.history.unfinished()) == ([], [])


@pytest.mark.parametrize("write", ["replace", "move"])
def test_a_folder_that_is_moved_away_during_the_edit_is_not_changed(busy, write):
    folder = busy.file(NOTE).parent
    busy.renames.after = lambda: folder.rename(folder.with_name("moved"))
    with pytest.raises(ContentChanged) as caught:
        WRITES[write](busy)
    assert caught.value.metadata == {"path": NOTE, "content_sha256": ""}
    assert busy.files() == {"memory/moved/note.md": TEXT}
    assert (busy.kinds(), busy.history.unfinished()) == ([], [])


@pytest.mark.parametrize("write", ["replace", "move"])
def test_a_folder_that_becomes_a_link_during_the_edit_is_not_followed(busy, write, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "note.md").write_bytes(TEXT)
    folder = busy.file(NOTE).parent

    def swap():
        folder.rename(folder.with_name("moved"))
        folder.symlink_to(outside)

    busy.renames.after = swap
    with pytest.raises(PathNotAllowed):
        WRITES[write](busy)
    assert [file.name for file in outside.iterdir()] == ["note.md"]
    assert (outside / "note.md").read_bytes() == TEXT
    assert (busy.workspace / "memory" / "moved" / "note.md").read_bytes() == TEXT


def test_two_saves_around_the_exchange_are_both_kept(busy):
    """The second one is the file of this path when the first one gets its place back."""
    busy.renames.before = lambda: in_place(busy)

    def save_again():
        with busy.file(NOTE).open("ab") as stream:
            stream.write(b"second\n")

    busy.renames.after = save_again
    with pytest.raises(ContentChanged):
        busy.write(NOTE, LineInsertion(0, b"mine"))
    assert busy.files() == {NOTE: b"SAVED" + TEXT[5:], "memory/a/note-2.md": b"mine\n" + TEXT + b"second\n"}


def test_a_write_through_an_old_descriptor_right_after_the_exchange_is_kept(busy):
    """The program closes the file within 50 ms."""
    stream = busy.file(NOTE).open("ab")

    def save():
        stream.write(b"late\n")
        stream.close()

    busy.renames.after = save
    with pytest.raises(ContentChanged):
        busy.write(NOTE, b"new")
    assert busy.files() == {NOTE: TEXT + b"late\n"}


def test_no_append_begins_between_the_exchange_and_the_comparison(busy):
    """The exchange may be undone, and the appended text would be lost with the new file."""
    found = []

    def append():
        try:
            Appender(Roots(str(busy.workspace)), str(busy.ledger)).append(AppendJob("appended", path=NOTE))
        except FileBusy as error:
            found.append(error)

    busy.renames.after = append
    busy.write(NOTE, b"new")
    assert len(found) == 1
    assert busy.files() == {NOTE: b"new"}


def test_a_program_that_keeps_the_file_open_does_not_block_an_edit(edits):
    with edits.file(NOTE).open("rb"):
        edits.write(NOTE, b"new")
    assert edits.files() == {NOTE: b"new"}


# The history fails.


@dataclass
class FailingHistory:
    """A history of which some methods fail."""

    inner: object
    failing: set = field(default_factory=set)

    def __getattr__(self, name):
        if name in self.failing:
            raise HistoryUnavailable(f"{name} fails")
        return getattr(self.inner, name)


@pytest.fixture
def unsure(tmp_path):
    edits = EditFixture(tmp_path, wrap=FailingHistory)
    edits.put(NOTE, TEXT)
    yield edits
    edits.close()


@pytest.mark.parametrize("method", ["begin", "unfinished", "with_key"])
@pytest.mark.parametrize("write", WRITES)
def test_without_its_record_no_edit_is_made(unsure, write, method):
    unsure.history.failing = {method}
    if method == "with_key":
        with pytest.raises(HistoryUnavailable):
            unsure.write(NOTE, b"new", key="k", request_sha256="r")
    else:
        with pytest.raises(HistoryUnavailable):
            WRITES[write](unsure)
    unsure.history.failing = set()
    assert unchanged(unsure)


@pytest.mark.parametrize("write", WRITES)
def test_an_edit_whose_end_is_not_recorded_is_done_and_recorded_before_the_next_one(unsure, write):
    unsure.history.failing = {"finish"}
    WRITES[write](unsure)
    assert len(unsure.history.unfinished()) == 1
    with pytest.raises(HistoryUnavailable):
        WRITES["replace"](unsure) if write == "replace" else unsure.write(
            NEW if write in {"move", "create"} else NOTE, b"again"
        )
    unsure.history.failing = set()
    unsure.write("memory/other.md", b"another file")
    assert unsure.history.unfinished() == []
    assert len(unsure.kinds()) == 2


def test_a_failed_edit_whose_record_stays_is_cancelled_before_the_next_one(unsure):
    unsure.renames = BusyRenames(SYSTEMS["all"], before=lambda: in_place(unsure))
    unsure.open()
    unsure.history.failing = {"cancel"}
    with pytest.raises(ContentChanged):
        unsure.write(NOTE, b"new", key="k", request_sha256="r")
    unsure.history.failing = set()
    unsure.put(NOTE, TEXT)
    unsure.editor.recover()
    assert unchanged(unsure)


# Recovery.


def interrupted(edits, draft=None, **fields):
    """Leave a write that was begun, and the temporary file of it."""
    from memoryd_server.store import WriteKind, WriteRecord  # noqa: PLC0415 -- only this helper writes records

    before, after = fields.pop("before", TEXT), fields.pop("after", b"new\n")
    record = WriteRecord(
        **{
            "version_id": "v1", "path": NOTE, "kind": WriteKind.REPLACE_CONTENT, "time_ms": NOW_MS, "caller": "",
            "before": digest(before), "before_bytes": len(before or b""), "after": digest(after),
            "after_bytes": len(after or b""), "key": "k", "request_sha256": "r", "draft": ".x.memoryd-edit", **fields,
        }
    )  # fmt: skip
    edits.history.begin(record, before, after)
    if draft is not None:
        edits.file(record.path).with_name(record.draft).write_bytes(draft)
    return record


def test_a_file_that_was_edited_after_the_crash_stays_and_the_old_content_is_kept(edits):
    """It is unknown whether the write was in effect, so its key is not answered."""
    interrupted(edits)
    edits.put(NOTE, b"edited by hand\n")
    edits.editor.recover()
    assert edits.files() == {NOTE: b"edited by hand\n"}
    (record,) = edits.history.records("", older_than=None, limit=10)
    with pytest.raises(ContentChanged):
        edits.write(NOTE, b"new\n", expected=digest(TEXT), key="k", request_sha256="r")
    edits.restore(record.version_id)
    assert edits.files() == {NOTE: TEXT}


@pytest.mark.parametrize(
    ("now", "draft", "files", "kept"),
    [
        # Killed before the exchange: with a part of the draft, and all of it.
        (TEXT, b"ne", {NOTE: TEXT}, False),
        (TEXT, b"garbage after a power failure", {NOTE: TEXT}, False),
        (b"edited\n", b"new\n", {NOTE: b"edited\n"}, False),
        (b"edited\n", b"ne", {NOTE: b"edited\n"}, False),
        # Killed after it, with and without a save before it or after it.
        (b"new\n", TEXT, {NOTE: b"new\n"}, True),
        (b"edited\n", TEXT, {NOTE: b"edited\n"}, True),
        (b"new\n", b"saved before\n", {NOTE: b"saved before\n"}, False),
        (b"edited\n", b"saved before\n", {NOTE: b"edited\n", "memory/a/note-2.md": b"saved before\n"}, True),
        (None, TEXT, {}, True),
    ],
)
def test_every_state_of_an_interrupted_write_is_settled(edits, now, draft, files, kept):
    interrupted(edits, draft)
    edits.file(NOTE).unlink() if now is None else edits.put(NOTE, now)
    edits.editor.recover()
    assert edits.files() == files
    assert (edits.history.with_key("k") is not None) == kept
    assert (edits.history.unfinished(), edits.editor.issues()) == ([], ())


def test_a_deletion_that_took_away_another_save_is_undone(edits):
    interrupted(edits, b"saved before\n", after=None)
    edits.file(NOTE).unlink()
    edits.editor.recover()
    assert edits.files() == {NOTE: b"saved before\n"}
    assert edits.history.with_key("k") is None


def test_a_locked_file_is_settled_later(edits):
    interrupted(edits, b"new\n")
    with edits.file(NOTE).open("rb") as stream:
        assert try_lock(stream.fileno())
        edits.editor.recover()
        (issue,) = edits.editor.issues()
        assert "locked by another program" in issue
        with pytest.raises(FileBusy):
            edits.write(NOTE, b"other\n")
        with pytest.raises(FileBusy):
            edits.write(NOTE, b"new\n", key="k", request_sha256="r")
        edits.write("memory/other.md", b"another file")
    edits.write(NOTE, b"other\n", expected=digest(TEXT))
    assert edits.files() == {NOTE: b"other\n", "memory/other.md": b"another file"}
    assert (edits.history.unfinished(), edits.editor.issues()) == ([], ())


def test_a_missing_workspace_keeps_the_record(edits):
    interrupted(edits)
    edits.workspace.rename(edits.workspace.with_name("away"))
    edits.editor.recover()
    assert len(edits.history.unfinished()) == 1
    assert "does not exist" in edits.editor.issues()[0]
    with pytest.raises(FileNotFound):
        edits.write(NOTE, b"x", expected=digest(TEXT))
    edits.workspace.with_name("away").rename(edits.workspace)
    edits.editor.recover()
    assert unchanged(edits)


def test_recovery_raises_nothing_if_the_history_fails(unsure):
    unsure.history.failing = {"unfinished"}
    unsure.editor.recover()


def test_an_edit_never_takes_more_than_the_limit_into_memory(edits):
    edits.put(NOTE, b"x" * (LIMIT + 1))
    interrupted(edits)
    edits.editor.recover()
    assert edits.history.unfinished() == []
