"""Another model under the same name is noticed by the length of its vectors, which are never compared with old ones."""

import dataclasses

import pytest

from memoryd_server.embedding.embedder import CostLimit
from memoryd_server.sync.progress import SyncMode
from shelf import Shelf
from word_provider import WordProvider

TEXTS = {"a": "heron", "b": "kestrel", "c": "stork"}


def server(dimensions=16, model="words"):
    """A provider whose dimensions are not configured."""
    return WordProvider(model, dimensions=dimensions, told=False)


@pytest.fixture
def shelf(tmp_path):
    shelf = Shelf(tmp_path)
    shelf.use(server())
    shelf.write(**TEXTS)
    yield shelf
    shelf.close()


def sizes(shelf):
    return sorted(vector.size for vector in shelf.vectors().values())


def recorded(shelf):
    with shelf.desk.store.read() as reader:
        return reader.vector_identity().dimensions


def record(shelf, dimensions):
    """Remove the dimensions from the index, as in older ones, and reopen it."""
    with shelf.desk.store.read() as reader:
        identity = reader.vector_identity()
    vectors = shelf.desk.store.writer()
    vectors._connection.execute(
        "UPDATE meta SET value = ? WHERE key = 'vector_identity'",
        (dataclasses.replace(identity, dimensions=dimensions).to_json(),),
    )
    shelf.use(shelf.provider)


def check_of(shelf, dimensions, *, pending=0):
    """Every vector of the index has these dimensions, and both the index and the embedder say so."""
    assert set(sizes(shelf)) == {dimensions}
    assert len(sizes(shelf)) + pending == len(TEXTS)
    assert recorded(shelf) == dimensions
    assert shelf.embedder.state.stored.dimensions == dimensions
    assert shelf.embedder.state.pending == pending == shelf.missing()


def test_the_dimensions_are_recorded_with_the_first_vectors(shelf):
    shelf.sync()
    check_of(shelf, 16)


def test_a_rebuild_records_them_too(shelf):
    shelf.sync(SyncMode.FULL)
    check_of(shelf, 16)


def test_vectors_of_another_length_rebuild_all_vectors(shelf):
    shelf.sync()
    shelf.use(server(8))
    shelf.write(c="swan")
    assert shelf.sync().pending_embeddings == 0
    check_of(shelf, 8)
    assert shelf.nearest("swan")[0] == ("memory/c.md", 1.0)


def test_a_change_while_the_daemon_runs_is_found_too(shelf):
    shelf.sync()
    shelf.provider.dimensions = 8
    shelf.write(c="swan")
    before = len(shelf.provider.texts)
    shelf.sync()
    check_of(shelf, 8)
    assert sorted(shelf.provider.texts[before:]) == ["heron", "kestrel", "ping", "swan"], "a text was paid for twice"


def test_a_query_shows_the_change_and_the_next_sync_rebuilds_all_vectors(shelf):
    shelf.sync()
    shelf.provider.dimensions = 8
    shelf.embedder.observe_dimensions(8)
    assert shelf.embedder.state.stored.differences(shelf.embedder.identity) == (("dimensions", "16", "8"),)
    shelf.sync()
    check_of(shelf, 8)
    assert shelf.embedder.state.stored.differences(shelf.embedder.identity) == ()


def test_one_odd_question_costs_no_vector(shelf):
    shelf.sync()
    shelf.embedder.observe_dimensions(8)
    before = len(shelf.provider.texts)
    shelf.sync()
    check_of(shelf, 16)
    assert len(shelf.provider.texts) == before + 1, "it took more than one text to find out"
    assert shelf.embedder.state.stored.differences(shelf.embedder.identity) == ()


def test_while_it_cannot_be_found_out_the_old_vectors_stay(shelf):
    shelf.sync()
    shelf.embedder.observe_dimensions(8)
    shelf.provider.lives = 0
    outcome = shelf.sync()
    assert outcome.embedding_reason == "the provider is down"
    assert sizes(shelf) == [16, 16, 16]


def test_one_text_whose_vector_is_odd_is_refused_and_costs_no_other_vector(shelf):
    shelf.write(b="misshapen")
    outcome = shelf.sync()
    assert (outcome.pending_embeddings, set(shelf.vectors())) == (1, {"heron", "stork"})
    assert "17 dimensions instead of 16" in outcome.embedding_reason
    check_of(shelf, 16, pending=1)
    calls = len(shelf.provider.batches)
    shelf.sync()
    assert len(shelf.provider.batches) == calls


def test_one_vector_of_another_length_is_not_a_change_of_the_model(shelf):
    shelf.sync()
    shelf.write(b="misshapen")
    assert "17 dimensions instead of 16" in shelf.sync().embedding_reason
    check_of(shelf, 16, pending=1)


def test_cached_vectors_of_the_old_model_are_not_used_for_the_new_one(shelf):
    shelf.sync()
    shelf.use(server(8))
    shelf.write(c="swan")
    shelf.sync()
    shelf.write(c="stork")
    shelf.sync()
    check_of(shelf, 8)


def test_an_index_embedded_from_the_cache_notices_the_change_by_a_query(shelf):
    shelf.sync()
    shelf.use(server(8))
    assert shelf.sync(SyncMode.FULL).cached_chunks == 3
    check_of(shelf, 16)
    shelf.embedder.observe_dimensions(8)
    assert shelf.sync().cached_chunks == 0
    check_of(shelf, 8)


def test_a_price_above_the_limit_keeps_the_old_vectors_until_a_full_sync(shelf):
    shelf.sync()
    shelf.use(server(8), CostLimit(3, remote=True))
    shelf.embedder.observe_dimensions(8)
    outcome = shelf.sync()
    assert "confirmAboveTokens" in outcome.embedding_reason
    assert sizes(shelf) == [16, 16, 16]
    assert shelf.embedder.state.stored.differences(shelf.embedder.identity) == (("dimensions", "16", "8"),)
    shelf.sync(SyncMode.FULL)
    check_of(shelf, 8)


def test_the_cost_limit_applies_if_new_text_shows_the_change(shelf):
    shelf.sync()
    shelf.use(server(8), CostLimit(3, remote=True))
    shelf.write(c="swan")
    assert "confirmAboveTokens" in shelf.sync().embedding_reason
    assert sizes(shelf) == [16, 16]


def test_an_index_without_stored_dimensions_has_those_of_its_vectors(shelf):
    shelf.sync()
    record(shelf, 0)
    assert shelf.embedder.state.stored.dimensions == 16
    shelf.embedder.observe_dimensions(8)
    assert shelf.embedder.state.stored.differences(shelf.embedder.identity) == (("dimensions", "16", "8"),)
    shelf.embedder.observe_dimensions(16)
    shelf.sync()
    check_of(shelf, 16)


def test_vectors_of_two_lengths_in_such_an_index_become_of_one(shelf):
    shelf.sync()
    connection = shelf.desk.store.writer()._connection
    connection.execute(
        "UPDATE vectors SET embedding = zeroblob(32) WHERE chunk_id = (SELECT max(chunk_id) FROM vectors)"
    )
    record(shelf, 0)
    shelf.sync()
    check_of(shelf, 16)


def test_a_server_that_changes_with_each_call_ends_the_sync_with_the_reason(shelf):
    shelf.sync()

    def other(_texts):
        shelf.provider.dimensions += 1

    shelf.provider.before = other
    shelf.write(c="swan")
    assert "different dimensions in successive calls" in shelf.sync().embedding_reason
