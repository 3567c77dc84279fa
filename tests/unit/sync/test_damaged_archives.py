"""Damaged and too large archives of sessions: they fail alone, are not read again, and can be left at any line."""

import itertools
import time

import pytest

from index_fixture import ANALYZER, RecordingObserver
from memoryd_server.agent.files import read_range
from memoryd_server.errors import PathNotAllowed, SyncCancelled
from memoryd_server.sources.archive_reader import ReadStopped
from memoryd_server.sources.compression import zstd
from memoryd_server.sources.session_source import open_transcript
from memoryd_server.sync.approval import price_files
from memoryd_server.sync.engine import SyncMode
from memoryd_server.sync.prepare import FilePreparer
from openclaw_home import MAIN, OpenClawIndex, path_of

NAME = "s.jsonl.reset.2026-11-23T10-00-00Z.zst"
PATH = f"sessions/main/{NAME}"
BOMB = zstd.compress(b"\n" * (64 << 20))
LONG = zstd.compress(b"{}\n" * 20_000)
HERONS = b'{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"The herons."}}\n'
HOUR_NS = 3_600_000_000_000


class CountingIndex(OpenClawIndex):
    """Count the transcripts that are opened. An hour has passed since the last change of each file."""

    def __init__(self, folder):
        super().__init__(folder)
        self.opened = []
        self.now_ns = lambda: time.time_ns() + HOUR_NS

    def open_until(self, file, should_stop):
        self.opened.append(file.path)
        return open_transcript(file, should_stop)


@pytest.fixture
def index(tmp_path):
    index = CountingIndex(tmp_path).open()
    yield index
    index.close()


def errors(engine):
    """Sync, and return the errors by path."""
    observer = RecordingObserver()
    engine.run(SyncMode.INCREMENTAL, observer, lambda: False)
    return observer.errors()


def test_a_bomb_is_neither_read_nor_indexed_and_fails_alone(index):
    (index.sessions / NAME).write_bytes(BOMB)
    with pytest.raises(PathNotAllowed, match="more than 10,000 lines that are no events"):
        read_range(index.corpus, PATH, 1, 1, 1 << 20)
    assert list(errors(index.engine())) == [PATH]
    assert index.found_paths("orion-staging") == [path_of(MAIN)]


@pytest.mark.parametrize(
    "damaged", [BOMB, b"x", zstd.compress(HERONS)[:-1], zstd.compress(HERONS) * 2], ids=["bomb", "x", "cut", "two"]
)
def test_a_damaged_archive_is_read_again_only_after_a_change(index, damaged):
    (index.sessions / NAME).write_bytes(damaged)
    engine = index.engine()
    first = errors(engine)
    assert list(first) == [PATH]
    for _ in range(3):
        assert errors(engine) == first
        engine.estimate(SyncMode.FULL)
    assert index.opened.count(PATH) == 1
    (index.sessions / NAME).write_bytes(zstd.compress(HERONS))
    assert errors(engine) == {}
    assert index.found_paths("herons") == [PATH]


def test_a_damaged_archive_that_has_just_changed_is_read_again(index):
    index.now_ns = time.time_ns
    (index.sessions / NAME).write_bytes(b"x")
    engine = index.engine()
    assert list(errors(engine)) == list(errors(engine)) == [PATH]
    assert index.opened.count(PATH) == 2


def test_a_cold_file_that_is_repaired_is_read_in_the_next_sync(index):
    cold = next((index.sessions / "cold").iterdir())
    data = cold.read_bytes()
    cold.write_bytes(b"x")
    engine = index.engine()
    assert len(errors(engine)) == 1
    cold.write_bytes(data)
    assert errors(engine) == {}


def test_a_sync_can_be_cancelled_within_an_archive(index):
    assert index.sync().failed_files == 0
    (index.sessions / NAME).write_bytes(LONG)
    observer, calls = RecordingObserver(), itertools.count()
    with pytest.raises(SyncCancelled):
        index.sync(observer=observer, should_stop=lambda: next(calls) > 100)
    assert next(calls) < 110
    assert observer.errors() == {}
    assert index.sync().indexed_files == 1


def test_pricing_can_be_cancelled_within_an_archive(index):
    (index.sessions / NAME).write_bytes(LONG)
    (file,) = [file for file in index.corpus.discover().files if file.path == PATH]
    files = {"read": index.corpus.read, "open_transcript": index.corpus.open_transcript}
    preparer = FilePreparer(ANALYZER, index.identity, index.max_file_bytes, index.now_ns, **files)
    calls = itertools.count()
    with pytest.raises(SyncCancelled) as cancelled:
        price_files(preparer, None, [file], {}, lambda: next(calls) > 100)
    assert next(calls) < 110
    # The log of a sync run contains the traceback of the cause of its error.
    assert cancelled.value.__cause__ is None


def test_a_read_can_be_ended_within_an_archive(index):
    (index.sessions / NAME).write_bytes(LONG)
    calls = itertools.count()
    with pytest.raises(ReadStopped):
        read_range(index.corpus, PATH, 1, 1, 1 << 20, should_stop=lambda: next(calls) > 100)
