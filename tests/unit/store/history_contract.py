"""The contract of every driver of `store.history`. A driver's test module has a subclass of `HistoryContract`.

A model in memory repeats random operations, and afterwards the history has the model's records and contents, and no
others.
"""

import hashlib
import random
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from memoryd_server.errors import ShuttingDown
from memoryd_server.store.history import WriteKind, WriteRecord

DAY_MS = 86_400_000
PATHS = ["MEMORY.md", "memory/a.md", "memory/b.md", "memory/ü.md"]
NOISE = random.Random(5)
CONTENTS = [
    None,
    b"",
    b"heron\n",
    b"heron and kestrel\n",
    b"\xff\x00kestrel",
    *(NOISE.randbytes(n) for n in (900, 1500)),
]
TEXTS = [b"heron", b"kestrel", b"\x00", b"\n", CONTENTS[-1][100:140], b"curlew"]


def sha256(content):
    return None if content is None else hashlib.sha256(content).digest()


def record(number, path="memory/a.md", before=None, after=None, **fields):
    """A record of a write of `before` to `after`, with numbers in all other fields."""
    settled = {
        "version_id": f"version-{number}",
        "kind": WriteKind.MOVE if fields.get("moved_from") else WriteKind.REPLACE_TEXT,
        "time_ms": 1_000 * number,
        "caller": f"token {number}",
        "lines": (number, number + 1),
        "request_sha256": f"{number:064x}",
        "draft": f"draft-{number}",
        "before_bytes": len(before or b""),
        "after_bytes": len(after or b""),
    }
    return WriteRecord(path=path, before=sha256(before), after=sha256(after), **{**settled, **fields})


class Clock:
    def __init__(self, ms=0):
        self.ms = ms

    def __call__(self):
        return self.ms


@dataclass
class Model:
    """What a history has to contain."""

    clock: Clock
    max_age_ms: int
    max_bytes: int
    cost: object
    records: list[WriteRecord] = field(default_factory=list)
    contents: dict[bytes, bytes] = field(default_factory=dict)
    sequence: int = 0

    def used(self, among):
        return {digest for each in among for digest in (each.before, each.after)}

    def keep(self, records):
        """Keep these records, and the contents that one of them has; return the number of removed contents."""
        gone = self.used(each for each in self.records if each not in records) - self.used(records)
        self.records = records
        return sum(self.contents.pop(digest, None) is not None for digest in gone)

    def begin(self, record, before, after):
        self.sequence += 1
        self.records.append(replace(record, sequence=self.sequence))
        self.contents.update({sha256(each): each for each in (before, after) if each is not None})

    def prune(self):
        since = self.clock.ms - self.max_age_ms
        self.keep([each for each in self.records if not each.is_done or each.time_ms >= since])
        while self.cost(self.records, self.contents) > self.max_bytes:
            oldest = next((each for each in self.records if each.is_done), None)
            if oldest is None or oldest is self.records[-1]:
                break
            self.keep([each for each in self.records if each is not oldest])

    def finish(self, version_id):
        self.records = [replace(each, is_done=True) if each.version_id == version_id else each for each in self.records]
        self.prune()

    def cancel(self, version_id):
        self.keep([each for each in self.records if each.version_id != version_id])

    def of(self, path, below=1 << 62):
        """The records of a file by the definition: its own, and those from before it was moved to the path."""
        older = [each for each in self.records if each.is_done and each.sequence < below]
        found = {each.sequence for each in older if path in {each.path, each.moved_from}}
        for each in older:
            if each.path == path and each.moved_from:
                found |= self.of(each.moved_from, each.sequence)
        return found

    def shown(self, records):
        stored = {None, *self.contents}
        return [replace(each, is_restorable=each.before in stored) for each in records]

    def newest(self, path, older_than=1 << 62):
        chosen = self.of(path) if path else {each.sequence for each in self.records if each.is_done}
        return self.shown([e for e in reversed(self.records) if e.sequence in chosen and e.sequence < older_than])

    def forget_path(self, path):
        gone = self.of(path)
        unfinished = [e for e in self.records if not e.is_done and path in {e.path, e.moved_from}]
        removed = self.keep([each for each in self.records if each.sequence not in gone])
        private = self.used(unfinished) - self.used(each for each in self.records if each not in unfinished)
        return removed + sum(self.contents.pop(digest, None) is not None for digest in private)

    def forget_text(self, text):
        gone = [digest for digest, content in self.contents.items() if text in content]
        return sum(self.contents.pop(digest) is not None for digest in gone)


