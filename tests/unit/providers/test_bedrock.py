"""Bedrock with a bearer token: the JSON of each family of models, and what is refused before a request."""

import time

import numpy as np
import pytest

from fake_providers import Fault, fake_provider, vector
from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.bedrock import bedrock
from memoryd_server.providers.pool import ProviderPool
from memoryd_server.providers.provider import EmbeddingConfig, RemoteConfig
from memoryd_server.vectors import unit

TITAN = "amazon.titan-embed-text-v2:0"
NOVA = "amazon.nova-2-multimodal-embeddings-v1:0"
KEY = "bedrock-key-of-the-test"


@pytest.fixture
def server():
    with fake_provider("bedrock", [KEY]) as server:
        yield server


@pytest.fixture
def make(server):
    made = []

    def make(model, **fields):
        made.append(bedrock(RemoteConfig("bedrock", model, server.url, (KEY,), **fields)))
        return made[-1]

    yield make
    for provider in made:
        provider.close()


def ask(provider, *texts):
    answers = provider.embed_documents(texts, lambda: False)
    for answer, text in zip(answers, texts, strict=True):
        assert np.allclose(answer, unit(vector(text, answer.size)), atol=1e-6)
    return provider.embed_query("where", time.monotonic() + 5.0)


def test_titan_gets_one_text_a_request_and_its_count_of_tokens_is_used(server, make):
    provider = make(TITAN)
    assert ask(provider, "one text", "two").size == 1024
    assert sorted(request.body["inputText"] for request in server.requests) == ["one text", "two", "where"]
    assert {request.path for request in server.requests} == {"/model/amazon.titan-embed-text-v2%3A0/invoke"}
    assert all(set(request.body) == {"inputText"} for request in server.requests)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert provider.status().tokens == 4


def test_cohere_gets_several_texts_and_the_role(server, make):
    assert ask(make("cohere.embed-multilingual-v3"), "one", "two").size == 1024
    documents, query = (request.body for request in server.requests)
    assert documents == {"texts": ["one", "two"], "input_type": "search_document", "embedding_types": ["float"]}
    assert query == {"texts": ["where"], "input_type": "search_query", "embedding_types": ["float"]}


def test_an_answer_of_cohere_without_types_is_read_too(server, make):
    def without_types(reply):
        return {**reply, "response_type": "embeddings_floats", "embeddings": reply["embeddings"]["float"]}

    server.refuse = lambda _texts: Fault(change=without_types)
    ask(make("cohere.embed-v4:0"), "one", "two")


def test_nova_gets_the_purpose(server, make):
    assert ask(make(NOVA), "one").size == 3072
    document, query = (request.body for request in server.requests)
    text = {"truncationMode": "NONE", "value": "one"}
    assert document == {
        "taskType": "SINGLE_EMBEDDING",
        "singleEmbeddingParams": {"embeddingPurpose": "GENERIC_INDEX", "text": text},
    }
    assert query["singleEmbeddingParams"]["embeddingPurpose"] == "TEXT_RETRIEVAL"


@pytest.mark.parametrize("model", [TITAN, NOVA, "cohere.embed-v4:0"])
def test_the_length_of_vectors_is_requested(make, model):
    provider = make(model, dimensions=256)
    assert ask(provider, "one").size == 256
    assert provider.spec.dimensions == 256


def test_an_inference_profile_has_the_format_of_its_model(server, make):
    ask(make(f"us.{TITAN}"), "one")
    assert server.requests[0].path == "/model/us.amazon.titan-embed-text-v2%3A0/invoke"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"keys": ()}, "does not sign requests"),
        ({"model": "anthropic.claude"}, "does not know the format of the model anthropic.claude"),
        ({"model": "cohere.embed-english-v3", "dimensions": 256}, "one length only"),
        ({"base_url": ""}, "needs the address of a region"),
    ],
)
def test_what_cannot_work_is_refused_without_a_request(server, fields, why):
    given = {"model": TITAN, "base_url": server.url, "keys": (KEY,), **fields}
    with pytest.raises(EmbeddingUnavailable, match=why):
        bedrock(RemoteConfig("bedrock", **given))
    assert not server.requests


def test_without_a_token_the_selection_gives_the_reason_and_takes_no_fallback_key():
    pool = ProviderPool()
    remotes = (RemoteConfig("bedrock", TITAN, "https://x.invalid"), RemoteConfig("openai", "m", keys=("k",)))
    selection = pool.select(EmbeddingConfig("bedrock", remotes))
    assert selection.provider is None
    assert "AWS_BEARER_TOKEN_BEDROCK" in selection.reason
    pool.close()
