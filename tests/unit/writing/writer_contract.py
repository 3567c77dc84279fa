"""The contract of every `MemoryWriter`. A test module has a subclass of `WriterContract` for its writer."""

import threading

import pytest

from memoryd_server.errors import (
    ContentChanged,
    FileReplaced,
    IndexBusy,
    InvalidRequest,
    PathNotAllowed,
    PathTaken,
    VersionNotFound,
)
from memoryd_server.store import WriteKind
from memoryd_server.writing import FileDeletion, LineDeletion, LineInsertion, SeenFile, TextReplacement
from unit.writing.written_memory import LIMIT, NOW_MS, digest

NOTE = "memory/note.md"
OUTSIDE = ["notes.md", "memory/a.txt", "../memory/a.md", "memory/../MEMORY.md", "memory/a\0.md", "", "DREAMS.md"]
OUTSIDE += [".memoryignore", "memory/.openclaw-repair/a.md", "memory//a.md", "/etc/passwd.md"]


def violation(caught):
    ((found),) = caught.value.violations
    return found.field, found.description


class WriterContract:
    """A subclass has a fixture `memory`, a `WrittenMemory` without files."""

    @pytest.mark.parametrize(
        ("before", "heading", "written", "lines"),
        [
            (None, "", b"text\n", (1, 1)),
            (None, "Title", b"## Title\n\ntext\n", (1, 3)),
            (b"one", "", b"one\ntext\n", (2, 2)),
            (b"one\n", "", b"one\ntext\n", (2, 2)),
            (b"one", "Title", b"one\n\n## Title\n\ntext\n", (3, 5)),
            (b"one\n\n", "Title", b"one\n\n## Title\n\ntext\n", (3, 5)),
            (b"one\r\n", "Title", b"one\r\n\n## Title\n\ntext\n", (3, 5)),
            (b"one\r\n\r\n", "Title", b"one\r\n\r\n## Title\n\ntext\n", (3, 5)),
            (b"", "Title", b"## Title\n\ntext\n", (1, 3)),
            (b"\n", "Title", b"\n## Title\n\ntext\n", (2, 4)),
            (b"\xff\x00", "", b"\xff\x00\ntext\n", (2, 2)),
        ],
    )
    def test_an_append_begins_on_a_line_of_its_own(self, memory, before, heading, written, lines):
        if before is not None:
            memory.write(NOTE, before)
        receipt = memory.append("text", heading=heading)
        assert (receipt.path, receipt.start_line, receipt.end_line) == (NOTE, *lines)
        assert not receipt.already_appended
        assert memory.files() == {NOTE: written}

    def test_appends_are_not_in_the_history(self, memory):
        memory.append("text")
        assert memory.records() == []

    def test_a_text_of_several_lines_keeps_its_bytes(self, memory):
        text = "ünï\r\n\u2028two\n\n\0end"
        assert (memory.append(text).end_line, memory.append("three\n\n").start_line) == (4, 5)
        assert memory.data(NOTE) == text.encode() + b"\nthree\n\n"

    def test_a_key_writes_once(self, memory):
        first = memory.append("text", idempotency_key="k")
        memory.append("more")
        again = memory.append("text", idempotency_key="k")
        assert (again.path, again.start_line, again.already_appended) == (NOTE, first.start_line, True)
        assert memory.data(NOTE) == b"text\nmore\n"
        memory.append("text", idempotency_key="other")
        memory.append("text")
        assert memory.data(NOTE) == b"text\nmore\ntext\ntext\n"

    def test_a_key_is_for_one_text_and_path(self, memory):
        memory.append("text", idempotency_key="k")
        for change in ({"text": "other"}, {"path": "MEMORY.md"}, {"heading": "Title"}):
            with pytest.raises(InvalidRequest) as caught:
                memory.append(**{"text": "text", "idempotency_key": "k", **change})
            assert violation(caught)[0] == "idempotency_key"
        assert memory.files() == {NOTE: b"text\n"}

    def test_a_key_of_an_append_is_remembered_after_a_restart_and_a_deletion(self, memory):
        memory.append("text", idempotency_key="k")
        memory.close()
        memory.open()
        assert memory.append("text", idempotency_key="k").already_appended
        memory.write(NOTE, FileDeletion())
        assert memory.append("text", idempotency_key="k").already_appended
        assert memory.files() == {}

    def test_the_path_in_a_request_of_today_can_change(self, memory):
        memory.append("text", path="memory/2026-01-01.md", requested_path="", idempotency_key="k")
        again = memory.append("text", path="memory/2026-01-02.md", requested_path="", idempotency_key="k")
        assert (again.path, again.already_appended) == ("memory/2026-01-01.md", True)

    @pytest.mark.parametrize("path", OUTSIDE)
    def test_a_path_that_is_no_memory_is_refused(self, memory, path):
        for write in (
            lambda: memory.append("text", path=path),
            lambda: memory.write(path, b"text", expected=None),
            lambda: memory.move(NOTE, path, expected=digest(b"text")),
            lambda: memory.writer.create(path, b"text"),
        ):
            memory.write(NOTE, b"text")
            with pytest.raises(PathNotAllowed):
                write()
            assert memory.files() == {NOTE: b"text"}
        assert {record.kind for record, _ in memory.records()} == {WriteKind.CREATE, WriteKind.REPLACE_CONTENT}

    def test_every_change_is_written_and_recorded(self, memory):
        created = memory.write(NOTE, b"one\ntwo\nthree\n", caller="alice")
        assert (created.path, created.content, created.already) == (NOTE, digest(b"one\ntwo\nthree\n"), False)
        assert (created.start_line, created.end_line) == (1, 3)
        replaced = memory.write(NOTE, TextReplacement(b"two", b"2"))
        assert (replaced.start_line, replaced.end_line) == (2, 2)
        memory.write(NOTE, LineInsertion(1, b"1.5"))
        memory.write(NOTE, LineDeletion(4, 4))
        assert memory.data(NOTE) == b"one\n1.5\n2\n"
        memory.write(NOTE, b"all new")
        moved = memory.move(NOTE, "memory/deep/er/note.md")
        assert (moved.path, moved.moved_from, moved.content) == ("memory/deep/er/note.md", NOTE, digest(b"all new"))
        deleted = memory.write("memory/deep/er/note.md", FileDeletion())
        assert (deleted.content, deleted.start_line, deleted.end_line) == (None, 0, 0)
        assert memory.files() == {}
        kinds = ["CREATE", "REPLACE_TEXT", "INSERT_LINES", "DELETE_LINES", "REPLACE_CONTENT", "MOVE", "DELETE_FILE"]
        records = memory.records("memory/deep/er/note.md")
        assert [record.kind.value for record, _ in records] == kinds
        assert [before for _, before in records] == [
            None,
            b"one\ntwo\nthree\n",
            b"one\n2\nthree\n",
            b"one\n1.5\n2\nthree\n",
            b"one\n1.5\n2\n",
            b"all new",
            b"all new",
        ]
        first = records[0][0]
        assert (first.caller, first.time_ms, first.version_id) == ("alice", NOW_MS, created.version_id)
        assert memory.history.unfinished() == []
        assert memory.writer.issues() == ()

    def test_only_the_expected_content_is_changed(self, memory):
        with pytest.raises(ContentChanged) as caught:
            memory.write(NOTE, TextReplacement(b"a", b"b"), expected=digest(b"a"))
        assert caught.value.metadata["content_sha256"] == ""
        memory.write(NOTE, b"now")
        for change in (b"new", FileDeletion(), LineDeletion(1, 1)):
            with pytest.raises(ContentChanged) as caught:
                memory.write(NOTE, change, expected=digest(b"before"))
            assert caught.value.metadata["content_sha256"] == digest(b"now").hex()
        with pytest.raises(PathTaken) as caught:
            memory.write(NOTE, b"new", expected=None)
        assert caught.value.metadata["content_sha256"] == digest(b"now").hex()
        with pytest.raises(ContentChanged):
            memory.move(NOTE, "MEMORY.md", expected=digest(b"before"))
        assert (memory.files(), len(memory.records())) == ({NOTE: b"now"}, 1)

    def test_a_change_without_content_needs_a_file(self, memory):
        with pytest.raises(InvalidRequest) as caught:
            memory.write(NOTE, FileDeletion(), expected=None)
        assert violation(caught)[0] == "expected_sha256"

    def test_a_write_of_the_same_content_is_recorded(self, memory):
        memory.write(NOTE, b"same")
        before = memory.corpus.stat([memory.corpus.resolve(NOTE)])
        assert memory.write(NOTE, b"same").content == digest(b"same")
        assert memory.corpus.stat([memory.corpus.resolve(NOTE)]) == before
        assert len(memory.records()) == 2

    def test_a_request_with_a_key_is_performed_once(self, memory):
        request = {"key": "k", "request_sha256": "r", "expected": None}
        first = memory.write(NOTE, b"text", **request)
        memory.write(NOTE, b"later")
        again = memory.write(NOTE, b"text", **request)
        assert (again.version_id, again.already) == (first.version_id, True)
        with pytest.raises(InvalidRequest) as caught:
            memory.write(NOTE, b"other", **{**request, "request_sha256": "s"})
        assert violation(caught)[0] == "idempotency_key"
        # Keys of appends are others.
        assert not memory.append("text", idempotency_key="k").already_appended
        assert memory.data(NOTE) == b"later\ntext\n"

    @pytest.mark.parametrize("keyed", [{"key": "k", "request_sha256": "r"}, {}])
    def test_a_key_survives_a_restart(self, memory, keyed):
        memory.write(NOTE, b"text", expected=None, **keyed)
        memory.close()
        memory.open()
        if keyed:
            assert memory.write(NOTE, b"text", expected=None, **keyed).already
        else:
            with pytest.raises(PathTaken):
                memory.write(NOTE, b"text", expected=None)

    def test_a_move_overwrites_nothing(self, memory):
        memory.write(NOTE, b"one")
        memory.write("memory/taken.md", b"two")
        with pytest.raises(PathTaken) as caught:
            memory.move(NOTE, "memory/taken.md")
        assert caught.value.metadata == {"path": "memory/taken.md", "content_sha256": digest(b"two").hex()}
        with pytest.raises(InvalidRequest) as caught:
            memory.move(NOTE, NOTE)
        assert violation(caught)[0] == "new_path"
        with pytest.raises(ContentChanged):
            memory.move("memory/missing.md", "memory/free.md", expected=digest(b""))
        assert memory.files() == {NOTE: b"one", "memory/taken.md": b"two"}

    def test_names_that_differ_in_case_are_two_files(self, memory):
        memory.write("memory/a.md", b"small")
        memory.write("memory/A.md", b"large")
        with pytest.raises(PathTaken):
            memory.move("memory/a.md", "memory/A.md")
        assert memory.files() == {"memory/a.md": b"small", "memory/A.md": b"large"}

    def test_every_content_is_restored_byte_for_byte(self, memory):
        contents = [b"\xff\x00\r\n", b"", b"a" * LIMIT, "ünï\u2028\n".encode()]
        for content in contents:
            memory.write(NOTE, content)
        memory.write(NOTE, FileDeletion())
        for record, before in memory.records():
            restored = memory.restore(record.version_id)
            assert (memory.data(NOTE), restored.content) == (before, digest(before))
        assert memory.restore(memory.records()[2][0].version_id, "memory/copy.md").path == "memory/copy.md"
        assert memory.data("memory/copy.md") == contents[1]
        assert memory.records()[-1][0].kind is WriteKind.RESTORE

    def test_a_version_that_is_not_stored_is_not_restored(self, memory):
        memory.write(NOTE, b"one")
        version = memory.write(NOTE, b"two").version_id
        with pytest.raises(VersionNotFound, match="no write"):
            memory.restore("missing", NOTE)
        memory.history.forget_text(b"one")
        with pytest.raises(VersionNotFound, match="no longer"):
            memory.restore(version)
        assert memory.data(NOTE) == b"two"

    def test_a_file_has_at_most_the_configured_size(self, memory):
        memory.write(NOTE, b"x" * LIMIT)
        for change, field in (
            (b"x" * (LIMIT + 1), "content"),
            (LineInsertion(0, b"y"), "insert.text"),
            (TextReplacement(b"x" * LIMIT, b"y" * (LIMIT + 1)), "replace.new_text"),
        ):
            with pytest.raises(InvalidRequest) as caught:
                memory.write(NOTE, change)
            assert violation(caught)[0] == field
            assert "maxFileBytes" in violation(caught)[1]
        memory.put("memory/large.md", b"x" * (LIMIT + 1))
        with pytest.raises(PathNotAllowed, match="maxFileBytes"):
            memory.write("memory/large.md", FileDeletion())

    @pytest.mark.parametrize("change", [LineDeletion(2, 2), LineInsertion(5, b"x"), TextReplacement(b"none", b"x")])
    def test_a_change_that_cannot_be_applied_changes_nothing(self, memory, change):
        memory.write(NOTE, b"one\n")
        with pytest.raises(InvalidRequest):
            memory.write(NOTE, change)
        assert (memory.files(), len(memory.records())) == ({NOTE: b"one\n"}, 1)

    def test_no_path_is_that_of_a_file_and_of_a_folder(self, memory):
        memory.write("memory/a.md/b.md", b"inner")
        memory.write("memory/c.md", b"file")
        for path in ("memory/a.md", "memory/c.md/d.md", "memory/c.md/d/e.md"):
            for write in (
                lambda path=path: memory.append("text", path=path),
                lambda path=path: memory.write(path, b"text", expected=None),
                lambda path=path: memory.move("memory/c.md", path),
                lambda path=path: memory.restore(memory.records()[0][0].version_id, path, expected=None),
            ):
                with pytest.raises(PathNotAllowed):
                    write()
        assert memory.files() == {"memory/a.md/b.md": b"inner", "memory/c.md": b"file"}

    def test_a_name_longer_than_those_of_file_systems_is_refused(self, memory):
        memory.write(f"memory/{'ü' * 126}.md", b"text")
        with pytest.raises(PathNotAllowed, match="longer"):
            memory.write(f"memory/{'ü' * 127}.md", b"text", expected=None)

    def test_a_file_is_created_once_and_is_not_in_the_history(self, memory):
        assert memory.writer.create("memory/archive.md", b"one")
        assert not memory.writer.create("memory/archive.md", b"two")
        assert (memory.files(), memory.records()) == ({"memory/archive.md": b"one"}, [])

    def test_only_the_file_that_was_seen_is_deleted(self, memory):
        place = memory.corpus.resolve(NOTE)
        memory.write(NOTE, b"one")
        data, stat = memory.corpus.read(place, LIMIT)
        memory.write(NOTE, b"two")
        memory.writer.prepare_deletion(place)
        with pytest.raises(FileReplaced, match="kept"):
            memory.writer.delete(place, SeenFile(stat, digest(data)))
        assert memory.data(NOTE) == b"two"
        memory.write(NOTE, b"one")
        assert memory.writer.delete(place, SeenFile(stat, digest(data)))
        memory.write(NOTE, b"three")
        assert memory.writer.delete(place, SeenFile(memory.corpus.stat([place])[0]))
        assert not memory.writer.delete(place, SeenFile(stat, digest(data)))
        assert memory.files() == {}
        assert [record.kind.value for record, _ in memory.records()] == [
            "CREATE",
            "REPLACE_CONTENT",
            "REPLACE_CONTENT",
            "CREATE",
        ]

    def test_no_edit_begins_during_a_pause(self, memory):
        edited = threading.Event()

        def edit():
            memory.write(NOTE, b"text", expected=None)
            edited.set()

        thread = threading.Thread(target=edit)
        with memory.writer.paused():
            with pytest.raises(IndexBusy), memory.writer.paused(0.01):
                pass
            thread.start()
            memory.append("text", path="MEMORY.md")
            assert not edited.wait(0.1)
            assert memory.files() == {"MEMORY.md": b"text\n"}
        thread.join()
        assert memory.data(NOTE) == b"text"
