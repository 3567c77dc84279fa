"""Any sequence of edits, appends, edits of other programs and restarts: nothing that memoryd replaced is lost."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memoryd_server.errors import ContentChanged, InvalidRequest
from memoryd_server.writing import FileDeletion, LineDeletion, LineInsertion, NewContent, TextReplacement
from properties import examples
from unit.writing.edit_fixture import SYSTEMS, EditFixture, digest, replace_file
from unit.writing.patient import PatientAppender

PATHS = ["MEMORY.md", "memory/a.md", "memory/b.md", "memory/deep/c.md"]
paths = st.sampled_from(PATHS)
contents = st.lists(st.sampled_from([b"a", b"b\n", b"\n", b"\xff", b"word "]), max_size=8).map(b"".join)


class EditMachine(RuleBasedStateMachine):
    """Compare the files with a model of them after every step; at the end, restore every earlier content."""

    system = "all"

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.edits = EditFixture(self.folder, renames=SYSTEMS[self.system])
        self.appender = PatientAppender(self.edits.workspace, self.edits.ledger)
        self.model = {}
        # Version id: the path after the write, the content before it, and the receipt of a request with a key.
        self.versions = {}
        self.requests = []

    def seen(self, path):
        return digest(self.model.get(path))

    def done(self, receipt, path, before, after, request=None):
        assert (receipt.path, receipt.content, receipt.already) == (path, digest(after), False)
        assert receipt.version_id not in self.versions
        self.versions[receipt.version_id] = (path, before)
        if after is None:
            self.model.pop(path, None)
        else:
            self.model[path] = after
        if request:
            self.requests.append((request, receipt))

    def change(self, path, change, after, request=None):
        key = {"key": f"k{len(self.requests)}", "request_sha256": "r"} if request else {}

        def write():
            return self.edits.write(path, change, expected=seen, **key)

        seen, before = self.seen(path), self.model.get(path)
        self.done(write(), path, before, after, write if key else None)

    @rule(path=paths, data=contents, keyed=st.booleans())
    def write_content(self, path, data, keyed):
        self.change(path, NewContent(data), data, keyed)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), text=contents.filter(bool))
    def insert_lines(self, data, text):
        path = data.draw(st.sampled_from(sorted(self.model)))
        before = self.model[path]
        text = text.removesuffix(b"\n") + b"\n"
        self.change(path, LineInsertion(0, text), text + before)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_first_line(self, data):
        path = data.draw(st.sampled_from(sorted(self.model)))
        before = self.model[path]
        if before:
            self.change(path, LineDeletion(1, 1), before.partition(b"\n")[2])

    @precondition(lambda self: self.model)
    @rule(data=st.data(), new=contents)
    def replace_text(self, data, new):
        path = data.draw(st.sampled_from(sorted(self.model)))
        before = self.model[path]
        if before.count(b"word") == 1:
            self.change(path, TextReplacement(b"word", new), before.replace(b"word", new))
        else:
            with pytest.raises(InvalidRequest):
                self.edits.write(path, TextReplacement(b"word", new), expected=self.seen(path))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), keyed=st.booleans())
    def delete_file(self, data, keyed):
        path = data.draw(st.sampled_from(sorted(self.model)))
        self.change(path, FileDeletion(), None, keyed)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), new_path=paths)
    def move(self, data, new_path):
        path = data.draw(st.sampled_from(sorted(self.model)))
        before = self.model[path]
        if new_path in self.model:
            with pytest.raises(InvalidRequest if path == new_path else ContentChanged):
                self.edits.move(path, new_path, expected=self.seen(path))
            return
        receipt = self.edits.move(path, new_path, expected=self.seen(path))
        assert receipt.moved_from == path
        del self.model[path]
        self.done(receipt, new_path, before, before)

    @precondition(lambda self: self.versions)
    @rule(data=st.data(), path=st.sampled_from(["", *PATHS]))
    def restore(self, data, path):
        version = data.draw(st.sampled_from(sorted(self.versions)))
        target, content = path or self.versions[version][0], self.versions[version][1]
        before = self.model.get(target)
        self.done(self.edits.restore(version, path, expected=self.seen(target)), target, before, content)

    @rule(path=paths, data=contents)
    def another_program_writes_in_place(self, path, data):
        self.edits.put(path, data)
        self.model[path] = data

    @rule(path=paths, data=contents)
    def another_program_renames_a_new_file_over_it(self, path, data):
        self.edits.file(path).parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.edits.file(path), data)
        self.model[path] = data

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def another_program_deletes(self, data):
        path = data.draw(st.sampled_from(sorted(self.model)))
        self.edits.file(path).unlink()
        del self.model[path]

    @rule(path=paths)
    def append(self, path):
        self.appender.append("appended", path=path)
        before = self.model.get(path, b"")
        lead = b"\n" if before and not before.endswith(b"\n") else b""
        self.model[path] = before + lead + b"appended\n"

    @rule(path=paths, data=contents, wrong=contents)
    def an_outdated_write_changes_nothing(self, path, data, wrong):
        if wrong != self.model.get(path):
            with pytest.raises(ContentChanged):
                self.edits.write(path, data, expected=digest(wrong))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def repeat_a_request(self, data):
        request, receipt = data.draw(st.sampled_from(self.requests))
        again = request()
        assert again.already
        assert (again.version_id, again.path, again.content) == (receipt.version_id, receipt.path, receipt.content)

    @rule()
    def restart(self):
        self.edits.close()
        self.edits = EditFixture(self.folder, renames=SYSTEMS[self.system], prefix=f"r{len(self.versions)}-")
        self.edits.editor.recover()

    @invariant()
    def the_files_are_those_of_the_model(self):
        assert self.edits.files() == self.model

    def teardown(self):
        try:
            for version, (_, content) in self.versions.items():
                if content is not None:
                    self.edits.restore(version, "USER.md")
                    assert self.edits.data("USER.md") == content
            assert self.edits.history.unfinished() == []
            assert self.edits.editor.issues() == ()
        finally:
            self.edits.close()
            shutil.rmtree(self.folder)


class PlainRenamesMachine(EditMachine):
    system = "plain renames only"


COMMON = settings(
    max_examples=examples(150), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
EditMachine.TestCase.settings = COMMON
PlainRenamesMachine.TestCase.settings = settings(COMMON, max_examples=examples(20))
TestEdits = EditMachine.TestCase
TestEditsWithPlainRenames = pytest.mark.slow(PlainRenamesMachine.TestCase)
