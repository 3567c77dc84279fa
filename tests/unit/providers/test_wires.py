"""What each provider is sent, over HTTP, and what is made of its answers. The servers refuse what real ones would."""

import base64
import json
import time

import numpy as np
import pytest

from fake_providers import SERVERS, Fault, fake_provider, vector
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers.pacing import ThrottleConfig
from memoryd_server.providers.pool import ProviderPool
from memoryd_server.providers.provider import EmbeddingConfig, EmbeddingFailure, ProviderState, RemoteConfig
from memoryd_server.vectors import unit

KEY = "key-of-the-test-0123456789"
EVERY = pytest.mark.parametrize("name", SERVERS)


def never():
    return False


def soon(seconds=5.0):
    return time.monotonic() + seconds


QUICK = ThrottleConfig(first_pause_seconds=0.01)


@pytest.fixture
def made():
    """Makes a provider with a server of its kind."""
    pool = ProviderPool()
    servers = []

    def make(name, model="", keys=(KEY,), accepted=(KEY,), **fields):
        context = fake_provider(name, accepted)
        server = context.__enter__()
        servers.append(context)
        given = {"base_url": server.url, "pace": QUICK, **fields}
        remote = RemoteConfig(name, model or server.model, keys=keys, **given)
        selection = pool.select(EmbeddingConfig(name, (remote,)))
        assert selection.provider is not None, selection.reason
        return selection.provider, server

    yield make
    pool.close()
    for context in servers:
        context.__exit__(None, None, None)


def check(answers, texts):
    assert len(answers) == len(texts)
    for answer, text in zip(answers, texts, strict=True):
        assert not isinstance(answer, EmbeddingFailure), answer
        assert np.allclose(answer, unit(vector(text, answer.size)), atol=1e-6)


@EVERY
def test_questions_and_documents_get_their_vectors(made, name):
    provider, server = made(name)
    texts = [f"text number {number}" for number in range(70)]
    before, after = provider.spec.document_prefix, provider.spec.query_prefix
    check(provider.embed_documents(texts, never), [before + text for text in texts])
    check([provider.embed_query("where is it", soon())], [after + "where is it"])
    assert provider.embed_query("a", soon()).size == server.native_dimensions
    assert (provider.status().state, provider.status().calls) == (ProviderState.READY, len(server.requests))
    assert all(times == 1 for times in server.asked.values())


