"""Every chunk is embedded once; a chunk that cannot be embedded now stays pending, with the reason."""

import hashlib

import numpy as np
import pytest

from embedding_fixture import EmbeddingFixture, new_vector_index
from index_fixture import OTHER_IDENTITY, RecordingObserver
from memoryd_server.embedding.cost import CostLimit
from memoryd_server.embedding.run import CHUNKS_A_BATCH
from memoryd_server.errors import SyncCancelled
from memoryd_server.sync.progress import SyncMode, SyncPhase
from word_provider import WordProvider, word_vector


@pytest.fixture
def embedding(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    yield embedding
    embedding.close()


def many(embedding, count):
    embedding.write(**{f"n{number:04}": f"note{number}" for number in range(count)})


def after_batch(embedding, number):
    """Return a `should_stop` that is true after this number of batches was requested."""
    return lambda: len(embedding.provider.batches) >= number


def check_settled(embedding):
    """What the embedder says of the index is what the index holds."""
    assert embedding.embedder.state.pending == embedding.missing()
    with embedding.index.store.read() as reader:
        stored = reader.vector_identity()
    assert embedding.embedder.state.stored == stored


def test_every_chunk_gets_the_vector_of_its_own_text(embedding):
    many(embedding, 300)
    outcome = embedding.sync()
    assert (outcome.cached_chunks, outcome.pending_embeddings, outcome.embedding_reason) == (0, 0, "")
    found = embedding.vectors()
    assert len(found) == 300
    for text, vector in found.items():
        assert np.allclose(vector, word_vector(text))
    assert max(map(len, embedding.provider.batches)) <= CHUNKS_A_BATCH
    assert not embedding.embedder.state.pending
    check_settled(embedding)


def test_a_second_sync_asks_nothing(embedding):
    many(embedding, 5)
    before = embedding.sync()
    asked = len(embedding.provider.batches)
    after = embedding.sync()
    assert len(embedding.provider.batches) == asked
    assert (after.revision, after.changed) == (before.revision, False)


def test_progress_counts_cached_and_new_vectors(embedding):
    embedding.write(a="heron", b="kestrel")
    embedding.sync()
    embedding.write(c="stork")
    notes = RecordingObserver()
    outcome = embedding.sync(SyncMode.FULL, notes)
    last = [progress for progress in notes.progresses if progress.phase is SyncPhase.EMBEDDING][-1]
    assert (last.total_chunks, last.completed_chunks, last.cached_chunks) == (3, 3, 2)
    assert outcome.cached_chunks == 2
    assert embedding.provider.texts == ["heron", "kestrel", "stork"]


def test_the_same_text_in_many_files_is_embedded_once(embedding):
    embedding.write(a="heron", b="heron", c="heron")
    outcome = embedding.sync()
    assert embedding.provider.texts == ["heron"]
    assert outcome.pending_embeddings == 0
    assert [path for path, _ in embedding.nearest("heron")] == ["memory/a.md", "memory/b.md", "memory/c.md"]


def test_without_a_cache_every_chunk_is_embedded(embedding):
    embedding.cache.close()
    embedding.embedder.texts._cache = lambda: None
    many(embedding, 3)
    assert embedding.sync().pending_embeddings == 0
    assert len(embedding.vectors()) == 3


def test_a_text_that_is_refused_costs_no_other_its_vector(embedding):
    embedding.write(a="heron", b="unspeakable", c="stork")
    outcome = embedding.sync()
    assert set(embedding.vectors()) == {"heron", "stork"}
    assert outcome.pending_embeddings == 1
    assert outcome.embedding_reason.startswith("1 chunk was refused by the provider: the text is refused")
    assert embedding.embedder.state.reason == outcome.embedding_reason
    embedding.write(b="swan")
    assert embedding.sync().pending_embeddings == 0
    assert embedding.embedder.state.reason == ""


def test_a_stop_between_batches_keeps_the_vectors_made(embedding):
    many(embedding, 3 * CHUNKS_A_BATCH)
    stop = []
    notes = RecordingObserver()
    notes.on_progress = lambda p: p.phase is SyncPhase.EMBEDDING and p.completed_chunks and stop.append(1)
    with pytest.raises(SyncCancelled):
        embedding.sync(observer=notes, should_stop=lambda: bool(stop))
    assert len(embedding.vectors()) == CHUNKS_A_BATCH
    check_settled(embedding)
    embedding.sync()
    assert len(embedding.provider.texts) == 3 * CHUNKS_A_BATCH
    check_settled(embedding)


def test_a_stop_within_a_batch_keeps_its_finished_vectors(embedding):
    many(embedding, 2 * CHUNKS_A_BATCH)
    with pytest.raises(SyncCancelled):
        embedding.sync(should_stop=after_batch(embedding, 1))
    check_settled(embedding)
    assert embedding.sync().pending_embeddings == 0


def test_a_stopped_rebuild_keeps_the_vectors_of_the_cache_and_the_index_as_it_was(embedding):
    many(embedding, 2 * CHUNKS_A_BATCH)
    embedding.sync()
    embedding.use(WordProvider("other"))
    stop = []
    notes = RecordingObserver()
    notes.on_progress = lambda p: p.phase is SyncPhase.EMBEDDING and stop.append(1)
    with pytest.raises(SyncCancelled):
        embedding.sync(SyncMode.FULL, notes, lambda: bool(stop))
    assert embedding.embedder.state.stored.model == "words"
    assert len(embedding.vectors()) == 2 * CHUNKS_A_BATCH
    embedding.sync(SyncMode.FULL)
    assert sorted(embedding.provider.texts) == sorted({*embedding.vectors(), "ping"}), "a text was paid for twice"


def test_a_provider_that_dies_midway_leaves_the_rest_pending_with_the_reason(embedding):
    many(embedding, 2 * CHUNKS_A_BATCH + 7)
    embedding.provider.lives = 2
    outcome = embedding.sync()
    assert (outcome.pending_embeddings, outcome.embedding_reason) == (7, "the provider is down")
    assert len(embedding.vectors()) == 2 * CHUNKS_A_BATCH
    check_settled(embedding)
    embedding.provider.lives = None
    assert embedding.sync().pending_embeddings == 0
    assert len(embedding.provider.texts) == 2 * CHUNKS_A_BATCH + 7


def test_during_a_rebuild_the_state_is_that_of_the_index_which_answers(embedding):
    """Or a question of the new model would meet the old one's vectors."""
    many(embedding, 4)
    embedding.sync()
    embedding.use(WordProvider("other"))
    seen = []
    embedding.provider.before = lambda _texts: seen.append(
        (embedding.embedder.state.stored.model, len(embedding.vectors()))
    )
    embedding.sync(SyncMode.FULL)
    assert seen == [("words", 4), ("words", 4)], "at the probe, and at the texts"
    assert embedding.embedder.state.stored.model == "other"
    check_settled(embedding)


def test_other_chunking_rebuilds_from_the_cache_what_has_not_changed(embedding):
    many(embedding, 4)
    embedding.sync()
    embedding.open(OTHER_IDENTITY)
    assert embedding.sync().cached_chunks == 4
    assert len(embedding.provider.batches) == 1
    check_settled(embedding)


def test_a_price_above_the_limit_is_refused_until_a_full_sync(embedding):
    embedding.use(WordProvider(), CostLimit(100, remote=True))
    embedding.write(a="heron " * 100, b="stork " * 100)
    outcome = embedding.sync()
    assert outcome.pending_embeddings == 2
    assert "confirmAboveTokens" in outcome.embedding_reason
    assert embedding.provider.batches == []
    check_settled(embedding)
    assert embedding.engine().estimate(SyncMode.INCREMENTAL).estimated_tokens > 100
    outcome = embedding.sync(SyncMode.FULL)
    assert (outcome.pending_embeddings, outcome.embedding_reason) == (0, "")
    check_settled(embedding)
    embedding.write(c="a small note")
    assert embedding.sync().pending_embeddings == 0


def test_a_refused_change_of_identity_leaves_the_old_vectors(embedding):
    embedding.write(a="heron " * 100)
    embedding.sync()
    embedding.use(WordProvider("other"), CostLimit(100, remote=True))
    outcome = embedding.sync()
    assert "confirmAboveTokens" in outcome.embedding_reason
    assert len(embedding.vectors()) == 1
    assert embedding.embedder.state.stored.model == "words"


@pytest.mark.parametrize("guard", [CostLimit(100, remote=False), CostLimit(0, remote=True)])
def test_a_local_provider_and_a_limit_of_zero_never_ask(embedding, guard):
    embedding.use(WordProvider(), guard)
    embedding.write(a="heron " * 1_000)
    assert embedding.sync().pending_embeddings == 0


def test_vectors_of_removed_files_are_gone(embedding):
    embedding.write(a="heron", b="kestrel", c="stork")
    embedding.sync()
    assert len(embedding.nearest("heron")) == 3
    embedding.remove("a")
    embedding.write(b="swan")
    embedding.sync()
    assert set(embedding.vectors()) == {"swan", "stork"}
    assert sorted(path for path, _ in embedding.nearest("heron")) == ["memory/b.md", "memory/c.md"]


def test_vectors_in_memory_equal_those_of_a_new_load(embedding):
    """Chunk ids are reused after the last chunk is removed, which must not restore an old vector."""
    random = np.random.default_rng(7)
    words = [hashlib.sha256(str(n).encode()).hexdigest()[:6] for n in range(30)]
    embedding.sync()
    embedding.nearest("warm")
    for step in range(40):
        name = f"f{random.integers(0, 8)}"
        if random.random() < 0.3 and (embedding.index.workspace / "memory" / f"{name}.md").exists():
            embedding.remove(name)
        else:
            embedding.write(**{name: " ".join(random.choice(words, 5))})
        embedding.provider.lives = 0 if step % 7 == 3 else None
        embedding.sync(SyncMode.FULL if step % 11 == 5 else SyncMode.INCREMENTAL)
        question = " ".join(random.choice(words, 3))
        assert embedding.nearest(question) == embedding.nearest(question, new_vector_index())
        assert len(embedding.nearest(question)) == len(embedding.vectors())
        check_settled(embedding)
