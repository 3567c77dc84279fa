"""Every chunk is embedded once; a chunk that cannot be embedded now stays pending, with the reason."""

import hashlib

import numpy as np
import pytest

from desk import OTHER_IDENTITY, Notes
from memoryd_server.embedding.embedder import CostLimit
from memoryd_server.embedding.run import CHUNKS_A_BATCH
from memoryd_server.errors import SyncCancelled
from memoryd_server.sync.progress import SyncMode, SyncPhase
from shelf import Shelf, new_leg
from word_provider import WordProvider, word_vector


@pytest.fixture
def shelf(tmp_path):
    shelf = Shelf(tmp_path)
    yield shelf
    shelf.close()


def many(shelf, count):
    shelf.write(**{f"n{number:04}": f"note{number}" for number in range(count)})


def after_batch(shelf, number):
    """Return a `should_stop` that is true after this number of batches was requested."""
    return lambda: len(shelf.provider.batches) >= number


def check_settled(shelf):
    """What the embedder says of the index is what the index holds."""
    assert shelf.embedder.state.pending == shelf.missing()
    with shelf.desk.store.read() as reader:
        stored = reader.vector_identity()
    assert shelf.embedder.state.stored == stored


def test_every_chunk_gets_the_vector_of_its_own_text(shelf):
    many(shelf, 300)
    outcome = shelf.sync()
    assert (outcome.cached_chunks, outcome.pending_embeddings, outcome.embedding_reason) == (0, 0, "")
    found = shelf.vectors()
    assert len(found) == 300
    for text, vector in found.items():
        assert np.allclose(vector, word_vector(text))
    assert max(map(len, shelf.provider.batches)) <= CHUNKS_A_BATCH
    assert not shelf.embedder.state.pending
    check_settled(shelf)


def test_a_second_sync_asks_nothing(shelf):
    many(shelf, 5)
    before = shelf.sync()
    asked = len(shelf.provider.batches)
    after = shelf.sync()
    assert len(shelf.provider.batches) == asked
    assert (after.revision, after.changed) == (before.revision, False)


def test_progress_counts_cached_and_new_vectors(shelf):
    shelf.write(a="heron", b="kestrel")
    shelf.sync()
    shelf.write(c="stork")
    notes = Notes()
    outcome = shelf.sync(SyncMode.FULL, notes)
    last = [progress for progress in notes.progresses if progress.phase is SyncPhase.EMBEDDING][-1]
    assert (last.total_chunks, last.completed_chunks, last.cached_chunks) == (3, 3, 2)
    assert outcome.cached_chunks == 2
    assert shelf.provider.texts == ["heron", "kestrel", "stork"]


def test_the_same_text_in_many_files_is_embedded_once(shelf):
    shelf.write(a="heron", b="heron", c="heron")
    outcome = shelf.sync()
    assert shelf.provider.texts == ["heron"]
    assert outcome.pending_embeddings == 0
    assert [path for path, _ in shelf.nearest("heron")] == ["memory/a.md", "memory/b.md", "memory/c.md"]


def test_without_a_cache_every_chunk_is_embedded(shelf):
    shelf.cache.close()
    shelf.embedder._texts._cache = lambda: None
    many(shelf, 3)
    assert shelf.sync().pending_embeddings == 0
    assert len(shelf.vectors()) == 3


def test_a_text_that_is_refused_costs_no_other_its_vector(shelf):
    shelf.write(a="heron", b="unspeakable", c="stork")
    outcome = shelf.sync()
    assert set(shelf.vectors()) == {"heron", "stork"}
    assert outcome.pending_embeddings == 1
    assert outcome.embedding_reason.startswith("1 chunk was refused by the provider: the text is refused")
    assert shelf.embedder.state.reason == outcome.embedding_reason
    shelf.write(b="swan")
    assert shelf.sync().pending_embeddings == 0
    assert shelf.embedder.state.reason == ""


def test_a_stop_between_batches_keeps_the_vectors_made(shelf):
    many(shelf, 3 * CHUNKS_A_BATCH)
    stop = []
    notes = Notes()
    notes.on_progress = lambda p: p.phase is SyncPhase.EMBEDDING and p.completed_chunks and stop.append(1)
    with pytest.raises(SyncCancelled):
        shelf.sync(notes=notes, should_stop=lambda: bool(stop))
    assert len(shelf.vectors()) == CHUNKS_A_BATCH
    check_settled(shelf)
    shelf.sync()
    assert len(shelf.provider.texts) == 3 * CHUNKS_A_BATCH
    check_settled(shelf)


def test_a_stop_within_a_batch_keeps_its_finished_vectors(shelf):
    many(shelf, 2 * CHUNKS_A_BATCH)
    with pytest.raises(SyncCancelled):
        shelf.sync(should_stop=after_batch(shelf, 1))
    check_settled(shelf)
    assert shelf.sync().pending_embeddings == 0


def test_a_stopped_rebuild_keeps_the_vectors_of_the_cache_and_the_index_as_it_was(shelf):
    many(shelf, 2 * CHUNKS_A_BATCH)
    shelf.sync()
    shelf.use(WordProvider("other"))
    stop = []
    notes = Notes()
    notes.on_progress = lambda p: p.phase is SyncPhase.EMBEDDING and stop.append(1)
    with pytest.raises(SyncCancelled):
        shelf.sync(SyncMode.FULL, notes, lambda: bool(stop))
    check_settled(shelf)
    assert shelf.embedder.state.stored.model == "words"
    assert len(shelf.vectors()) == 2 * CHUNKS_A_BATCH
    shelf.sync(SyncMode.FULL)
    assert len(shelf.provider.texts) == 2 * CHUNKS_A_BATCH


