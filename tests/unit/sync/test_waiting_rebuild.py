"""A rebuild for other chunk sizes that would cost too much waits, and searches use the complete old index."""

import dataclasses

import numpy as np
import pytest

from embedding_fixture import EmbeddingFixture
from index_fixture import IDENTITY, OTHER_IDENTITY, SOUND, RecordingObserver
from memoryd_server.embedding.cost import CostLimit
from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Clock
from memoryd_server.sync.approval import PRICE_VALID_SECONDS
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import SyncMode
from word_provider import WordProvider, word_vector

DEAR = CostLimit(300, remote=True)
LONG = "\n\n".join(f"heron {number} " * 20 for number in range(20))


@pytest.fixture
def embedding(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    embedding.write(long=LONG, short="stork")
    embedding.sync()
    yield embedding
    embedding.close()


def rechunked(embedding, identity=OTHER_IDENTITY, guard=DEAR):
    """The same index after the chunk sizes were changed, with what it holds."""
    embedding.open(identity)
    embedding.use(embedding.provider, guard)
    return embedding.index.rows()[0], embedding.vectors()


def check_same_vectors(embedding, before):
    now = embedding.vectors()
    assert set(now) == set(before)
    assert all(np.array_equal(now[text], before[text]) for text in now)


def test_the_old_index_keeps_its_chunks_and_vectors_and_says_what_a_rebuild_costs(embedding):
    rows, vectors = rechunked(embedding)
    asked = len(embedding.provider.batches)
    engine = embedding.engine()
    assert engine.rebuild_due
    outcome = engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    assert (outcome.changed, outcome.pending_embeddings) == (False, 0)
    assert embedding.index.rows()[0] == rows
    check_same_vectors(embedding, vectors)
    assert len(embedding.provider.batches) == asked
    assert not engine.rebuild_due
    tokens = engine.estimate(SyncMode.INCREMENTAL).estimated_tokens
    assert tokens > DEAR.confirm_above_tokens
    assert f"about {tokens:,} tokens" in engine.rebuild_waits
    assert "memoryd index --force" in engine.rebuild_waits
    assert embedding.index.store.build_differences == (("chunk_tokens", "400", "40"),)


def test_a_full_sync_rebuilds_and_nothing_waits_any_more(embedding):
    rows, _ = rechunked(embedding)
    engine = embedding.engine()
    engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    outcome = engine.run(SyncMode.FULL, RecordingObserver(), lambda: False)
    assert (outcome.pending_embeddings, engine.rebuild_waits, engine.rebuild_due) == (0, "", False)
    assert len(embedding.index.rows()[0]) > len(rows)
    assert embedding.index.store.build_differences == ()
    assert embedding.missing() == 0
    assert engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False).changed is False


def test_files_changed_while_a_rebuild_waits_are_indexed_embedded_and_removed(embedding):
    rechunked(embedding)
    embedding.write(new="kestrel")
    embedding.remove("short")
    outcome = embedding.sync()
    assert (outcome.indexed_files, outcome.removed_files, outcome.pending_embeddings) == (1, 1, 0)
    assert embedding.index.found("kestrel") == ["memory/new.md"]
    assert embedding.index.found("stork") == []
    assert np.allclose(embedding.vectors()["kestrel"], word_vector("kestrel"))
    assert embedding.index.store.build_differences
    assert embedding.index.integrity() == SOUND


def test_an_index_of_two_chunkings_is_rebuilt_also_when_the_old_sizes_come_back(embedding):
    rechunked(embedding)
    embedding.write(late="\n\n".join(f"kestrel {number} " * 20 for number in range(6)))
    embedding.use(embedding.provider, CostLimit(1_500, remote=True))
    embedding.sync()
    assert len(embedding.index.hits("kestrel")) > 1
    rechunked(embedding, IDENTITY)
    assert embedding.index.store.build_differences == (("chunking", "mixed", "uniform"),)
    embedding.use(embedding.provider)
    embedding.sync()
    assert embedding.index.store.build_differences == ()
    fresh = embedding.index.rows()
    embedding.sync(SyncMode.FULL)
    assert embedding.index.rows() == fresh


def test_going_back_before_anything_changed_costs_nothing(embedding):
    rows, vectors = rechunked(embedding)
    embedding.sync()
    rechunked(embedding, IDENTITY)
    assert not embedding.index.store.build_differences
    assert embedding.sync().changed is False
    assert embedding.index.rows()[0] == rows
    check_same_vectors(embedding, vectors)


def test_cached_vectors_cost_nothing_so_the_rebuild_starts(embedding):
    rechunked(embedding, guard=CostLimit(0, remote=True))
    embedding.sync()
    rechunked(embedding, IDENTITY)
    asked = len(embedding.provider.batches)
    outcome = embedding.sync()
    assert (outcome.pending_embeddings, len(embedding.provider.batches)) == (0, asked)
    assert not embedding.index.store.build_differences


@pytest.mark.parametrize("guard", [CostLimit(300, remote=False), CostLimit(0, remote=True), CostLimit(10**6, True)])
def test_a_rebuild_that_needs_no_consent_does_not_wait(embedding, guard):
    rows, _ = rechunked(embedding, guard=guard)
    assert embedding.sync().pending_embeddings == 0
    assert len(embedding.index.rows()[0]) > len(rows)
    assert not embedding.index.store.build_differences


def test_an_index_without_vectors_has_nothing_to_wait_for(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    embedding.use(WordProvider(), DEAR)
    embedding.write(long=LONG)
    assert embedding.sync().pending_embeddings
    rows, _ = rechunked(embedding)
    outcome = embedding.sync()
    assert len(embedding.index.rows()[0]) > len(rows)
    assert not embedding.index.store.build_differences
    assert "confirmAboveTokens" in outcome.embedding_reason
    embedding.close()


def test_another_model_at_the_same_time_waits_too_and_the_old_vectors_stay(embedding):
    _, vectors = rechunked(embedding)
    embedding.use(WordProvider("other"), DEAR)
    engine = embedding.engine()
    outcome = engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    assert "confirmAboveTokens" in engine.rebuild_waits
    assert "confirmAboveTokens" in outcome.embedding_reason
    check_same_vectors(embedding, vectors)


def test_the_price_is_found_out_once_and_again_after_a_while(embedding):
    rechunked(embedding)
    now = [1_000.0]
    read = []

    class CountingPreparer(FilePreparer):
        def chunks_of(self, file, *args):
            read.append(file)
            return super().chunks_of(file, *args)

    engine = embedding.engine(Clock(monotonic=lambda: now[0]), new_preparer=CountingPreparer)
    for _ in range(3):
        engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    assert len(read) == 2
    embedding.remove("long")
    now[0] += PRICE_VALID_SECONDS + 1
    engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
    assert len(read) == 3
    assert not embedding.index.store.build_differences, "what is left costs nothing that was not agreed to"


def test_a_stop_while_pricing_ends_the_run_and_leaves_everything(embedding):
    rows, vectors = rechunked(embedding)
    with pytest.raises(SyncCancelled):
        embedding.sync(should_stop=lambda: True)
    assert embedding.index.rows()[0] == rows
    check_same_vectors(embedding, vectors)


def test_an_index_that_does_not_say_how_it_was_built_is_rebuilt(embedding):
    identity = dataclasses.replace(IDENTITY)
    embedding.index.connection.execute("UPDATE meta SET value = 'x' WHERE key = 'identity'")
    embedding.open(identity)
    assert embedding.index.store.build_differences[0][:2] == ("build", "unknown")
    embedding.sync()
    assert embedding.index.store.build_differences == ()
