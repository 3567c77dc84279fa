"""Edits of memory files: compared, recorded and performed."""

import os
import stat
import threading

import pytest

from memoryd_server.errors import (
    ContentChanged,
    FileBusy,
    FileNotFound,
    IndexBusy,
    InvalidRequest,
    PathNotAllowed,
    PathTaken,
    VersionNotFound,
)
from memoryd_server.system import try_lock
from memoryd_server.writing import FileDeletion, LineDeletion, LineInsertion, MoveJob, TextReplacement
from unit.writing.edit_fixture import LIMIT, SYSTEMS, EditFixture, digest

NOTE = "memory/note.md"
TEXT = b"one\ntwo\nthree\n"


@pytest.fixture(params=SYSTEMS)
def edits(request, tmp_path):
    """Edits with each set of renames that a file system can have."""
    edits = EditFixture(tmp_path, renames=SYSTEMS[request.param])
    yield edits
    edits.close()


@pytest.fixture
def plain(tmp_path):
    edits = EditFixture(tmp_path)
    yield edits
    edits.close()


def only_field(caught):
    return [violation.field for violation in caught.value.violations]


def test_every_change_is_written_and_recorded(edits):
    created = edits.write(NOTE, TEXT, caller="alice")
    assert (created.path, created.content, created.already) == (NOTE, digest(TEXT), False)
    assert (created.start_line, created.end_line) == (1, 3)
    replaced = edits.write(NOTE, TextReplacement(b"two", b"2"))
    assert (replaced.start_line, replaced.end_line) == (2, 2)
    edits.write(NOTE, LineInsertion(1, b"1.5"))
    edits.write(NOTE, LineDeletion(4, 4))
    assert edits.data(NOTE) == b"one\n1.5\n2\n"
    edits.write(NOTE, b"all new")
    moved = edits.move(NOTE, "memory/deep/er/note.md")
    assert (moved.path, moved.moved_from, moved.content) == ("memory/deep/er/note.md", NOTE, digest(b"all new"))
    deleted = edits.write("memory/deep/er/note.md", FileDeletion())
    assert (deleted.content, deleted.start_line, deleted.end_line) == (None, 0, 0)
    assert edits.files() == {}
    kinds = ["CREATE", "REPLACE_TEXT", "INSERT_LINES", "DELETE_LINES", "REPLACE_CONTENT", "MOVE", "DELETE_FILE"]
    assert edits.kinds() == kinds
    assert edits.history.unfinished() == []
    record = edits.history.get(created.version_id)
    assert (record.caller, record.before, record.after, record.after_bytes) == ("alice", None, digest(TEXT), len(TEXT))


def test_every_replaced_content_is_restored_byte_for_byte(edits):
    contents = [b"\xff\x00\r\n", b"", b"no line feed", b"a\n" * 5000]
    receipts = [edits.write(NOTE, data) for data in contents]
    for receipt, data in zip(receipts[1:], contents, strict=False):
        restored = edits.restore(receipt.version_id)
        assert edits.data(NOTE) == data
        assert restored.content == digest(data)
    edits.restore(receipts[0].version_id)
    assert edits.files() == {}
    assert edits.kinds()[len(contents) :] == ["RESTORE"] * len(contents)


def test_a_deleted_and_a_moved_file_are_restored(edits):
    edits.put(NOTE, TEXT)
    moved = edits.move(NOTE, "MEMORY.md")
    deleted = edits.write("MEMORY.md", FileDeletion())
    restored = edits.restore(deleted.version_id)
    assert edits.files() == {"MEMORY.md": TEXT}
    edits.write("MEMORY.md", b"other")
    edits.restore(moved.version_id)
    edits.restore(moved.version_id, NOTE)
    assert edits.files() == {"MEMORY.md": TEXT, NOTE: TEXT}
    edits.restore(restored.version_id)
    assert edits.files() == {NOTE: TEXT}


def test_a_restore_can_be_undone(plain):
    plain.put(NOTE, TEXT)
    first = plain.write(NOTE, b"second")
    undone = plain.restore(first.version_id)
    plain.restore(undone.version_id)
    assert plain.data(NOTE) == b"second"