def test_a_provider_that_dies_midway_leaves_the_rest_pending_with_the_reason(shelf):
    many(shelf, 2 * CHUNKS_A_BATCH + 7)
    shelf.provider.lives = 2
    outcome = shelf.sync()
    assert (outcome.pending_embeddings, outcome.embedding_reason) == (7, "the provider is down")
    assert len(shelf.vectors()) == 2 * CHUNKS_A_BATCH
    check_settled(shelf)
    shelf.provider.lives = None
    assert shelf.sync().pending_embeddings == 0
    assert len(shelf.provider.texts) == 2 * CHUNKS_A_BATCH + 7


def test_another_identity_clears_and_refills(shelf):
    many(shelf, 4)
    shelf.sync()
    assert len(shelf.nearest("note1")) == 4
    shelf.use(WordProvider("other", dimensions=24))
    shelf.provider.lives = 0
    assert shelf.sync().pending_embeddings == 4
    assert shelf.vectors() == {}
    assert shelf.nearest("note1") == []
    check_settled(shelf)
    shelf.provider.lives = None
    assert shelf.sync().pending_embeddings == 0
    assert {len(vector) for vector in shelf.vectors().values()} == {24}
    assert shelf.nearest("note1")[0] == ("memory/n0001.md", 1.0)
    shelf.use(WordProvider())
    asked = len(shelf.provider.batches)
    assert shelf.sync().cached_chunks == 4
    assert len(shelf.provider.batches) == asked


def test_during_a_rebuild_the_state_is_that_of_the_index_which_answers(shelf):
    """Or a question of the new model would meet the old one's vectors."""
    many(shelf, 4)
    shelf.sync()
    shelf.use(WordProvider("other"))
    seen = []
    shelf.provider.before = lambda _texts: seen.append((shelf.embedder.state.stored.model, len(shelf.vectors())))
    shelf.sync(SyncMode.FULL)
    assert seen == [("words", 4)]
    assert shelf.embedder.state.stored.model == "other"
    check_settled(shelf)


def test_other_chunking_rebuilds_from_the_cache_what_has_not_changed(shelf):
    many(shelf, 4)
    shelf.sync()
    shelf.open(OTHER_IDENTITY)
    assert shelf.sync().cached_chunks == 4
    assert len(shelf.provider.batches) == 1
    check_settled(shelf)


def test_a_price_above_the_limit_is_refused_until_a_full_sync(shelf):
    shelf.use(WordProvider(), CostLimit(100, remote=True))
    shelf.write(a="heron " * 100, b="stork " * 100)
    outcome = shelf.sync()
    assert outcome.pending_embeddings == 2
    assert "confirmAboveTokens" in outcome.embedding_reason
    assert shelf.provider.batches == []
    check_settled(shelf)
    assert shelf.engine().estimate(SyncMode.INCREMENTAL).estimated_tokens > 100
    outcome = shelf.sync(SyncMode.FULL)
    assert (outcome.pending_embeddings, outcome.embedding_reason) == (0, "")
    check_settled(shelf)
    shelf.write(c="a small note")
    assert shelf.sync().pending_embeddings == 0


def test_a_refused_change_of_identity_leaves_the_old_vectors(shelf):
    shelf.write(a="heron " * 100)
    shelf.sync()
    shelf.use(WordProvider("other"), CostLimit(100, remote=True))
    outcome = shelf.sync()
    assert "confirmAboveTokens" in outcome.embedding_reason
    assert len(shelf.vectors()) == 1
    assert shelf.embedder.state.stored.model == "words"


@pytest.mark.parametrize("guard", [CostLimit(100, remote=False), CostLimit(0, remote=True)])
def test_a_local_provider_and_a_limit_of_zero_never_ask(shelf, guard):
    shelf.use(WordProvider(), guard)
    shelf.write(a="heron " * 1_000)
    assert shelf.sync().pending_embeddings == 0


def test_vectors_of_removed_files_are_gone(shelf):
    shelf.write(a="heron", b="kestrel", c="stork")
    shelf.sync()
    assert len(shelf.nearest("heron")) == 3
    shelf.remove("a")
    shelf.write(b="swan")
    shelf.sync()
    assert set(shelf.vectors()) == {"swan", "stork"}
    assert sorted(path for path, _ in shelf.nearest("heron")) == ["memory/b.md", "memory/c.md"]


def test_vectors_in_memory_equal_those_of_a_new_load(shelf):
    """Chunk ids are reused after the last chunk is removed, which must not restore an old vector."""
    random = np.random.default_rng(7)
    words = [hashlib.sha256(str(n).encode()).hexdigest()[:6] for n in range(30)]
    shelf.sync()
    shelf.nearest("warm")
    for step in range(40):
        name = f"f{random.integers(0, 8)}"
        if random.random() < 0.3 and (shelf.desk.workspace / "memory" / f"{name}.md").exists():
            shelf.remove(name)
        else:
            shelf.write(**{name: " ".join(random.choice(words, 5))})
        shelf.provider.lives = 0 if step % 7 == 3 else None
        shelf.sync(SyncMode.FULL if step % 11 == 5 else SyncMode.INCREMENTAL)
        question = " ".join(random.choice(words, 3))
        assert shelf.nearest(question) == shelf.nearest(question, new_leg())
        assert len(shelf.nearest(question)) == len(shelf.vectors())
        check_settled(shelf)
