"""Paths that lead out of the workspace, given to every edit: nothing outside is read, written, moved or deleted."""

import contextlib
import itertools
import os
import stat
import subprocess
import threading
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.errors import ContentChanged, FileBusy, FileNotFound, FileReplaced, MemorydError, PathNotAllowed
from memoryd_server.renames import Renames
from memoryd_server.writing import FileDeletion, LineInsertion, MoveJob, NewContent, RestoreJob, WriteJob
from properties import examples
from unit.writing.edit_fixture import EditFixture, digest

pytestmark = pytest.mark.attacks

SECRET = b"the otter hides the key under the boathouse\n"
OWN = b"the heron nests by the weir\n"

# OUT is a folder outside, as an absolute path.
SPELLINGS = [
    "../outside/note.md", "memory/../../outside/note.md", "OUT/note.md", "/OUT/note.md", "memory//OUT/note.md",
    "memory/./../../outside/note.md", "./memory/a.md", "memory/a.md/", "memory/a.md/.", "memory/../MEMORY.md", "..",
    ".", "/", "", "memory", "memory/", "memory/a", "MEMORY.MD", "Memory/a.md", "README.md", "DREAMS.md", "dreams.md",
    "memory/.openclaw-repair/a.md", "memory/a.md\0", "memory/\0/a.md", "OUT/note.md\0memory/a.md", "\0",
    "memory/\ud800.md", "memory/..\\..\\outside\\note.md", "memory\\..\\note.md", "memory/" + "../" * 900 + "a.md",
    "memory/" + "d/" * 70 + "a.md", "/dev/zero", "/proc/self/environ", "~/note.md", "file:OUT/note.md",
    ".id1.memoryd-edit", "memory/.note.md.memoryd-deleting",
]  # fmt: skip
LINKS = [
    "memory/link.md", "memory/linked/note.md", "memory/linked/new.md", "memory/broken.md", "memory/device.md",
    "memory/pipe.md", "memory/folder.md", "memory/socket.md", "memory/loop.md", "memory/loop/a.md",
    "memory/real/up/a.md", "memory/a.md/b.md", "USER.md",
]  # fmt: skip


@pytest.fixture
def edits(tmp_path):
    """Edits of a workspace with every way out of it."""
    edits = EditFixture(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("note.md", "a.md"):
        (outside / name).write_bytes(SECRET)
    edits.put("memory/a.md", OWN)
    memory = edits.file("memory")
    (memory / "real").mkdir()
    (memory / "link.md").symlink_to(outside / "note.md")
    (memory / "linked").symlink_to(outside)
    (memory / "broken.md").symlink_to(outside / "made.md")
    (memory / "device.md").symlink_to("/dev/zero")
    os.mkfifo(memory / "pipe.md")
    os.mknod(memory / "socket.md", stat.S_IFSOCK | 0o600)
    (memory / "folder.md").mkdir()
    (memory / "loop").symlink_to("loop")
    (memory / "loop.md").symlink_to("loop.md")
    (memory / "real" / "up").symlink_to("../../..")
    edits.file("USER.md").symlink_to(outside / "note.md")
    yield edits
    edits.close()


def state(edits):
    """Return every file and link, except those of the history, which is opened when it is first read."""
    found = {}
    for folder, folders, files in os.walk(edits.folder):
        if folder.startswith(str(edits.folder / "state")):
            continue
        for name in [*folders, *files]:
            path = os.path.join(folder, name)  # noqa: PTH118 -- thousands of names
            status = os.lstat(path)
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(path))  # noqa: PTH115
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as stream:  # noqa: PTH123
                    content = stream.read()
            found[path] = (stat.S_IFMT(status.st_mode), content)
    return found


def jobs(path, expected):
    yield WriteJob(path=path, expected=None, change=NewContent(b"overwritten"))
    for change in (NewContent(b"overwritten"), LineInsertion(0, b"overwritten"), FileDeletion()):
        yield WriteJob(path=path, expected=expected, change=change)
    yield MoveJob(path=path, new_path="memory/stolen.md", expected=expected)
    yield MoveJob(path="memory/a.md", new_path=path, expected=digest(OWN))
    # An empty path is that of the version.
    for each in (expected, None) if path else ():
        yield RestoreJob(version_id="base", path=path, expected=each)


@pytest.mark.parametrize("path", [*SPELLINGS, *LINKS])
def test_no_edit_of_a_path_that_leads_outside_changes_anything(edits, path):
    made = edits.write("memory/base.md", b"base")
    edits.write("memory/base.md", FileDeletion())
    before = state(edits)
    path = path.replace("OUT", str(edits.folder / "outside"))
    for job in jobs(path, digest(SECRET)):
        if isinstance(job, RestoreJob):
            job = RestoreJob(version_id=made.version_id, path=path, expected=job.expected)  # noqa: PLW2901
        with pytest.raises((PathNotAllowed, ContentChanged)) as caught:
            edits.editor.edit(job)
        assert sha256(SECRET).hexdigest() not in str(caught.value.metadata)
        # A link is refused, whatever the caller expects; only a file in place of a folder is a missing file.
        assert isinstance(caught.value, PathNotAllowed), job
    assert state(edits) == before
    assert edits.history.unfinished() == []


def test_a_pipe_does_not_block_an_edit(edits):
    done = threading.Event()

    def edit():
        with contextlib.suppress(PathNotAllowed):
            edits.write("memory/pipe.md", b"x", expected=digest(b""))
        done.set()

    threading.Thread(target=edit, daemon=True).start()
    assert done.wait(30)