def test_a_restore_of_a_missing_file_to_no_file_is_recorded_and_changes_nothing(plain):
    created = plain.write(NOTE, TEXT)
    plain.write(NOTE, FileDeletion())
    done = plain.restore(created.version_id)
    assert (done.content, plain.files()) == (None, {})
    assert plain.kinds() == ["CREATE", "DELETE_FILE", "RESTORE"]


@pytest.mark.parametrize("change", [b"new", TextReplacement(b"one", b"1"), FileDeletion()])
def test_a_file_with_another_content_is_not_changed(edits, change):
    edits.put(NOTE, TEXT)
    with pytest.raises(ContentChanged, match="other content") as caught:
        edits.write(NOTE, change, expected=digest(b"something else"))
    assert caught.value.metadata == {"path": NOTE, "content_sha256": digest(TEXT).hex()}
    with pytest.raises(PathTaken) as caught:
        edits.write(NOTE, b"new", expected=None)
    assert caught.value.metadata == {"path": NOTE, "content_sha256": digest(TEXT).hex()}
    with pytest.raises(ContentChanged):
        edits.move(NOTE, "MEMORY.md", expected=digest(b"something else"))
    assert (edits.files(), edits.kinds(), edits.history.unfinished()) == ({NOTE: TEXT}, [], [])


@pytest.mark.parametrize("path", [NOTE, "memory/no/such/note.md", "MEMORY.md", "memory/" + "n" * 300 + ".md"])
def test_a_missing_file_has_changed(plain, path):
    for write in (
        lambda: plain.write(path, b"new", expected=digest(TEXT)),
        lambda: plain.write(path, FileDeletion(), expected=digest(TEXT)),
        lambda: plain.move(path, "USER.md", expected=digest(TEXT)),
    ):
        with pytest.raises(ContentChanged, match="does not exist") as caught:
            write()
        assert caught.value.metadata == {"path": path, "content_sha256": ""}
    assert (plain.files(), plain.kinds()) == ({}, [])
    assert not (plain.workspace / "memory").exists()


def test_only_a_new_content_creates_a_file(plain):
    for change in (TextReplacement(b"a", b"b"), LineInsertion(0, b"a"), LineDeletion(1, 1), FileDeletion()):
        with pytest.raises(InvalidRequest) as caught:
            plain.write(NOTE, change, expected=None)
        assert only_field(caught) == ["expected_sha256"]
    assert (plain.files(), plain.kinds()) == ({}, [])


def test_a_change_that_does_not_fit_changes_nothing(plain):
    plain.put(NOTE, TEXT)
    with pytest.raises(InvalidRequest) as caught:
        plain.write(NOTE, TextReplacement(b"four", b""))
    assert only_field(caught) == ["replace.old_text"]
    assert (plain.files(), plain.kinds(), plain.history.unfinished()) == ({NOTE: TEXT}, [], [])


def test_a_file_does_not_become_larger_than_the_limit(plain):
    plain.write(NOTE, b"x" * LIMIT)
    with pytest.raises(InvalidRequest, match="maxFileBytes") as caught:
        plain.write(NOTE, LineInsertion(1, b"y"))
    assert only_field(caught) == ["insert.text"]
    with pytest.raises(InvalidRequest) as caught:
        plain.write("MEMORY.md", b"x" * (LIMIT + 1))
    assert only_field(caught) == ["content"]
    plain.put(NOTE, b"x" * (LIMIT + 1))
    with pytest.raises(PathNotAllowed, match="maxFileBytes"):
        plain.write(NOTE, b"short")
    assert plain.kinds() == ["CREATE"]


def test_a_write_of_the_same_content_is_recorded_and_keeps_the_file(plain):
    inode = plain.put(NOTE, TEXT).stat().st_ino
    done = plain.write(NOTE, TEXT)
    assert done.content == digest(TEXT)
    assert plain.kinds() == ["REPLACE_CONTENT"]
    assert plain.file(NOTE).stat().st_ino == inode


def test_a_move_does_not_replace_a_file(edits):
    edits.put(NOTE, TEXT)
    edits.put("MEMORY.md", b"another")
    with pytest.raises(PathTaken) as caught:
        edits.move(NOTE, "MEMORY.md")
    assert caught.value.metadata == {"path": "MEMORY.md", "content_sha256": digest(b"another").hex()}
    assert edits.files() == {NOTE: TEXT, "MEMORY.md": b"another"}
    assert edits.history.unfinished() == []


