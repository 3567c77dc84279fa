"""After any change of transcripts, the index equals one that is built from the beginning."""

import os
import shutil
import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from index_fixture import SOUND
from transcript_fixture import HEAD, TOOL, TranscriptFixture, assistant, user

NAMES = st.sampled_from(["a.jsonl", "b.jsonl", "c.jsonl"])
WORDS = st.lists(st.sampled_from(["heron", "weir", "鹭", "reiher", "x" * 300, "y " * 200]), min_size=1, max_size=8)
LINES = st.lists(
    WORDS.map(" ".join).map(user)
    | WORDS.map(" ".join).map(assistant)
    | st.sampled_from([TOOL, HEAD, "\n", "half", "{}\n"]),
    max_size=12,
)


class Grown(RuleBasedStateMachine):
    """After any change to transcripts, a sync gives the same index as a rebuild."""

    folder = None

    def __init__(self):
        super().__init__()
        self.root = type(self).folder / f"run{time.monotonic_ns()}"
        self.index = TranscriptFixture(self.root).open()
        self.rotations = 0
        self.synced = False

    def _touched(self):
        self.synced = False

    @rule(name=NAMES, lines=LINES)
    def say(self, name, lines):
        self.index.say(name, *lines)
        self._touched()

    @rule(name=NAMES, data=st.binary(max_size=200))
    def say_bytes(self, name, data):
        self.index.say(name, data)
        self._touched()

    @rule(name=NAMES)
    def rotate(self, name):
        if (self.index.sessions / name).exists():
            self.rotations += 1
            self.index.rotate(name, f"reset.{self.rotations}")
            self._touched()

    @rule(name=NAMES, share=st.floats(0, 1))
    def cut(self, name, share):
        file = self.index.sessions / name
        if file.exists():
            os.truncate(file, int(file.stat().st_size * share))
            os.utime(file, ns=(0, time.time_ns()))
            self._touched()

    @rule(name=NAMES, lines=LINES)
    def replace(self, name, lines):
        beside = self.index.sessions / "beside"
        beside.write_text("".join(lines))
        beside.rename(self.index.sessions / name)
        self._touched()

    @rule(name=NAMES)
    def delete(self, name):
        (self.index.sessions / name).unlink(missing_ok=True)
        self._touched()

    @precondition(lambda self: not self.synced)
    @rule()
    def sync(self):
        self.index.sync()
        self.synced = True

    @invariant()
    def it_is_what_an_index_from_nothing_is(self):
        if not self.synced:
            return
        other = TranscriptFixture(self.root, name="other.sqlite").open()
        other.sync()
        assert other.chunks() == self.index.chunks()
        assert [(row[0], row[3]) for row in other.rows()[1]] == [(row[0], row[3]) for row in self.index.rows()[1]]
        assert other.keyword_words() == self.index.keyword_words()
        assert self.index.integrity() == SOUND
        other.close()
        other.path.unlink()

    def teardown(self):
        self.index.close()
        shutil.rmtree(self.root)


def test_after_any_change_the_index_equals_a_rebuilt_one(tmp_path):
    Grown.folder = tmp_path
    case = Grown.TestCase()
    case.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
    case.runTest()
