"""Only the file that was seen is deleted; one that another program has put in its place is kept."""

import contextlib
import os
import threading
from hashlib import sha256

import pytest

from memoryd_server.errors import FileReplaced, PathNotAllowed
from memoryd_server.sources.files import stat_file
from memoryd_server.sources.roots import Roots, resolve_for_append
from memoryd_server.writing.deletion import SeenFile, delete_file, restore_files

pytestmark = pytest.mark.faults

TEXT = b"the code of the door is 4711\n"


@pytest.fixture
def note(fixture):
    file = fixture.file("memory/note.md")
    file.parent.mkdir()
    file.write_bytes(TEXT)
    return file


def location(fixture):
    return resolve_for_append(Roots(str(fixture.workspace), ()), "memory/note.md")


def see(fixture, **more):
    return SeenFile(stat_file(location(fixture)), **more)


def replace(note, data):
    beside = note.with_name("beside.tmp")
    beside.write_bytes(data)
    beside.rename(note)


def names(note):
    return sorted(file.name for file in note.parent.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        lambda note: replace(note, b"other text of the same size 1\n"[: len(TEXT)]),
        lambda note: replace(note, b"a longer text than the one that was seen\n"),
        lambda note: note.write_bytes(TEXT + b"and more\n"),
        lambda note: note.write_bytes(TEXT.replace(b"4711", b"0815")),
    ],
)
def test_a_file_that_was_changed_or_replaced_since_it_was_read_is_kept(fixture, note, change):
    seen = see(fixture, content_hash=sha256(TEXT).digest())
    change(note)
    data = note.read_bytes()
    with pytest.raises(FileReplaced, match="is kept"):
        delete_file(location(fixture), seen)
    assert (names(note), note.read_bytes()) == (["note.md"], data)


@pytest.mark.parametrize("change", [lambda note: replace(note, TEXT), lambda note: os.utime(note, (0, 0)), lambda _: 0])
def test_the_same_text_is_deleted_under_any_inode_and_time(fixture, note, change):
    seen = see(fixture, content_hash=sha256(TEXT).digest())
    change(note)
    assert delete_file(location(fixture), seen)
    assert names(note) == []
    assert not delete_file(location(fixture), seen)


def test_a_file_that_may_grow_is_deleted_with_what_was_written_to_it(fixture, note):
    seen = see(fixture, may_grow=True)
    note.write_bytes(TEXT * 2)
    replace(note.rename(note.with_name("rotated.md")).with_name("note.md"), TEXT * 3)
    with pytest.raises(FileReplaced):
        delete_file(location(fixture), seen)
    note.with_name("rotated.md").rename(note)
    assert delete_file(location(fixture), seen)


@pytest.mark.parametrize("rounds", [40, pytest.param(1_000, marks=pytest.mark.slow)])
def test_no_file_that_a_racing_editor_puts_in_its_place_is_lost(fixture, note, rounds):
    start, end = threading.Barrier(2), threading.Barrier(2)
    beside = fixture.file("beside.tmp")

    def edit():
        for number in range(rounds):
            beside.write_bytes(b"version %d" % number)
            start.wait(30)
            beside.rename(note)
            end.wait(30)

    editor = threading.Thread(target=edit)
    editor.start()
    lost = []
    for number in range(rounds):
        note.write_bytes(TEXT)
        seen = see(fixture, content_hash=sha256(TEXT).digest())
        start.wait(30)
        with contextlib.suppress(FileReplaced):
            delete_file(location(fixture), seen)
        end.wait(30)
        kept = [file.read_bytes() for file in note.parent.iterdir()]
        if kept != [b"version %d" % number]:
            lost.append((number, kept))
        for file in note.parent.iterdir():
            file.unlink()
    editor.join()
    assert lost == []


def test_a_file_that_a_crash_left_under_another_name_gets_its_name_back(fixture, note):
    aside = note.rename(note.with_name(".note.md.memoryd-deleting"))
    restore_files(str(fixture.workspace), ("memory",))
    assert (names(note), note.read_bytes()) == (["note.md"], TEXT)
    note.rename(aside)
    note.write_bytes(b"newer\n")
    restore_files(str(fixture.workspace), ("memory",))
    assert {file.name: file.read_bytes() for file in note.parent.iterdir()} == {
        "note.md": b"newer\n",
        "note-2.md": TEXT,
    }
    restore_files(str(fixture.workspace), ("missing",))


def test_a_name_that_has_no_room_for_another_one_can_be_deleted(fixture, note):
    long = note.rename(note.with_name("n" * 250 + ".md"))
    place = resolve_for_append(Roots(str(fixture.workspace), ()), f"memory/{long.name}")
    assert delete_file(place, SeenFile(stat_file(place)))
    assert names(note) == []


def test_a_link_is_not_deleted(fixture, note):
    seen = see(fixture)
    target = note.rename(note.with_name("target.md"))
    note.symlink_to(target)
    with pytest.raises(PathNotAllowed):
        delete_file(location(fixture), seen)
    assert names(note) == ["note.md", "target.md"]
