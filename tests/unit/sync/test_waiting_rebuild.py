"""A rebuild for other chunk sizes that would cost too much waits, and searches use the complete old index."""

import dataclasses

import numpy as np
import pytest

from desk import IDENTITY, OTHER_IDENTITY, SOUND, Notes
from memoryd_server.embedding.embedder import CostLimit
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Clock
from memoryd_server.sync.progress import SyncMode
from memoryd_server.sync.rebuild import PRICE_VALID_SECONDS
from shelf import Shelf
from word_provider import WordProvider, word_vector

DEAR = CostLimit(300, remote=True)
LONG = "\n\n".join(f"heron {number} " * 20 for number in range(20))


@pytest.fixture
def shelf(tmp_path):
    shelf = Shelf(tmp_path)
    shelf.write(long=LONG, short="stork")
    shelf.sync()
    yield shelf
    shelf.close()


def rechunked(shelf, identity=OTHER_IDENTITY, guard=DEAR):
    """The same index after the chunk sizes were changed, with what it holds."""
    shelf.open(identity)
    shelf.use(shelf.provider, guard)
    return shelf.desk.rows()[0], shelf.vectors()


def check_same_vectors(shelf, before):
    now = shelf.vectors()
    assert set(now) == set(before)
    assert all(np.array_equal(now[text], before[text]) for text in now)


def test_the_old_index_keeps_its_chunks_and_vectors_and_says_what_a_rebuild_costs(shelf):
    rows, vectors = rechunked(shelf)
    asked = len(shelf.provider.batches)
    engine = shelf.engine()
    assert engine.rebuild_due
    outcome = engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False)
    assert (outcome.changed, outcome.pending_embeddings) == (False, 0)
    assert shelf.desk.rows()[0] == rows
    check_same_vectors(shelf, vectors)
    assert len(shelf.provider.batches) == asked
    assert not engine.rebuild_due
    tokens = engine.estimate(SyncMode.INCREMENTAL).estimated_tokens
    assert tokens > DEAR.confirm_above_tokens
    assert f"about {tokens:,} tokens" in engine.rebuild_waits
    assert "memoryd index --force" in engine.rebuild_waits
    assert shelf.desk.store.build_differences == (("chunk_tokens", "400", "40"),)


def test_a_full_sync_rebuilds_and_nothing_waits_any_more(shelf):
    rows, _ = rechunked(shelf)
    engine = shelf.engine()
    engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False)
    outcome = engine.run(SyncMode.FULL, Notes(), lambda: False)
    assert (outcome.pending_embeddings, engine.rebuild_waits, engine.rebuild_due) == (0, "", False)
    assert len(shelf.desk.rows()[0]) > len(rows)
    assert shelf.desk.store.build_differences == ()
    assert shelf.missing() == 0
    assert engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False).changed is False


def test_files_changed_while_a_rebuild_waits_are_indexed_embedded_and_removed(shelf):
    rechunked(shelf)
    shelf.write(new="kestrel")
    shelf.remove("short")
    outcome = shelf.sync()
    assert (outcome.indexed_files, outcome.removed_files, outcome.pending_embeddings) == (1, 1, 0)
    assert shelf.desk.found("kestrel") == ["memory/new.md"]
    assert shelf.desk.found("stork") == []
    assert np.allclose(shelf.vectors()["kestrel"], word_vector("kestrel"))
    assert shelf.desk.store.build_differences
    assert shelf.desk.integrity() == SOUND


def test_an_index_of_two_chunkings_is_rebuilt_also_when_the_old_sizes_come_back(shelf):
    rechunked(shelf)
    shelf.write(late="\n\n".join(f"kestrel {number} " * 20 for number in range(6)))
    shelf.use(shelf.provider, CostLimit(1_500, remote=True))
    shelf.sync()
    assert len(shelf.desk.hits("kestrel")) > 1
    rechunked(shelf, IDENTITY)
    assert shelf.desk.store.build_differences == (("chunking", "mixed", "uniform"),)
    shelf.use(shelf.provider)
    shelf.sync()
    assert shelf.desk.store.build_differences == ()
    fresh = shelf.desk.rows()
    shelf.sync(SyncMode.FULL)
    assert shelf.desk.rows() == fresh


