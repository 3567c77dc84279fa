"""With a model of short inputs, the provider gets pieces, and each chunk has one vector: the mean of its pieces'."""

import time

import numpy as np
import pytest

from embedding_fixture import FREE, EmbeddingFixture
from memoryd_server.embedding.cost import CostLimit
from memoryd_server.embedding.embedder import Embedder
from memoryd_server.embedding.failover import ProviderFailover
from memoryd_server.embedding.pieces import PIECES_A_CALL, pieces
from memoryd_server.embedding.run import CHUNKS_A_BATCH
from memoryd_server.embedding.text_embedder import DimensionsChanged, TextEmbedder
from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers import BatchPolicy, RemoteConfig
from memoryd_server.providers.local import LocalProvider
from memoryd_server.providers.model_files import LocalModelFile
from memoryd_server.providers.openai import openai
from memoryd_server.sync.progress import SyncMode
from word_provider import WordProvider, word_vector

CHARS = 40
HERON, STORK = "the heron waits by the pier all day", "a stork sleeps on the roof at night"
KITE = "a kite circles over the bay at noon"
PARTS = [HERON, STORK, KITE]
LONG = "\n".join(PARTS)


def never():
    return False


def mean_of(texts, dimensions=16):
    total = np.sum([word_vector(text, dimensions) for text in texts], axis=0)
    return total / np.linalg.norm(total)


def in_pieces(**options):
    return WordProvider(piece_chars=CHARS, **options)


def embedder_of(provider):
    return TextEmbedder(provider, lambda: None)


def vector(blob):
    return np.frombuffer(blob, "<f4")


