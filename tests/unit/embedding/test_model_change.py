"""Vectors of another model are made in a staged set; the old ones stay in use until it is complete."""

import pytest

from embedding_fixture import EmbeddingFixture, new_vector_index
from index_fixture import OTHER_IDENTITY, RecordingObserver, connection_of
from memoryd_server.embedding.cost import CostLimit
from memoryd_server.embedding.run import CHUNKS_A_BATCH
from memoryd_server.errors import SyncCancelled
from memoryd_server.sync.progress import SyncMode
from word_provider import WordProvider

FULL = SyncMode.FULL


@pytest.fixture
def embedding(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    yield embedding
    embedding.close()


def many(embedding, count):
    embedding.write(**{f"n{number:04}": f"note{number}" for number in range(count)})


def changed(embedding, count=4, model="other", dimensions=24):
    """An index of `count` chunks with vectors of the first model, and settings that name another."""
    many(embedding, count)
    embedding.sync()
    embedding.use(WordProvider(model, dimensions=dimensions))
    return embedding.provider


def model_of(embedding):
    """The model of the stored vectors, and that of the staged ones."""
    with embedding.index.store.read() as reader:
        staged = reader.staged()
        return reader.vector_identity().model, None if staged is None else staged.vector_identity().model


def lengths(embedding):
    return {len(vector) for vector in embedding.vectors().values()}


def paid(provider):
    return [text for text in provider.texts if text != "ping"]


def interrupted(embedding):
    """A change that was stopped after its first batch."""
    stop, notes = [], RecordingObserver()
    notes.on_progress = lambda progress: stop.append(1) if progress.completed_chunks >= CHUNKS_A_BATCH else None
    with pytest.raises(SyncCancelled):
        embedding.sync(observer=notes, should_stop=lambda: bool(stop))


@pytest.mark.parametrize("mode", SyncMode)
def test_a_provider_that_fails_its_probe_costs_no_vector(embedding, mode):
    provider = changed(embedding)
    provider.lives = 0
    outcome = embedding.sync(mode)
    assert (outcome.pending_embeddings, outcome.embedding_reason) == (4, "the provider is down")
    assert model_of(embedding) == ("words", None)
    assert len(embedding.vectors()) == 4
    state = embedding.embedder.state
    assert (state.stored.model, state.pending, state.staged) == ("words", 4, None)


def test_the_probe_is_one_text(embedding):
    provider = changed(embedding)
    provider.lives = 1
    embedding.sync()
    assert provider.texts == ["ping"]
    assert model_of(embedding) == ("words", "other")


@pytest.mark.parametrize("mode", SyncMode)
def test_the_old_vectors_are_in_use_until_the_new_ones_are_complete(embedding, mode):
    provider, seen = changed(embedding, 2 * CHUNKS_A_BATCH), []
    provider.before = lambda _texts: seen.append((*model_of(embedding), len(embedding.vectors()), lengths(embedding)))
    assert embedding.sync(mode).pending_embeddings == 0
    assert seen[0] == ("words", None, 2 * CHUNKS_A_BATCH, {16})
    assert seen[1:] == [("words", "other", 2 * CHUNKS_A_BATCH, {16})] * 2
    assert model_of(embedding) == ("other", None)
    assert lengths(embedding) == {24}
    assert embedding.nearest("note1")[0] == ("memory/n0001.md", 1.0)
    assert embedding.nearest("note1") == embedding.nearest("note1", new_vector_index())


def test_vectors_in_memory_are_those_of_the_new_model_after_the_switch(embedding):
    provider = changed(embedding, 30, dimensions=16)
    before = embedding.nearest("note9")
    provider.vector = lambda text: WordProvider().vector(text[::-1])
    embedding.sync()
    assert embedding.nearest("note9") == embedding.nearest("note9", new_vector_index()) != before
    assert ("memory/n0009.md", 1.0) in embedding.nearest("9eton")


@pytest.mark.slow
def test_a_change_that_fails_midway_continues_and_embeds_nothing_twice(embedding):
    provider = changed(embedding, 2 * CHUNKS_A_BATCH + 7)
    embedding.embedder.texts._cache = lambda: None
    provider.lives = 2
    outcome = embedding.sync()
    assert (outcome.pending_embeddings, outcome.embedding_reason) == (CHUNKS_A_BATCH + 7, "the provider is down")
    assert (model_of(embedding), lengths(embedding)) == (("words", "other"), {16})
    assert embedding.embedder.state.pending == CHUNKS_A_BATCH + 7
    provider.lives = None
    assert embedding.sync().pending_embeddings == 0
    assert (model_of(embedding), lengths(embedding)) == (("other", None), {24})
    assert len(paid(provider)) == len(set(paid(provider))) == 2 * CHUNKS_A_BATCH + 7
    assert provider.texts.count("ping") == 1


@pytest.mark.slow
def test_after_a_restart_the_state_counts_the_staged_vectors(embedding):
    changed(embedding, 2 * CHUNKS_A_BATCH + 7)
    interrupted(embedding)
    embedding.use(WordProvider("other", dimensions=24))
    state = embedding.embedder.state
    assert (state.stored.model, state.staged.model, state.pending) == ("words", "other", CHUNKS_A_BATCH + 7)
    assert embedding.engine().estimate(SyncMode.INCREMENTAL).cache_misses == CHUNKS_A_BATCH + 7


def test_a_change_back_deletes_the_staged_vectors_and_sends_nothing(embedding):
    changed(embedding, CHUNKS_A_BATCH + 7)
    interrupted(embedding)
    embedding.use(WordProvider())
    assert embedding.sync().pending_embeddings == 0
    assert model_of(embedding) == ("words", None)
    assert embedding.provider.texts == []
    assert len(embedding.vectors()) == CHUNKS_A_BATCH + 7


@pytest.mark.slow
def test_a_second_change_replaces_the_staged_vectors_of_the_first(embedding):
    first = changed(embedding, CHUNKS_A_BATCH + 7)
    interrupted(embedding)
    embedding.use(WordProvider("third", dimensions=8))
    interrupted(embedding)
    assert model_of(embedding) == ("words", "third")
    embedding.sync()
    assert (model_of(embedding), lengths(embedding)) == (("third", None), {8})
    embedding.use(first)
    embedding.sync()
    assert (model_of(embedding), lengths(embedding)) == (("other", None), {24})
    assert len(paid(first)) == len(set(paid(first))), "the cache keeps the vectors of the abandoned change"


def test_going_back_to_an_earlier_model_costs_one_probe(embedding):
    changed(embedding)
    embedding.sync()
    embedding.use(WordProvider())
    assert embedding.sync().cached_chunks == 4
    assert embedding.provider.texts == ["ping"]
    assert (model_of(embedding), lengths(embedding)) == (("words", None), {16})


@pytest.mark.slow
def test_files_that_change_meanwhile_are_in_the_new_set(embedding):
    changed(embedding, CHUNKS_A_BATCH + 7)
    interrupted(embedding)
    embedding.remove("n0000")
    embedding.write(n0001="swan", later="stork")
    embedding.sync()
    assert model_of(embedding) == ("other", None)
    assert len(embedding.vectors()) == CHUNKS_A_BATCH + 7
    assert {"swan", "stork"} < set(embedding.vectors())
    assert ("memory/n0001.md", 1.0) in embedding.nearest("swan")


def test_a_refused_text_does_not_prevent_the_switch(embedding):
    changed(embedding)
    embedding.write(odd="unspeakable")
    outcome = embedding.sync()
    assert outcome.pending_embeddings == 1
    assert "1 chunk was refused" in outcome.embedding_reason
    assert model_of(embedding) == ("other", None)
    assert embedding.embedder.state.refused == 1


def test_a_provider_that_embeds_only_the_probe_replaces_nothing(embedding):
    provider = changed(embedding)
    provider.bad = "note"
    assert embedding.sync().pending_embeddings == 4
    assert model_of(embedding) == ("words", "other")
    assert len(embedding.vectors()) == 4
    provider.bad = "unspeakable"
    assert embedding.sync(FULL).pending_embeddings == 0
    assert model_of(embedding) == ("other", None)


@pytest.mark.slow
def test_a_full_sync_in_the_middle_keeps_both_sets(embedding):
    provider = changed(embedding, 2 * CHUNKS_A_BATCH)
    embedding.embedder.texts._cache = lambda: None
    interrupted(embedding)
    seen = []
    provider.before = lambda _texts: seen.append((model_of(embedding), len(embedding.vectors())))
    embedding.sync(FULL)
    assert set(seen) == {(("words", "other"), 2 * CHUNKS_A_BATCH)}
    assert (model_of(embedding), lengths(embedding)) == (("other", None), {24})
    assert len(paid(provider)) == len(set(paid(provider)))


def test_a_change_of_model_and_chunk_sizes_keeps_the_vectors_of_unchanged_texts(embedding):
    changed(embedding)
    provider = embedding.provider
    embedding.open(OTHER_IDENTITY)
    provider.lives = 0
    embedding.sync()
    assert (model_of(embedding), len(embedding.vectors())) == (("words", None), 4)
    provider.lives = None
    embedding.sync()
    assert model_of(embedding) == ("other", None)


def test_a_cost_above_the_limit_is_asked_before_the_probe(embedding):
    many(embedding, 40)
    embedding.sync()
    embedding.use(WordProvider("other"), CostLimit(10, remote=True))
    assert "confirmAboveTokens" in embedding.sync().embedding_reason
    assert (embedding.provider.texts, model_of(embedding)) == ([], ("words", None))
    assert embedding.sync(FULL).pending_embeddings == 0
    assert model_of(embedding) == ("other", None)


@pytest.mark.slow
def test_an_approved_change_that_yields_to_changed_files_needs_no_second_approval(embedding):
    many(embedding, 2 * CHUNKS_A_BATCH)
    embedding.sync()
    embedding.use(WordProvider("other"), CostLimit(10, remote=True))
    engine = embedding.engine()
    outcome = engine.run(FULL, RecordingObserver(), lambda: False, lambda: True)
    assert outcome.yielded
    assert model_of(embedding) == ("words", "other")
    outcome = engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    assert (outcome.pending_embeddings, model_of(embedding)) == (0, ("other", None))
    assert len(paid(embedding.provider)) == 2 * CHUNKS_A_BATCH


@pytest.mark.slow
def test_staged_vectors_of_an_index_that_an_older_memoryd_changed_are_deleted(embedding):
    changed(embedding, CHUNKS_A_BATCH + 7)
    interrupted(embedding)
    connection_of(embedding.index.store.writer()).execute("UPDATE meta SET value = value + 1 WHERE key = 'revision'")
    embedding.index.store.close()
    embedding.index.store.open()
    assert model_of(embedding) == ("words", None)


@pytest.mark.slow
def test_changes_of_the_model_do_not_enlarge_the_index_further(embedding):
    many(embedding, 60)
    sizes = []
    for number in range(5):
        embedding.use(WordProvider(f"model{number}", dimensions=512))
        embedding.sync()
        embedding.index.store.release_memory()
        sizes.append(embedding.index.store.sizes().database_bytes)
    assert sizes[-1] <= 1.05 * sizes[1], "an index holds at most two sets of vectors"
