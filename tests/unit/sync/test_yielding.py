"""Embedding may take hours; a note written during it is found by keyword search after one batch."""

import pytest

from desk import Notes
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Clock
from memoryd_server.sync.progress import MIN_EMBEDDING_SECONDS, SyncMode
from shelf import Shelf

CHUNKS = 600


@pytest.fixture
def shelf(tmp_path):
    shelf = Shelf(tmp_path)
    shelf.write(**{f"n{number:04}": f"note{number}" for number in range(CHUNKS)})
    yield shelf
    shelf.close()


def run(shelf, should_yield, *, should_stop=lambda: False, notes=None, clock=None):
    return shelf.engine(clock).run(SyncMode.INCREMENTAL, notes or Notes(), should_stop, should_yield)


def yields_to(shelf, news):
    """Yields once `news` has been written, which happens when a second batch is requested."""
    written = []

    def before(_texts):
        if len(shelf.provider.batches) == 2:
            shelf.write(**news)
            written.append(news)

    shelf.provider.before = before
    return lambda: bool(written)


def test_a_pass_yields_to_changed_files_and_the_next_indexes_them_and_continues(shelf):
    outcome = run(shelf, yields_to(shelf, {"news": "the heron"}))
    assert outcome.yielded
    assert 0 < outcome.pending_embeddings < CHUNKS
    assert outcome.pending_embeddings == shelf.missing() == shelf.embedder.state.pending
    assert outcome.embedding_reason == ""
    assert shelf.desk.found("heron") == []
    after = run(shelf, lambda: False)
    assert (after.yielded, after.indexed_files, after.pending_embeddings) == (False, 1, 0)
    assert shelf.desk.found("heron") == ["memory/news.md"]
    assert len(shelf.vectors()) == CHUNKS + 1


def test_no_text_is_sent_twice_however_often_a_pass_leaves_off(shelf):
    passes = 0
    while run(shelf, lambda: True).yielded:
        passes += 1
        assert passes < CHUNKS
    assert passes > 2
    assert sorted(shelf.provider.texts) == sorted(set(shelf.provider.texts))
    assert len(shelf.vectors()) == CHUNKS


def test_a_batch_that_takes_long_is_left_off_in_its_middle_and_loses_nothing(shelf):
    """A model on a slow machine needs minutes for a batch."""
    now, plain = [0.0], shelf.provider.embed_documents

    def embed_documents(texts, should_stop):
        def stop():
            now[0] += 1.0
            return should_stop()

        return plain(texts, stop)

    shelf.provider.embed_documents = embed_documents
    outcome = run(shelf, lambda: True, clock=Clock(monotonic=lambda: now[0]))
    assert outcome.yielded
    assert CHUNKS - 2 * MIN_EMBEDDING_SECONDS <= outcome.pending_embeddings < CHUNKS
    assert shelf.missing() == outcome.pending_embeddings
    assert run(shelf, lambda: False).pending_embeddings == 0
    assert len(shelf.vectors()) == CHUNKS


def test_a_pass_that_makes_nothing_has_nothing_to_leave_off(shelf):
    shelf.provider.lives = 0
    outcome = run(shelf, lambda: True)
    assert (outcome.yielded, outcome.pending_embeddings) == (False, CHUNKS)
    assert "down" in outcome.embedding_reason


def test_to_stop_is_not_to_yield(shelf):
    def second():
        return len(shelf.provider.batches) > 1

    with pytest.raises(SyncCancelled):
        run(shelf, second, should_stop=second)


def test_a_rebuild_leaves_off_for_nothing(shelf):
    shelf.sync()
    outcome = shelf.engine().run(SyncMode.FULL, Notes(), lambda: False, lambda: True)
    assert (outcome.yielded, outcome.pending_embeddings) == (False, 0)


def test_cache_hits_are_counted_when_a_pass_yields(shelf):
    shelf.sync()
    for number in range(CHUNKS):
        shelf.remove(f"n{number:04}")
    shelf.sync()
    shelf.write(**{f"m{number:04}": f"note{number}" for number in range(CHUNKS)})
    notes = Notes()
    outcome = run(shelf, lambda: True, notes=notes)
    assert outcome.yielded
    assert outcome.cached_chunks == CHUNKS - outcome.pending_embeddings > 0