number = st.integers(0, 30)
path = st.sampled_from(PATHS)
content = st.sampled_from(CONTENTS)
WRITE = st.tuples(st.just("write"), path, content, content, st.sampled_from(["", "", *PATHS]), st.booleans())
OPERATIONS = st.lists(
    WRITE
    | WRITE
    | st.tuples(st.sampled_from(["finish", "cancel", "wait"]), number)
    | st.tuples(st.just("forget_path"), path)
    | st.tuples(st.just("forget_text"), st.sampled_from(TEXTS))
    | st.tuples(st.sampled_from(["reopen", "release"])),
    max_size=40,
)
SIZE_LIMITS = st.sampled_from([1, 3_000, 6_000, 1 << 30])


class HistoryContract:
    """The tests of a driver. A subclass defines `new_history` and `cost`.

    It also calls `check_operations` in a property test, which Hypothesis does not allow to be inherited.
    """

    def new_history(self, folder, *, max_age_seconds, max_bytes, now_ms):
        """Open the history in a folder."""
        raise NotImplementedError

    def cost(self, records, contents):
        """Return what records and contents count towards the size limit."""
        raise NotImplementedError

    def check_stored(self, folder, contents):
        """Check that the closed history in the folder holds these contents and no others."""

    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def history(self, tmp_path, clock):
        history = self.new_history(tmp_path, max_age_seconds=DAY_MS / 1000, max_bytes=1 << 30, now_ms=clock)
        yield history
        history.close()

    def write(self, history, number, path="memory/a.md", before=None, after=None, **fields):
        history.begin(record(number, path, before, after, **fields), before, after)
        history.finish(f"version-{number}")

    def sequences(self, history, path, older_than=None, limit=100):
        return [each.sequence for each in history.records(path, older_than=older_than, limit=limit)]

    def check_operations(self, operations, max_bytes):
        """Check that the operations leave the records and contents of the model, and no others."""
        clock = Clock(10 * DAY_MS)
        options = {"max_age_seconds": DAY_MS / 1000, "max_bytes": max_bytes, "now_ms": clock}
        model = Model(clock, DAY_MS, max_bytes, self.cost)
        with tempfile.TemporaryDirectory() as folder:
            history = self.new_history(Path(folder), **options)
            for step, (name, *values) in enumerate(operations):
                open_versions = [each.version_id for each in model.records if not each.is_done]
                if name == "write":
                    where, before, after, moved_from, is_finished = values
                    made = record(step, where, before, after, moved_from=moved_from, time_ms=clock.ms)
                    for each in (history, model):
                        each.begin(made, before, after)
                        if is_finished:
                            each.finish(made.version_id)
                elif name in {"finish", "cancel"}:
                    # Also of writes that do not exist.
                    version = (open_versions * 31)[values[0]] if open_versions else "unknown"
                    getattr(history, name)(version)
                    getattr(model, name)(version)
                elif name == "wait":
                    clock.ms += values[0] * DAY_MS // 20
                elif name in {"forget_path", "forget_text"}:
                    assert getattr(history, name)(values[0]) == getattr(model, name)(values[0])
                else:
                    if name == "reopen":
                        history.close()
                        history = self.new_history(Path(folder), **options)
                    history.release_memory()
                    assert history.unfinished() == model.shown([each for each in model.records if not each.is_done])
                    model.prune()
                self.compare(history, model)
            assert not history.problem
            history.close()
            self.check_stored(Path(folder), set(model.contents))

    def compare(self, history, model):
        assert history.unfinished() == model.shown([each for each in model.records if not each.is_done])
        for path in ["", *PATHS]:
            wanted = model.newest(path)
            assert history.records(path, older_than=None, limit=100) == wanted
            assert history.has(path) == bool(wanted)
        for each in CONTENTS:
            if each is not None:
                assert history.content(sha256(each)) == (each if sha256(each) in model.contents else None)

    def test_a_record_is_returned_with_all_its_fields(self, history):
        made = record(7, "memory/ü.md", b"old", b"new", moved_from="memory/a.md", key="the key")
        history.begin(made, b"old", b"new")
        assert history.unfinished() == [replace(made, sequence=1)]
        assert history.with_key("the key") == replace(made, sequence=1)
        assert history.get("version-7") is None
        assert history.records("", older_than=None, limit=9) == []
        history.finish("version-7")
        assert history.get("version-7") == history.with_key("the key") == replace(made, sequence=1, is_done=True)
        assert history.unfinished() == []

    def test_an_empty_key_belongs_to_no_record(self, history):
        self.write(history, 1)
        assert history.with_key("") is None
        assert history.with_key("other") is None

    def test_records_are_returned_in_pages_newest_first(self, history):
        for number in range(1, 8):
            self.write(history, number, PATHS[number % 2])
        assert self.sequences(history, "", limit=3) == [7, 6, 5]
        assert self.sequences(history, "", older_than=5, limit=3) == [4, 3, 2]
        assert self.sequences(history, PATHS[1], older_than=7, limit=2) == [5, 3]

    def test_records_follow_a_file_through_its_moves(self, history):
        self.write(history, 1, "a")
        self.write(history, 2, "b", moved_from="a")
        self.write(history, 3, "a")  # Another file, created at the old path.
        self.write(history, 4, "c", moved_from="b")
        self.write(history, 5, "c")
        assert self.sequences(history, "c") == [5, 4, 2, 1]
        assert self.sequences(history, "c", older_than=4) == [2, 1]
        assert self.sequences(history, "a") == [3, 2, 1]

    def test_pages_of_a_file_that_was_moved_often_are_complete(self, history):
        for number in range(1, 41):
            self.write(history, number, f"p{number}", moved_from=f"p{number - 1}")
            self.write(history, 100 + number, f"p{number}")
        pages, older_than = [], None
        while page := self.sequences(history, "p40", older_than, limit=7):
            pages += page
            older_than = page[-1]
        assert pages == list(range(80, 0, -1))

    def test_a_second_move_from_the_same_path_brings_the_records_between_the_two(self, history):
        self.write(history, 1, "b", moved_from="a")
        self.write(history, 2, "a")
        self.write(history, 3, "b", moved_from="a")
        assert self.sequences(history, "b") == [3, 2, 1]

    def test_newer_records_of_an_earlier_path_come_before_older_ones_of_the_path(self, history):
        for number, path in enumerate(["b", "b", "a", "a"], 1):
            self.write(history, number, path)
        self.write(history, 5, "b", moved_from="a")
        assert self.sequences(history, "b", limit=3) == [5, 4, 3]

    def test_moves_back_and_forth_end(self, history):
        for number in range(1, 21):
            self.write(history, number, PATHS[number % 2], moved_from=PATHS[(number + 1) % 2])
        for path in PATHS[:2]:
            assert self.sequences(history, path) == list(range(20, 0, -1))

    def test_a_content_that_another_file_has_outlives_the_forgotten_one(self, history):
        self.write(history, 1, "a", b"shared", b"private")
        self.write(history, 2, "b", None, b"shared")
        assert history.forget_path("a") == 1
        assert (history.has("a"), history.has("b")) == (False, True)
        assert (history.content(sha256(b"shared")), history.content(sha256(b"private"))) == (b"shared", None)
        assert history.forget_path("a") == 0

    def test_a_forgotten_text_cannot_be_restored_and_its_record_stays(self, history):
        self.write(history, 1, "a", b"the secret", b"nothing")
        self.write(history, 2, "a", b"nothing", b"x" * (1 << 20) + b"the secret")
        assert history.forget_text(b"secret") == 2
        assert history.forget_text(b"secret") == 0
        assert history.forget_text(b"") == 0
        assert [each.is_restorable for each in history.records("a", older_than=None, limit=9)] == [True, False]
        assert history.content(sha256(b"nothing")) == b"nothing"

    def test_an_unfinished_write_loses_its_forgotten_content_and_can_still_be_settled(self, history):
        history.begin(record(1, "a", b"old", b"new"), b"old", b"new")
        assert history.forget_path("a") == 2
        assert [each.version_id for each in history.unfinished()] == ["version-1"]
        history.finish("version-1")
        assert not history.get("version-1").is_restorable

    def test_a_large_content_is_returned_byte_for_byte(self, history):
        content = random.Random(1).randbytes(1 << 20) + bytes(31 << 20)
        self.write(history, 1, "a", content, b"small")
        assert history.content(sha256(content)) == content

    def test_a_content_that_was_not_given_cannot_be_restored(self, history):
        history.begin(record(1, "a", b"too large", b"new"), None, b"new")
        history.finish("version-1")
        assert not history.get("version-1").is_restorable

    def test_nothing_is_used_after_close(self, history):
        self.write(history, 1)
        history.close()
        history.close()
        for call in (lambda: history.get("version-1"), lambda: history.begin(record(2), None, None)):
            with pytest.raises(ShuttingDown):
                call()