def test_a_huge_file_at_the_new_path_is_not_hashed(plain):
    plain.put(NOTE, TEXT)
    os.truncate(plain.put("MEMORY.md", b""), 1 << 40)
    with pytest.raises(PathNotAllowed, match="another file is there, and has 1099511627776 bytes"):
        plain.move(NOTE, "MEMORY.md")
    assert plain.data(NOTE) == TEXT
    assert plain.history.unfinished() == []


def test_a_move_to_its_own_path_is_refused(plain):
    plain.put(NOTE, TEXT)
    for path in (NOTE, str(plain.file(NOTE))):
        with pytest.raises(InvalidRequest) as caught:
            plain.move(NOTE, path)
        assert only_field(caught) == ["new_path"]


def test_a_move_that_changes_only_the_case_of_letters(edits):
    edits.put(NOTE, TEXT)
    edits.move(NOTE, "memory/Note.md")
    assert edits.files() == {"memory/Note.md": TEXT}


def test_two_files_whose_names_differ_in_case_are_two_files(edits):
    edits.put(NOTE, TEXT)
    edits.put("memory/Note.md", TEXT)
    with pytest.raises(PathTaken):
        edits.move(NOTE, "memory/Note.md")
    edits.file("memory/Note.md").unlink()
    os.link(edits.file(NOTE), edits.file("memory/Note.md"))
    with pytest.raises(PathTaken):
        edits.move(NOTE, "memory/Note.md")
    assert edits.files() == {NOTE: TEXT, "memory/Note.md": TEXT}


def test_a_key_is_performed_once_whatever_the_file_contains_now(edits):
    edits.put(NOTE, TEXT)
    first = edits.write(NOTE, b"second", key="k", request_sha256="r")
    edits.put(NOTE, b"by another program")
    again = edits.write(NOTE, b"second", expected=digest(TEXT), key="k", request_sha256="r")
    assert (again.version_id, again.content, again.already) == (first.version_id, first.content, True)
    assert (again.start_line, again.end_line) == (first.start_line, first.end_line)
    moved = edits.move(NOTE, "MEMORY.md", key="m", request_sha256="r")
    again = edits.editor.edit(
        MoveJob(path=NOTE, new_path="MEMORY.md", expected=digest(TEXT), key="m", request_sha256="r")
    )
    assert (again.version_id, again.moved_from, again.already) == (moved.version_id, NOTE, True)
    undone = edits.restore(first.version_id, "USER.md", key="u", request_sha256="r")
    assert edits.restore(first.version_id, "USER.md", key="u", request_sha256="r").version_id == undone.version_id
    assert edits.files() == {"MEMORY.md": b"by another program", "USER.md": TEXT}


def test_a_key_with_other_contents_is_refused(plain):
    plain.write(NOTE, TEXT, key="k", request_sha256="r")
    for write in (
        lambda: plain.write("MEMORY.md", b"x", key="k", request_sha256="s"),
        lambda: plain.move(NOTE, "MEMORY.md", key="k", request_sha256="s"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            write()
        assert only_field(caught) == ["idempotency_key"]
    assert plain.files() == {NOTE: TEXT}


def test_a_key_of_a_failed_write_can_be_used_again(plain):
    with pytest.raises(ContentChanged):
        plain.write(NOTE, TEXT, expected=digest(b"x"), key="k", request_sha256="r")
    plain.write(NOTE, TEXT, key="k", request_sha256="r")
    assert plain.files() == {NOTE: TEXT}


def test_an_unknown_version_is_not_found(plain):
    with pytest.raises(VersionNotFound, match="nowhere"):
        plain.restore("nowhere", NOTE)


def test_a_version_whose_content_was_removed_is_not_found(plain):
    plain.put(NOTE, TEXT)
    done = plain.write(NOTE, b"second")
    plain.history.forget_text(b"two")
    with pytest.raises(VersionNotFound, match="no longer has the content"):
        plain.restore(done.version_id)
    assert plain.data(NOTE) == b"second"


def test_a_missing_workspace_is_not_created(plain):
    plain.workspace.rmdir()
    for expected in (None, digest(TEXT)):
        with pytest.raises(FileNotFound, match="workspace"):
            plain.write(NOTE, TEXT, expected=expected)
    assert not plain.workspace.exists()
    assert plain.history.unfinished() == []


def test_a_locked_file_is_busy_and_the_job_can_be_repeated(edits):
    file = edits.put(NOTE, TEXT)
    with file.open("rb") as stream:
        assert try_lock(stream.fileno())
        for write in (
            lambda: edits.write(NOTE, b"new"),
            lambda: edits.write(NOTE, FileDeletion()),
            lambda: edits.move(NOTE, "MEMORY.md"),
        ):
            with pytest.raises(FileBusy):
                write()
    assert (edits.files(), edits.kinds()) == ({NOTE: TEXT}, [])
    edits.write(NOTE, b"new")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o2775])