def test_going_back_before_anything_changed_costs_nothing(shelf):
    rows, vectors = rechunked(shelf)
    shelf.sync()
    rechunked(shelf, IDENTITY)
    assert not shelf.desk.store.build_differences
    assert shelf.sync().changed is False
    assert shelf.desk.rows()[0] == rows
    check_same_vectors(shelf, vectors)


def test_what_the_cache_holds_costs_nothing_so_the_rebuild_goes_ahead(shelf):
    rechunked(shelf, guard=CostLimit(0, remote=True))
    shelf.sync()
    rechunked(shelf, IDENTITY)
    asked = len(shelf.provider.batches)
    outcome = shelf.sync()
    assert (outcome.pending_embeddings, len(shelf.provider.batches)) == (0, asked)
    assert not shelf.desk.store.build_differences


@pytest.mark.parametrize("guard", [CostLimit(300, remote=False), CostLimit(0, remote=True), CostLimit(10**6, True)])
def test_a_rebuild_that_needs_no_consent_does_not_wait(shelf, guard):
    rows, _ = rechunked(shelf, guard=guard)
    assert shelf.sync().pending_embeddings == 0
    assert len(shelf.desk.rows()[0]) > len(rows)
    assert not shelf.desk.store.build_differences


def test_an_index_without_vectors_has_nothing_to_wait_for(tmp_path):
    shelf = Shelf(tmp_path)
    shelf.use(WordProvider(), DEAR)
    shelf.write(long=LONG)
    assert shelf.sync().pending_embeddings
    rows, _ = rechunked(shelf)
    outcome = shelf.sync()
    assert len(shelf.desk.rows()[0]) > len(rows)
    assert not shelf.desk.store.build_differences
    assert "confirmAboveTokens" in outcome.embedding_reason
    shelf.close()


def test_another_model_at_the_same_time_waits_too_and_the_old_vectors_stay(shelf):
    _, vectors = rechunked(shelf)
    shelf.use(WordProvider("other"), DEAR)
    engine = shelf.engine()
    outcome = engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False)
    assert "confirmAboveTokens" in engine.rebuild_waits
    assert "confirmAboveTokens" in outcome.embedding_reason
    check_same_vectors(shelf, vectors)


def test_the_price_is_found_out_once_and_again_after_a_while(shelf, monkeypatch):
    rechunked(shelf)
    now = [1_000.0]
    engine = shelf.engine(Clock(monotonic=lambda: now[0]))
    read = []
    chunks_of = engine._preparer.chunks_of
    monkeypatch.setattr(engine._preparer, "chunks_of", lambda file, known: read.append(file) or chunks_of(file, known))
    for _ in range(3):
        engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False)
    assert len(read) == 2
    shelf.remove("long")
    now[0] += PRICE_VALID_SECONDS + 1
    engine.run(SyncMode.INCREMENTAL, Notes(), lambda: False)
    assert len(read) == 3
    assert not shelf.desk.store.build_differences, "what is left costs nothing that was not agreed to"


def test_a_stop_while_pricing_ends_the_run_and_leaves_everything(shelf):
    rows, vectors = rechunked(shelf)
    with pytest.raises(SyncCancelled):
        shelf.sync(should_stop=lambda: True)
    assert shelf.desk.rows()[0] == rows
    check_same_vectors(shelf, vectors)


def test_an_index_that_does_not_say_how_it_was_built_is_rebuilt(shelf):
    identity = dataclasses.replace(IDENTITY)
    shelf.desk.store._connection.execute("UPDATE meta SET value = 'x' WHERE key = 'identity'")
    shelf.open(identity)
    assert shelf.desk.store.build_differences[0][:2] == ("build", "unknown")
    shelf.sync()
    assert shelf.desk.store.build_differences == ()