@pytest.fixture
def embedding(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    yield embedding
    embedding.close()


def test_the_provider_gets_the_pieces_and_the_text_gets_their_mean():
    provider = in_pieces()
    result = embedder_of(provider).embed({b"a": LONG, b"b": "short"}, 0, never)
    assert provider.batches == [[*PARTS, "short"]]
    assert vector(result.vectors[b"a"]) == pytest.approx(mean_of(PARTS), abs=1e-6)
    assert vector(result.vectors[b"b"]).tolist() == word_vector("short").tolist()
    assert (result.refused, result.failure) == ({}, "")


def test_a_model_without_pieces_gets_texts_whole_in_one_call():
    provider = WordProvider()
    result = embedder_of(provider).embed({b"a": LONG, b"b": "short"}, 0, never)
    assert provider.batches == [[LONG, "short"]]
    assert vector(result.vectors[b"a"]).tolist() == word_vector(LONG).tolist()


def test_a_refused_piece_is_left_out():
    provider = in_pieces()
    provider.bad = "stork"
    result = embedder_of(provider).embed({b"a": LONG}, 0, never)
    assert vector(result.vectors[b"a"]) == pytest.approx(mean_of([PARTS[0], PARTS[2]]), abs=1e-6)
    assert result.refused == {}


def test_a_text_whose_pieces_are_all_refused_is_refused():
    provider = in_pieces()
    provider.bad = " the "
    result = embedder_of(provider).embed({b"a": LONG, b"b": "short"}, 0, never)
    assert (result.refused, set(result.vectors)) == ({b"a": "the text is refused"}, {b"b"})


def test_a_text_that_is_stopped_halfway_has_no_vector_and_is_not_refused():
    provider, asked = in_pieces(), []
    result = embedder_of(provider).embed({b"a": "short", b"b": LONG}, 0, lambda: asked.append(1) or len(asked) > 3)
    assert (set(result.vectors), result.refused, result.failure) == ({b"a"}, {}, "stopped")


def test_calls_of_the_provider_are_bounded():
    provider = in_pieces()
    texts = {str(n).encode(): f"{LONG} {n}" for n in range(CHUNKS_A_BATCH)}
    result = embedder_of(provider).embed(texts, 0, never)
    assert len(result.vectors) == CHUNKS_A_BATCH
    assert len(provider.batches) > 1
    assert max(map(len, provider.batches)) <= PIECES_A_CALL


def test_vectors_of_earlier_calls_are_kept_when_the_provider_fails():
    provider = in_pieces()
    provider.lives = 1
    texts = {str(n).encode(): f"{LONG} {n}" for n in range(CHUNKS_A_BATCH)}
    result = embedder_of(provider).embed(texts, 0, never)
    assert (len(result.vectors), result.failure) == (PIECES_A_CALL // 3, "the provider is down")
    assert result.refused == {}


def test_a_provider_that_fails_in_the_first_call_is_an_error():
    provider = in_pieces()
    provider.lives = 0
    with pytest.raises(EmbeddingUnavailable, match="the provider is down"):
        embedder_of(provider).embed({b"a": LONG}, 0, never)


def test_a_piece_whose_vector_has_another_length_is_left_out():
    provider = in_pieces(told=False)
    provider.odd = "stork"
    result = embedder_of(provider).embed({b"a": LONG}, 16, never)
    assert vector(result.vectors[b"a"]) == pytest.approx(mean_of([PARTS[0], PARTS[2]]), abs=1e-6)


def test_other_lengths_of_all_pieces_are_another_model():
    with pytest.raises(DimensionsChanged):
        embedder_of(in_pieces(told=False, dimensions=8)).embed({b"a": LONG}, 16, never)


def test_the_cache_has_one_vector_per_chunk_and_none_of_texts_embedded_whole(embedding):
    embedding.use(in_pieces())
    embedding.write(long=LONG)
    embedding.sync()
    assert embedding.cache.count() == 1
    embedding.use(in_pieces())
    assert embedding.sync(SyncMode.FULL).pending_embeddings == 0
    assert embedding.provider.texts == []
    embedding.use(WordProvider())
    embedding.sync()
    assert embedding.provider.texts == ["ping", LONG]


def test_the_estimate_counts_the_same_tokens(embedding):
    embedding.write(long=LONG)
    estimates = []
    for provider in (WordProvider(), in_pieces()):
        embedding.use(provider)
        estimates.append(embedding.engine().estimate(SyncMode.INCREMENTAL))
    assert estimates[0] == estimates[1]


def upgraded(embedding, guard=FREE):
    """An index of an earlier version, which embedded chunks whole; the failover of this version."""
    embedding.write(long=LONG, short="short")
    embedding.sync()
    embedding.use(in_pieces(), guard)
    failover = ProviderFailover(embedding.embedder)
    with embedding.index.store.read() as reader:
        failover.load_state(reader)
    return failover


def test_the_old_vectors_answer_by_the_same_provider_until_the_new_ones_are_complete(embedding):
    failover = upgraded(embedding)
    assert embedding.embedder.state.stored.differences(embedding.embedder.identity) == (
        ("piece_chars", "0", str(CHARS)),
    )
    answering = failover.answering
    assert (answering.provider, answering.spec.piece_chars) == (embedding.provider, 0)
    assert answering is not failover.active
    with embedding.index.store.read() as reader:
        assert answering.matches(reader)
    embedding.sync()
    assert failover.answering is failover.active is embedding.embedder
    assert embedding.vectors()[LONG] == pytest.approx(mean_of(PARTS), abs=1e-6)


def test_an_interrupted_upgrade_keeps_the_old_vectors(embedding):
    upgraded(embedding)
    embedding.provider.lives = 1
    assert embedding.sync().embedding_reason == "the provider is down"
    assert embedding.vectors()[LONG].tolist() == word_vector(LONG).tolist()


def test_an_upgrade_above_the_cost_limit_waits_for_approval(embedding):
    failover = upgraded(embedding, CostLimit(10, remote=True))
    assert "confirmAboveTokens" in embedding.sync().embedding_reason
    assert (embedding.provider.texts, failover.answering.spec.piece_chars) == ([], 0)
    assert embedding.sync(SyncMode.FULL).pending_embeddings == 0
    assert embedding.vectors()[LONG] == pytest.approx(mean_of(PARTS), abs=1e-6)


def test_the_old_vectors_of_a_fallback_answer_too(embedding):
    embedding.write(long=LONG)
    embedding.sync()
    first = Embedder(WordProvider("first"), lambda: embedding.cache, FREE)
    second = Embedder(in_pieces(), lambda: embedding.cache, FREE)
    failover = ProviderFailover(first, second)
    with embedding.index.store.read() as reader:
        failover.load_state(reader)
    assert (failover.answering.provider, failover.answering.spec.piece_chars) == (second.provider, 0)


def test_vectors_of_another_model_are_not_answered(embedding):
    embedder = Embedder(in_pieces(), lambda: None, FREE)
    stored = Embedder(WordProvider("other"), lambda: None, FREE).identity
    assert embedder.embedder_of(stored) is None
    assert embedder.embedder_of(embedder.identity) is embedder


@pytest.mark.parametrize(("model", "uses_jobs"), [("all-minilm-l6-v2", False), ("some-model", True)])
def test_a_model_of_pieces_uses_no_batch_jobs(model, uses_jobs):
    config = RemoteConfig("openai", model, "http://127.0.0.1:9/v1", ("sk-of-this-test",))
    provider = openai(config)
    try:
        embedder = Embedder(provider, lambda: None, FREE, batches=BatchPolicy(enabled=True))
        assert embedder.batch_jobs.enabled is uses_jobs
    finally:
        provider.close()


@pytest.fixture
def minilm(model_path, tmp_path):
    """The real model under its own name."""
    path = tmp_path / "all-MiniLM-L6-v2.gguf"
    path.symlink_to(model_path)
    provider = LocalProvider(LocalModelFile(path))
    yield provider
    provider.close()


REPORT = "\n".join(f"Row {n}: the quarterly report lists revenue, cost and margin of region {n}." for n in range(18))
KITTEN = """The kitten naps on the couch all afternoon and hunts flies at night.
She eats fish twice a day and scratches at the door of the bedroom.
The vet gave her a vaccine in March, and her litter box is in the hall."""


@pytest.mark.parametrize("question", ["where does my cat sleep", "what do we feed the cat"])
def test_a_question_about_the_end_of_a_long_text_is_nearer_to_the_mean_of_its_pieces(minilm, question):
    text = f"{REPORT}\n{KITTEN}"
    assert len(text) > 1_500
    whole = TextEmbedder(minilm, lambda: None, piece_chars=0).embed({b"a": text}, 0, never).vectors[b"a"]
    parts = embedder_of(minilm).embed({b"a": text}, 0, never).vectors[b"a"]
    answers = minilm.embed_documents(pieces(text, 500), never)
    assert vector(parts) == pytest.approx(np.sum(answers, axis=0) / np.linalg.norm(np.sum(answers, axis=0)), abs=1e-4)
    query = minilm.embed_query(question, time.monotonic() + 60)
    assert query @ vector(parts) > query @ vector(whole) + 0.02
