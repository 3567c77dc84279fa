"""Any sequence of writes has the same results in the database as in a workspace: receipts, errors, files, history."""

import importlib
import shutil
import tempfile
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from memoryd_server.errors import MemorydError
from memoryd_server.sources import IgnoreFileUnusable
from memoryd_server.writing import (
    AppendReceipt,
    FileDeletion,
    LineDeletion,
    LineInsertion,
    NewContent,
    TextReplacement,
)
from properties import examples
from unit.writing.written_memory import FolderMemory

pytestmark = pytest.mark.postgres

PATHS = ["MEMORY.md", "USER.md", "memory/a.md", "memory/B.md", "memory/deep/c.md", "memory/' OR 1=1; --%s.md"]
paths = st.sampled_from([*PATHS, "notes.md"])
contents = st.lists(st.sampled_from([b"a", b"b\n", b"\n", b"\r\n", b"\xff", b"\0", b"word "]), max_size=8).map(b"".join)
texts = st.lists(st.sampled_from(["a", "ü\n", "\n", "\r\n", "\0", "word "]), min_size=1, max_size=6).map("".join)
numbers = st.integers(0, 4)
changes = st.one_of(
    st.builds(NewContent, contents),
    st.builds(TextReplacement, st.sampled_from([b"word", b"a", b""]), contents),
    st.builds(LineInsertion, numbers, contents),
    st.builds(LineDeletion, numbers, numbers),
    st.just(FileDeletion()),
)
keys = st.sampled_from(["", "", "k1", "k2"])
rules = st.lists(
    st.sampled_from(["memory/", "a.md", "/memory/*.md", "!memory/B.md", "deep/", "**/c.md", "# x", "*"]), max_size=4
)


def outcome(call):
    """Return the receipt of a write without its id, or its error."""
    try:
        receipt = call()
    except MemorydError as error:
        return type(error), str(error), error.metadata
    return receipt if isinstance(receipt, AppendReceipt | bool) else replace(receipt, version_id="")


class LikeFiles(RuleBasedStateMachine):
    """Do everything in a folder and in the database, and compare."""

    database = None

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        module = importlib.import_module("unit.postgres.document_memory")
        self.files = FolderMemory(self.folder)
        self.documents = module.DocumentMemory(self.database, f"agent {uuid.uuid4()}'%")
        self.both = (self.files, self.documents)

    def compare(self, write):
        assert outcome(lambda: write(self.documents)) == outcome(lambda: write(self.files))

    @rule(text=texts, path=paths, heading=st.sampled_from(["", "Title"]), key=keys)
    def append(self, text, path, heading, key):
        self.compare(lambda memory: memory.append(text, path, heading=heading, idempotency_key=key))

    @rule(path=paths, change=changes, key=keys, caller=st.sampled_from(["", "alice"]))
    def write(self, path, change, key, caller):
        request = {"key": key, "request_sha256": repr(change), "caller": caller}
        self.compare(lambda memory: memory.write(path, change, **request))

    @rule(path=paths, change=changes, expected=st.sampled_from([None, b"x" * 32]))
    def write_with_another_content_expected(self, path, change, expected):
        self.compare(lambda memory: memory.write(path, change, expected=expected))

    @rule(path=st.sampled_from(PATHS), new_path=paths, key=keys)
    def move(self, path, new_path, key):
        expected = {} if self.files.data(path) is not None else {"expected": b"x" * 32}
        request = {"key": key, "request_sha256": new_path, **expected}
        self.compare(lambda memory: memory.move(path, new_path, **request))

    @precondition(lambda self: self.files.records())
    @rule(number=st.integers(0, 1000), path=st.sampled_from(["", *PATHS]), key=keys)
    def restore(self, number, path, key):
        def write(memory):
            records = memory.records()
            version = records[number % len(records)][0].version_id
            return memory.restore(version, path, key=key, request_sha256=str(number))

        self.compare(write)

    @rule(path=paths, data=contents)
    def create(self, path, data):
        self.compare(lambda memory: memory.writer.create(path, data))

    @rule(lines=rules)
    def ignore(self, lines):
        for memory in self.both:
            memory.put(".memoryignore", "\n".join(lines).encode())

    @rule()
    def restart(self):
        for memory in self.both:
            memory.close()
            memory.open()
            memory.writer.recover()

    @rule(path=st.sampled_from(PATHS))
    def forget_a_file(self, path):
        removed = {memory.history.forget_path(path) for memory in self.both}
        assert len(removed) == 1

    @invariant()
    def the_files_and_their_history_are_equal(self):
        assert self.documents.files() == self.files.files()
        records = [
            [(replace(record, version_id="", draft="", sequence=0), before) for record, before in memory.records()]
            for memory in self.both
        ]
        assert records[0] == records[1]

    @rule()
    def the_rules_of_the_ignore_file_have_the_same_effect(self):
        found = []
        for memory in self.both:
            corpus, rules = memory.corpus, []
            for place in map(corpus.resolve, PATHS):
                with suppress(IgnoreFileUnusable):
                    rules.append(corpus.ignoring_rule(place))
                rules.append(corpus.is_discoverable(place) if place.parts[0] == "memory" else None)
            notes = [note.path for note in corpus.notes(lambda name: name != "B.md")]
            everything = [note.path for note in corpus.notes(lambda _: True, ignored=True)]
            found.append((rules, notes, everything, [file.path for file in corpus.discover().files]))
        assert found[0] == found[1]

    @rule()
    def the_same_files_are_excluded(self):
        known = [path for path in PATHS if self.documents.corpus.stat([self.documents.corpus.resolve(path)])[0]]
        excluded, expected = ({(e.path, e.rule) for e in memory.corpus.excluded()} for memory in self.both[::-1])
        # A folder whose last file was deleted is still a folder.
        expected = {each for each in expected if any(path.startswith(each[0]) for path in known)}
        assert excluded == expected

    def teardown(self):
        try:
            self.the_rules_of_the_ignore_file_have_the_same_effect()
            self.the_same_files_are_excluded()
            for memory in self.both:
                memory.put(".memoryignore", b"")
                for record, before in memory.records():
                    if record.before is not None and before is not None:
                        memory.restore(record.version_id, "memory/last.md")
                        assert memory.data("memory/last.md") == before
                assert memory.history.unfinished() == []
                assert memory.writer.issues() == ()
        finally:
            for memory in self.both:
                memory.close()
            shutil.rmtree(self.folder)


def test_documents_behave_as_files(postgres_module):
    LikeFiles.database = postgres_module.database()
    LikeFiles.database.attach()
    limits = settings(
        max_examples=examples(60),
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # A step takes too long for hundreds of attempts to shorten a failing sequence.
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    run_state_machine_as_test(LikeFiles, settings=limits)
    LikeFiles.database.detach()