@EVERY
def test_tokens_are_the_servers_own_count_where_it_gives_one(made, name):
    provider, server = made(name)
    provider.embed_documents(["a text of five words"], never)
    prefixed = provider.spec.document_prefix + "a text of five words"
    assert provider.status().tokens == (
        -(-len(prefixed) // 4) if name in {"gemini", "bedrock"} else server.tokens([prefixed])
    )


BODIES = {
    "openai": ("/v1/embeddings", {"model": "text-embedding-3-small", "input": ["a"]}, {}),
    "openai-compatible": ("/v1/embeddings", {"model": "words", "input": ["a"]}, {}),
    "mistral": ("/v1/embeddings", {"model": "mistral-embed", "input": ["a"]}, {}),
    "ollama": ("/api/embed", {"model": "nomic-embed-text", "input": ["search_query: a"]}, {}),
    "lmstudio": (
        "/v1/embeddings",
        {"model": "text-embedding-nomic-embed-text-v1.5", "input": ["search_query: a"]},
        {},
    ),
    "deepinfra": ("/v1/openai/embeddings", {"model": "BAAI/bge-m3", "input": ["a"]}, {}),
    "voyage": (
        "/v1/embeddings",
        {"model": "voyage-4-large", "input": ["a"], "input_type": "query"},
        {"input_type": "document"},
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_holds_what_the_provider_wants_and_nothing_else(made, name):
    provider, server = made(name)
    provider.embed_query("a", soon())
    provider.embed_documents(["a"], never)
    path, body, of_documents = BODIES[name]
    question, document = server.requests
    assert (question.method, question.path, question.body) == ("POST", path, body)
    assert document.body == {**body, "input": [provider.spec.document_prefix + "a"], **of_documents}
    assert question.headers["authorization"] == f"Bearer {KEY}"
    assert question.headers["content-type"] == "application/json"


def test_gemini_is_asked_one_question_alone_and_documents_together(made):
    provider, server = made("gemini")
    provider.embed_query("a", soon())
    provider.embed_documents(["b", "c"], never)
    question, documents = server.requests
    assert question.path == "/v1beta/models/gemini-embedding-001:embedContent"
    assert question.body == {"content": {"parts": [{"text": "a"}]}, "taskType": "RETRIEVAL_QUERY"}
    assert documents.path == "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    common = {"model": "models/gemini-embedding-001", "taskType": "RETRIEVAL_DOCUMENT"}
    assert documents.body == {"requests": [{**common, "content": {"parts": [{"text": text}]}} for text in "bc"]}
    for request in (question, documents):
        assert request.headers["x-goog-api-key"] == KEY
        assert "authorization" not in request.headers
        assert request.query == {}


def test_the_newer_gemini_gets_the_role_of_a_text_as_words(made):
    provider, server = made("gemini", "gemini-embedding-2-preview")
    provider.embed_query("a", soon())
    provider.embed_documents(["b"], never)
    assert server.texts == ["task: search result | query: a", "title: none | text: b"]
    assert server.requests[0].body["outputDimensionality"] == 3072
    assert "taskType" not in server.requests[0].body
    assert provider.spec.dimensions == 3072


@pytest.mark.parametrize(
    ("name", "model", "field"),
    [
        ("openai", "text-embedding-3-large", "dimensions"),
        ("openai-compatible", "m", "dimensions"),
        ("gemini", "gemini-embedding-001", "outputDimensionality"),
        ("gemini", "gemini-embedding-2-preview", "outputDimensionality"),
        ("voyage", "voyage-3.5", "output_dimension"),
        ("mistral", "codestral-embed", "output_dimension"),
        ("ollama", "all-minilm", "dimensions"),
        ("lmstudio", "m", "dimensions"),
        ("deepinfra", "m", "dimensions"),
        ("bedrock", "cohere.embed-v4:0", "output_dimension"),
    ],
)
def test_the_length_of_vectors_is_asked_for_in_each_providers_words(made, name, model, field):
    dimensions = 1536 if name == "gemini" else 512
    provider, server = made(name, model, dimensions=dimensions)
    assert provider.embed_query("a", soon()).size == dimensions
    check(provider.embed_documents(["b"], never), [provider.spec.document_prefix + "b"])
    bodies = [request.body.get("requests", [request.body])[0] for request in server.requests]
    assert [body[field] for body in bodies] == [dimensions] * 2


@pytest.mark.parametrize(("name", "why"), [("mistral", "output_dimension"), ("openai", "specifying dimensions")])
def test_a_model_that_has_one_length_alone_says_so(made, name, why):
    provider, _ = made(name, "text-embedding-ada-002" if name == "openai" else "", dimensions=64)
    with pytest.raises(EmbeddingUnavailable, match=why):
        provider.embed_documents(["a", "b"], never)


@pytest.mark.parametrize("name", ["ollama", "lmstudio", "openai-compatible"])
def test_a_key_is_sent_only_where_there_is_one(made, name):
    provider, server = made(name, keys=(), accepted=())
    provider.embed_query("a", soon())
    assert "authorization" not in server.requests[0].headers


def test_geminis_oauth_token_is_a_bearer_token(made):
    provider, server = made("gemini", keys=(json.dumps({"token": "ya29.x", "projectId": "p"}),), accepted=("ya29.x",))
    provider.embed_query("a", soon())
    assert server.requests[0].headers["authorization"] == "Bearer ya29.x"
    assert "x-goog-api-key" not in server.requests[0].headers


def test_a_user_in_the_base_url_is_sent_where_no_key_needs_the_place(made):
    with fake_provider("openai-compatible") as server:
        url = server.url.replace("//", "//joe:p%40ss@")
        for keys, headers in (((), ()), ((KEY,), ()), ((), (("Authorization", "Mine"),))):
            provider, _ = made("openai-compatible", "m", keys=keys, headers=headers, base_url=url)
            provider.embed_query("a", soon())
        sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Basic " + base64.b64encode(b"joe:p@ss").decode(), f"Bearer {KEY}", "Mine"]


@EVERY
def test_a_query_in_the_base_url_stays_at_its_end(made, name):
    with fake_provider(name) as server:
        provider, _ = made(name, server.model, base_url=f"{server.url}?api-version=2&sig=hidden-word")
        provider.embed_query("a", soon())
        (request,) = server.requests
        assert request.query == {"api-version": "2", "sig": "hidden-word"}
        assert "hidden" not in provider.spec.endpoint


@EVERY
def test_a_refused_key_is_no_fault_of_the_texts_and_never_shows(made, name):
    provider, server = made(name, keys=("wrong-" + KEY,))
    for ask in (lambda: provider.embed_documents(["a", "b"], never), lambda: provider.embed_query("a", soon())):
        with pytest.raises(EmbeddingUnavailable, match=r"refuses the key|check the provider's apiKey") as caught:
            ask()
        assert KEY not in caught.value.message
    assert len(server.requests) == 2
    assert KEY not in provider.status().reason


@EVERY
def test_a_quota_used_up_is_not_tried_again(made, name):
    provider, server = made(name)
    server.refuse = lambda _texts: server.quota()
    with pytest.raises(EmbeddingQuotaExceeded):
        provider.embed_documents(["a"], never)
    assert len(server.requests) == 1


@pytest.mark.slow
@EVERY
def test_a_rate_limit_is_waited_for_as_long_as_the_server_says(made, name):
    provider, server = made(name)
    server.faults.append(server.limited(seconds=1))
    before = time.monotonic()
    check(provider.embed_documents(["a"], never), [provider.spec.document_prefix + "a"])
    assert time.monotonic() - before >= 1.0
    assert (len(server.requests), provider.status().retries) == (2, 1)


@EVERY
@pytest.mark.parametrize("kind", ["failing", "truncated", "reset"])
def test_a_passing_fault_is_met_with_another_try(made, name, kind):
    provider, server = made(name)
    server.faults.append(getattr(server, kind)())
    check(provider.embed_documents(["a", "b"], never), [provider.spec.document_prefix + text for text in "ab"])
    assert len(server.requests) == 2


@EVERY
def test_an_answer_with_too_few_vectors_is_used_for_none(made, name):
    provider, server = made(name)
    server.faults.append(server.short())
    check(provider.embed_documents(["a", "b", "c"], never), [provider.spec.document_prefix + text for text in "abc"])
    assert server.asked[provider.spec.document_prefix + "a"] == 2


@EVERY
def test_a_vector_of_another_length_fails_its_text_alone(made, name):
    provider, server = made(name)
    server.faults.append(server.narrow())
    answers = provider.embed_documents(["a", "b", "c"], never)
    check(answers[:2], [provider.spec.document_prefix + text for text in "ab"])
    assert f"dimensions instead of {server.native_dimensions}" in answers[2].reason


@EVERY
@pytest.mark.parametrize("most_items", [10, 16])
def test_a_server_that_takes_fewer_texts_gets_fewer_from_then_on(made, name, most_items):
    provider, server = made(name)
    server.most_items = most_items
    texts = [f"text {number}" for number in range(64)]
    expected = [provider.spec.document_prefix + text for text in texts]
    check(provider.embed_documents(texts, never), expected)
    server.requests.clear()
    check(provider.embed_documents(texts, never), expected)
    assert max(len(request.texts) for request in server.requests) <= most_items


KNOWS_ITS_MODELS = ("openai", "gemini", "voyage", "mistral", "ollama")


@pytest.mark.parametrize("name", KNOWS_ITS_MODELS)
def test_a_model_that_the_server_does_not_know_is_no_fault_of_the_texts(made, name):
    provider, server = made(name, "no-such-model")
    with pytest.raises(EmbeddingUnavailable, match="no-such-model"):
        provider.embed_documents([f"text {number}" for number in range(20)], never)
    assert len(server.requests) < 20


@pytest.mark.parametrize(
    "reply", [{}, [], "x", {"data": 5}, {"embeddings": {}}, {"data": [5]}, {"embeddings": [[]] * 2}]
)
@EVERY
def test_an_answer_of_another_form_is_the_servers_fault(made, name, reply):
    provider, server = made(name)
    server.refuse = lambda _texts: Fault(body=reply, status=200)
    with pytest.raises(EmbeddingUnavailable):
        provider.embed_documents(["a"], never)
    with pytest.raises(EmbeddingUnavailable):
        provider.embed_query("a", soon())


def test_indexing_waits_longer_for_a_machine_of_ones_own(made):
    seconds = {name: made(name)[0]._http._indexing_seconds for name in SERVERS}
    assert seconds.pop("ollama") == seconds.pop("lmstudio") == 600
    assert set(seconds.values()) == {120}