def test_the_mode_of_the_file_is_kept(edits, mode):
    file = edits.put(NOTE, TEXT)
    file.chmod(mode)
    if not os.access(file, os.W_OK):
        pytest.skip("only root writes a file without the permission to write")
    edits.write(NOTE, b"new")
    assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_the_owner_and_the_group_are_kept(edits):
    file = edits.put(NOTE, TEXT)
    os.chown(file, 12345, 54321)
    file.chmod(0o664)
    edits.write(NOTE, b"new")
    status = file.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 54321, 0o664)


def test_extended_attributes_are_kept(edits):
    file = edits.put(NOTE, TEXT)
    try:
        os.setxattr(file, "user.origin", b"import")
        os.setxattr(file, "user.empty", b"")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    edits.write(NOTE, b"new")
    assert {name: os.getxattr(file, name) for name in os.listxattr(file) if name.startswith("user.")} == {
        "user.origin": b"import",
        "user.empty": b"",
    }


# Version 2: the owner, user 12345, the group, the mask and others; see acl(5).
ACL = bytes.fromhex("02000000 01000600ffffffff 0200040039300000 04000400ffffffff 10000600ffffffff 20000400ffffffff")
LIST = "system.posix_acl_access"


def set_acl(path, name):
    try:
        os.setxattr(path, name, ACL)
    except OSError:
        pytest.skip("this file system has no access control lists")


def test_the_access_control_list_is_kept(edits):
    file = edits.put(NOTE, TEXT)
    set_acl(file, LIST)
    edits.write(NOTE, b"new")
    assert os.getxattr(file, LIST) == ACL


def test_the_default_list_of_the_folder_is_not_given_to_a_file_without_one(edits):
    file = edits.put(NOTE, TEXT)
    file.chmod(0o600)
    set_acl(file.parent, "system.posix_acl_default")
    edits.write(NOTE, b"new")
    assert LIST not in os.listxattr(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_another_hard_link_keeps_the_old_content(edits):
    edits.put(NOTE, TEXT)
    os.link(edits.file(NOTE), edits.file("memory/other.md"))
    edits.write(NOTE, b"new")
    assert edits.files() == {NOTE: b"new", "memory/other.md": TEXT}


def test_threads_edit_one_after_another(plain):
    plain.put(NOTE, b"")
    lost = []

    def insert(name):
        for number in range(10):
            while True:
                try:
                    plain.write(NOTE, LineInsertion(0, b"%s %d" % (name, number)))
                    break
                except (ContentChanged, FileBusy):
                    continue
                except BaseException as error:  # noqa: BLE001 -- reported below
                    lost.append(error)
                    return

    threads = [threading.Thread(target=insert, args=(name,)) for name in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert lost == []
    assert sorted(plain.data(NOTE).split(b"\n")[:-1]) == sorted(
        b"%s %d" % (n, i) for n in (b"a", b"b") for i in range(10)
    )


def test_no_edit_begins_while_edits_are_paused(plain):
    with plain.editor.paused():
        edit = threading.Thread(target=plain.write, args=(NOTE, b"new\n"), daemon=True)
        edit.start()
        with pytest.raises(IndexBusy), plain.editor.paused(0.01):
            pytest.fail("two pauses at the same time")
        assert not plain.file(NOTE).exists()
    edit.join(30)
    assert plain.file(NOTE).read_bytes() == b"new\n"
