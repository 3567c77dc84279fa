"""Making vectors may take hours; a note written in that time is found by its words within a batch."""

import pytest

from embedding_fixture import EmbeddingFixture
from index_fixture import RecordingObserver
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Clock
from memoryd_server.sync.progress import PATIENCE_SECONDS, SyncMode

CHUNKS = 600


@pytest.fixture
def embedding(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    embedding.write(**{f"n{number:04}": f"note{number}" for number in range(CHUNKS)})
    yield embedding
    embedding.close()


def run(embedding, should_yield, *, should_stop=lambda: False, observer=None, clock=None):
    return embedding.engine(clock).run(SyncMode.INCREMENTAL, observer or RecordingObserver(), should_stop, should_yield)


def yields_to(embedding, news):
    """Yields once `news` has been written, which it is when a second batch is asked for."""
    written = []

    def before(_texts):
        if len(embedding.provider.batches) == 2:
            embedding.write(**news)
            written.append(news)

    embedding.provider.before = before
    return lambda: bool(written)


def test_a_pass_leaves_off_for_news_and_the_next_takes_them_in_and_goes_on(embedding):
    outcome = run(embedding, yields_to(embedding, {"news": "the heron"}))
    assert outcome.yielded
    assert 0 < outcome.pending_embeddings < CHUNKS
    assert outcome.pending_embeddings == embedding.missing() == embedding.embedder.state.pending
    assert outcome.embedding_reason == ""
    assert embedding.index.found("heron") == []
    after = run(embedding, lambda: False)
    assert (after.yielded, after.indexed_files, after.pending_embeddings) == (False, 1, 0)
    assert embedding.index.found("heron") == ["memory/news.md"]
    assert len(embedding.vectors()) == CHUNKS + 1


def test_no_text_is_sent_twice_however_often_a_pass_leaves_off(embedding):
    passes = 0
    while run(embedding, lambda: True).yielded:
        passes += 1
        assert passes < CHUNKS
    assert passes > 2
    assert sorted(embedding.provider.texts) == sorted(set(embedding.provider.texts))
    assert len(embedding.vectors()) == CHUNKS


def test_a_batch_that_takes_long_is_left_off_in_its_middle_and_loses_nothing(embedding):
    """A model on a slow machine needs minutes for a batch."""
    now, plain = [0.0], embedding.provider.embed_documents

    def embed_documents(texts, should_stop):
        def stop():
            now[0] += 1.0
            return should_stop()

        return plain(texts, stop)

    embedding.provider.embed_documents = embed_documents
    outcome = run(embedding, lambda: True, clock=Clock(monotonic=lambda: now[0]))
    assert outcome.yielded
    assert CHUNKS - 2 * PATIENCE_SECONDS <= outcome.pending_embeddings < CHUNKS
    assert embedding.missing() == outcome.pending_embeddings
    assert run(embedding, lambda: False).pending_embeddings == 0
    assert len(embedding.vectors()) == CHUNKS


def test_a_pass_that_makes_nothing_has_nothing_to_leave_off(embedding):
    embedding.provider.lives = 0
    outcome = run(embedding, lambda: True)
    assert (outcome.yielded, outcome.pending_embeddings) == (False, CHUNKS)
    assert "down" in outcome.embedding_reason


def test_to_stop_is_not_to_yield(embedding):
    def second():
        return len(embedding.provider.batches) > 1

    with pytest.raises(SyncCancelled):
        run(embedding, second, should_stop=second)


def test_a_rebuild_leaves_off_for_nothing(embedding):
    embedding.sync()
    outcome = embedding.engine().run(SyncMode.FULL, RecordingObserver(), lambda: False, lambda: True)
    assert (outcome.yielded, outcome.pending_embeddings) == (False, 0)


def test_cached_vectors_are_counted_when_a_pass_yields(embedding):
    embedding.sync()
    for number in range(CHUNKS):
        embedding.remove(f"n{number:04}")
    embedding.sync()
    embedding.write(**{f"m{number:04}": f"note{number}" for number in range(CHUNKS)})
    notes = RecordingObserver()
    outcome = run(embedding, lambda: True, observer=notes)
    assert outcome.yielded
    assert outcome.cached_chunks == CHUNKS - outcome.pending_embeddings > 0