@pytest.mark.parametrize("length", [255, 252, 236, 200])
def test_the_longest_names_can_be_written_moved_and_deleted(edits, length):
    path = "memory/" + "n" * (length - 3) + ".md"
    other = "memory/" + "m" * (length - 3) + ".md"
    edits.write(path, b"one")
    edits.write(path, b"two")
    edits.move(path, other)
    deleted = edits.write(other, FileDeletion())
    edits.restore(deleted.version_id)
    assert edits.data(other) == b"two"


def test_a_name_that_is_too_long_is_refused(edits):
    for path in ("memory/" + "n" * 253 + ".md", "memory/" + "語" * 85 + ".md", "memory/" + "d" * 256 + "/a.md"):
        with pytest.raises((PathNotAllowed, FileNotFound)):
            edits.write(path, b"x", expected=None)
        with pytest.raises((PathNotAllowed, FileNotFound)):
            edits.move("memory/a.md", path)
    assert edits.data("memory/a.md") == OWN
    assert edits.history.unfinished() == []


FRAGMENTS = [
    "..", ".", "", "memory", "MEMORY.md", "a.md", "real", "link", "link.md", "linked", "up", "outside", "note.md",
    "\0", "..\\note.md", "日記.md", "\udcff.md", "x" * 300, "pipe.md", "folder.md", "loop", "new.md",
]  # fmt: skip


def test_any_path_gives_a_file_inside_or_an_error(tmp_path_factory):
    """The paths are those of `resolve_for_append`; here they are performed."""
    edits = EditFixture(tmp_path_factory.mktemp("paths"))
    outside = edits.folder / "outside"
    outside.mkdir()
    (outside / "note.md").write_bytes(SECRET)
    edits.put("memory/a.md", OWN)
    edits.file("memory/linked").symlink_to(outside)
    edits.file("memory/link.md").symlink_to(outside / "note.md")

    @settings(max_examples=examples(300), deadline=None)
    @given(
        path=st.lists(st.sampled_from(FRAGMENTS), max_size=5).map("/".join),
        start=st.sampled_from(["", "memory/", f"{edits.folder}/", f"{edits.workspace}/", f"{edits.workspace}/memory/"]),
    )
    def check(path, start):
        with contextlib.suppress(MemorydError):
            edits.editor.edit(WriteJob(path=start + path, expected=None, change=NewContent(b"made")))
        with contextlib.suppress(MemorydError):
            edits.editor.edit(MoveJob(path="memory/a.md", new_path=start + path, expected=digest(OWN)))
            edits.editor.edit(MoveJob(path=start + path, new_path="memory/a.md", expected=digest(OWN)))
        assert {file.name: file.read_bytes() for file in outside.iterdir()} == {"note.md": SECRET}
        assert {file.name for file in edits.folder.iterdir()} == {"workspace", "state", "outside"}
        assert {file.name for file in edits.workspace.iterdir()} <= {"memory", "MEMORY.md"}

    check()
    edits.close()


@contextlib.contextmanager
def swapping(folder, outside):
    """Exchange a folder and a link to one outside all the time, in a thread; yield how often, as a list."""
    done, rounds = threading.Event(), []
    link = folder.with_name(f"{folder.name}-link")
    link.symlink_to(outside)
    above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    if not Renames().exchange(above, folder.name, link.name):
        pytest.skip("names cannot be exchanged here")
    Renames().exchange(above, folder.name, link.name)

    def run():
        while not done.is_set():
            Renames().exchange(above, folder.name, link.name)
            Renames().exchange(above, folder.name, link.name)
            rounds.append(1)
            # Some edits find the folder in its place all the time.
            done.wait(0.002)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield rounds
    finally:
        done.set()
        thread.join()
        os.close(above)


@pytest.mark.parametrize("calls", [60, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", ["memory", "memory/deep"])
def test_a_folder_that_is_swapped_for_a_link_during_an_edit_is_not_followed(tmp_path, part, calls):
    edits = EditFixture(tmp_path)
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("note.md", "deep/note.md"):
        (outside / name).write_bytes(SECRET)
    beyond = {str(file): file.read_bytes() for file in outside.rglob("*") if file.is_file()}
    edits.put("memory/deep/note.md", OWN)
    outcomes, content, path = set(), OWN, "memory/deep/note.md"
    with swapping(edits.workspace / part, outside) as rounds:
        for number in itertools.count():
            # Both states are met: otherwise nothing was tried.
            if number >= calls and {"done", "PathNotAllowed"} <= outcomes:
                break
            changed = b"%d " % number + OWN
            for expected in (digest(content), digest(SECRET)):
                try:
                    edits.editor.edit(WriteJob(path=path, expected=expected, change=NewContent(changed)))
                    outcomes.add("done")
                    assert expected == digest(content)
                    content = changed
                except (PathNotAllowed, ContentChanged, FileReplaced, FileBusy, FileNotFound) as error:
                    outcomes.add(type(error).__name__)
    assert rounds
    assert {str(file): file.read_bytes() for file in outside.rglob("*") if file.is_file()} == beyond
    edits.editor.recover()
    kept = [file for file in (edits.workspace / "memory").rglob("*") if file.is_file()]
    assert [(file.name, file.read_bytes()) for file in kept] == [("note.md", content)]
    assert edits.history.unfinished() == []
    edits.close()


def test_the_folder_of_a_file_can_be_a_mount_point(edits):
    folder = edits.file("memory/mounted")
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting takes root: {done.stderr.strip()}")
    try:
        edits.write("memory/mounted/a.md", b"one")
        edits.write("memory/mounted/a.md", b"two")
        edits.write("memory/mounted/a.md", FileDeletion())
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
