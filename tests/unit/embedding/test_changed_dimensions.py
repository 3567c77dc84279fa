"""Another model under the same name is noticed by the length of its vectors, which are never compared with old ones."""

import dataclasses

import pytest

from embedding_fixture import EmbeddingFixture
from index_fixture import connection_of
from memoryd_server.embedding.cost import CostLimit
from memoryd_server.sync.progress import SyncMode
from word_provider import WordProvider

TEXTS = {"a": "heron", "b": "kestrel", "c": "stork"}


def server(dimensions=16, model="words"):
    """A provider whose dimensions are not configured."""
    return WordProvider(model, dimensions=dimensions, told=False)


@pytest.fixture
def embedding(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    embedding.use(server())
    embedding.write(**TEXTS)
    yield embedding
    embedding.close()


def sizes(embedding):
    return sorted(vector.size for vector in embedding.vectors().values())


def recorded(embedding):
    with embedding.index.store.read() as reader:
        return reader.vector_identity().dimensions


def record(embedding, dimensions):
    """Remove the dimensions from the index, as in older ones, and reopen it."""
    with embedding.index.store.read() as reader:
        identity = reader.vector_identity()
    vectors = embedding.index.store.writer()
    connection_of(vectors).execute(
        "UPDATE meta SET value = ? WHERE key = 'vector_identity'",
        (dataclasses.replace(identity, dimensions=dimensions).to_json(),),
    )
    embedding.use(embedding.provider)


def check_of(embedding, dimensions, *, pending=0):
    """Every vector of the index has these dimensions, and both the index and the embedder say so."""
    assert set(sizes(embedding)) == {dimensions}
    assert len(sizes(embedding)) + pending == len(TEXTS)
    assert recorded(embedding) == dimensions
    assert embedding.embedder.state.stored.dimensions == dimensions
    assert embedding.embedder.state.pending == pending == embedding.missing()


def test_the_dimensions_are_recorded_with_the_first_vectors(embedding):
    embedding.sync()
    check_of(embedding, 16)


def test_a_rebuild_records_them_too(embedding):
    embedding.sync(SyncMode.FULL)
    check_of(embedding, 16)


def test_vectors_of_another_length_rebuild_all_vectors(embedding):
    embedding.sync()
    embedding.use(server(8))
    embedding.write(c="swan")
    assert embedding.sync().pending_embeddings == 0
    check_of(embedding, 8)
    assert embedding.nearest("swan")[0] == ("memory/c.md", 1.0)


def test_a_change_while_the_daemon_runs_is_found_too(embedding):
    embedding.sync()
    embedding.provider.dimensions = 8
    embedding.write(c="swan")
    before = len(embedding.provider.texts)
    embedding.sync()
    check_of(embedding, 8)
    assert sorted(embedding.provider.texts[before:]) == ["heron", "kestrel", "ping", "swan"], (
        "a text was paid for twice"
    )


def test_a_query_shows_the_change_and_the_next_sync_rebuilds_all_vectors(embedding):
    embedding.sync()
    embedding.provider.dimensions = 8
    embedding.embedder.texts.dimensions = 8
    assert embedding.embedder.state.stored.differences(embedding.embedder.identity) == (("dimensions", "16", "8"),)
    embedding.sync()
    check_of(embedding, 8)
    assert embedding.embedder.state.stored.differences(embedding.embedder.identity) == ()


def test_one_odd_question_costs_no_vector(embedding):
    embedding.sync()
    embedding.embedder.texts.dimensions = 8
    before = len(embedding.provider.texts)
    embedding.sync()
    check_of(embedding, 16)
    assert len(embedding.provider.texts) == before + 1, "it took more than one text to find out"
    assert embedding.embedder.state.stored.differences(embedding.embedder.identity) == ()


def test_while_it_cannot_be_found_out_the_old_vectors_stay(embedding):
    embedding.sync()
    embedding.embedder.texts.dimensions = 8
    embedding.provider.lives = 0
    outcome = embedding.sync()
    assert outcome.embedding_reason == "the provider is down"
    assert sizes(embedding) == [16, 16, 16]


def test_one_text_whose_vector_is_odd_is_refused_and_costs_no_other_vector(embedding):
    embedding.write(b="misshapen")
    outcome = embedding.sync()
    assert (outcome.pending_embeddings, set(embedding.vectors())) == (1, {"heron", "stork"})
    assert "17 dimensions instead of 16" in outcome.embedding_reason
    check_of(embedding, 16, pending=1)
    calls = len(embedding.provider.batches)
    embedding.sync()
    assert len(embedding.provider.batches) == calls


def test_one_vector_of_another_length_is_not_a_change_of_the_model(embedding):
    embedding.sync()
    embedding.write(b="misshapen")
    assert "17 dimensions instead of 16" in embedding.sync().embedding_reason
    check_of(embedding, 16, pending=1)


def test_cached_vectors_of_the_old_model_are_not_used_for_the_new_one(embedding):
    embedding.sync()
    embedding.use(server(8))
    embedding.write(c="swan")
    embedding.sync()
    embedding.write(c="stork")
    embedding.sync()
    check_of(embedding, 8)


def test_an_index_embedded_from_the_cache_notices_the_change_by_a_query(embedding):
    embedding.sync()
    embedding.use(server(8))
    assert embedding.sync(SyncMode.FULL).cached_chunks == 3
    check_of(embedding, 16)
    embedding.embedder.texts.dimensions = 8
    assert embedding.sync().cached_chunks == 0
    check_of(embedding, 8)


def test_a_price_above_the_limit_keeps_the_old_vectors_until_a_full_sync(embedding):
    embedding.sync()
    embedding.use(server(8), CostLimit(3, remote=True))
    embedding.embedder.texts.dimensions = 8
    outcome = embedding.sync()
    assert "confirmAboveTokens" in outcome.embedding_reason
    assert sizes(embedding) == [16, 16, 16]
    assert embedding.embedder.state.stored.differences(embedding.embedder.identity) == (("dimensions", "16", "8"),)
    embedding.sync(SyncMode.FULL)
    check_of(embedding, 8)


def test_the_cost_limit_applies_if_new_text_shows_the_change(embedding):
    embedding.sync()
    embedding.use(server(8), CostLimit(3, remote=True))
    embedding.write(c="swan")
    assert "confirmAboveTokens" in embedding.sync().embedding_reason
    assert sizes(embedding) == [16, 16]


def test_an_index_without_stored_dimensions_has_those_of_its_vectors(embedding):
    embedding.sync()
    record(embedding, 0)
    assert embedding.embedder.state.stored.dimensions == 16
    embedding.embedder.texts.dimensions = 8
    assert embedding.embedder.state.stored.differences(embedding.embedder.identity) == (("dimensions", "16", "8"),)
    embedding.embedder.texts.dimensions = 16
    embedding.sync()
    check_of(embedding, 16)


def test_vectors_of_two_lengths_in_such_an_index_become_of_one(embedding):
    embedding.sync()
    connection = embedding.index.store.writer()._connection
    connection.execute(
        "UPDATE vectors SET embedding = zeroblob(32) WHERE chunk_id = (SELECT max(chunk_id) FROM vectors)"
    )
    record(embedding, 0)
    embedding.sync()
    check_of(embedding, 16)


def test_a_server_that_changes_with_each_call_ends_the_sync_with_the_reason(embedding):
    embedding.sync()

    def other(_texts):
        embedding.provider.dimensions += 1

    embedding.provider.before = other
    embedding.write(c="swan")
    assert "different dimensions in successive calls" in embedding.sync().embedding_reason
