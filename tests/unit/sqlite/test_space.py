"""After months of edits an index is about as large as a new one, and its log is short."""

import random
import shutil
import threading
from contextlib import contextmanager

import pytest

from embedding_fixture import EmbeddingFixture
from index_fixture import SOUND, IndexFixture
from memoryd_server.sqlite.connection import BUSY_TIMEOUT_MS, bound_log
from memoryd_server.store.identity import VectorIdentity

WORDS = [
    f"{word}{ending}{number}" for word in ("heron", "bridge", "garden") for ending in "aeiou" for number in range(99)
]
ROUNDS = 100
PAGE_BYTES = 4_096
MOST_LOG_BYTES = 64 * 1024 * 1024
SIZES = [40, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]


def text(chance):
    return "# Note\n\n" + "\n".join(" ".join(chance.choices(WORDS, k=12)) for _ in range(40))


def fill(index, files, chance):
    for number in range(files):
        index.write(f"memory/{number}.md", text(chance))


def size(index):
    """Bytes of the index and its log."""
    return sum(index.path.with_name(index.path.name + suffix).stat().st_size for suffix in ("", "-wal"))


def log_size(index):
    return index.path.with_name(index.path.name + "-wal").stat().st_size


def rounds(index, sync, files, chance, *, tidy_every):
    """A hundred times, a tenth of the files is edited and synced; returns the longest log."""
    longest = 0
    for number in range(1, ROUNDS + 1):
        for file in chance.sample(range(files), files // 10):
            index.write(f"memory/{file}.md", text(chance))
        sync()
        longest = max(longest, log_size(index))
        if tidy_every and number % tidy_every == 0:
            assert index.store.purge()
    return longest


@contextmanager
def fresh(maker, folder, index):
    """The same of the same files, made just now."""
    shutil.copytree(index.workspace, folder / "workspace")
    other = maker(folder)
    yield other
    other.close()


@pytest.mark.slow
@pytest.mark.parametrize("files", SIZES)
@pytest.mark.parametrize("tidy_every", [0, 10])
def test_a_hundred_rounds_of_edits_leave_an_index_at_most_twice_a_fresh_one(tmp_path, files, tidy_every):
    chance = random.Random(files)
    index = IndexFixture(tmp_path / "edited").open()
    fill(index, files, chance)
    index.sync()
    assert rounds(index, index.sync, files, chance, tidy_every=tidy_every) < MOST_LOG_BYTES
    # What the daemon does within a minute.
    assert index.store.purge()
    with fresh(lambda folder: IndexFixture(folder).open(), tmp_path / "fresh", index) as other:
        other.sync()
        assert other.store.purge()
        assert size(index) <= 2 * size(other)
        assert index.rows() == other.rows()
    assert index.integrity() == SOUND
    index.close()


@pytest.mark.slow
@pytest.mark.parametrize("files", SIZES)
def test_vectors_leave_no_more_behind(tmp_path, files):
    chance = random.Random(files)
    embedding = EmbeddingFixture(tmp_path / "edited")
    fill(embedding.index, files, chance)
    embedding.sync()
    assert rounds(embedding.index, embedding.sync, files, chance, tidy_every=10) < MOST_LOG_BYTES
    with fresh(EmbeddingFixture, tmp_path / "fresh", embedding.index) as other:
        other.sync()
        assert other.index.store.purge()
        assert size(embedding.index) <= 2 * size(other.index)
        assert embedding.vectors().keys() == other.vectors().keys()
    embedding.close()


@contextmanager
def searching(index, threads=3):
    """Searches that overlap without a pause."""
    stop, failures = threading.Event(), []

    def search():
        while not stop.is_set():
            try:
                index.found("herona1 gardeno7", 20)
            except Exception as error:  # noqa: BLE001 -- any error fails the test below
                failures.append(error)

    workers = [threading.Thread(target=search) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield failures
    finally:
        stop.set()
        for worker in workers:
            worker.join(30)


@pytest.mark.slow
def test_searches_that_never_rest_do_not_let_the_log_grow(opened):
    """Else it would hold every page that a long sync writes."""
    bound_log(opened.connection, BUSY_TIMEOUT_MS, checkpoint_pages=50, truncate_pages=100)
    chance = random.Random(1)
    fill(opened, 60, chance)
    opened.sync()
    lengths = []
    with searching(opened) as failures:
        for _ in range(5):
            fill(opened, 60, chance)
            opened.sync(files_per_transaction=5)
            lengths.append(log_size(opened))
    assert failures == []
    # A transaction writes less than two hundred pages; a search that takes long may cost an attempt or two.
    assert max(lengths) < 4 * 200 * PAGE_BYTES


def identity(model):
    return VectorIdentity("p", model, "", 768, "", "")


def test_another_model_does_not_write_every_old_vector_to_the_log(opened):
    vectors = opened.store.writer()
    vectors.begin_vectors(identity("one"))
    for first in range(0, 2_000, 100):
        vectors.put_vectors({number: random.Random(number).randbytes(3_072) for number in range(first, first + 100)})
    assert opened.store.purge()
    pages = size(opened) // PAGE_BYTES
    vectors.begin_vectors(identity("another"))
    assert log_size(opened) < pages // 10 * PAGE_BYTES
    assert opened.connection.execute("PRAGMA secure_delete").fetchone() == (1,)
    for first in range(0, 2_000, 100):
        vectors.put_vectors({number: random.Random(number).randbytes(3_072) for number in range(first, first + 100)})
    assert opened.store.purge()
    assert size(opened) // PAGE_BYTES <= pages + 10, "the freed pages are taken first"
