"""Rerankers over HTTP: each dialect is answered, and no reply is trusted."""

import math
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_providers import HUGE, RERANKERS, Fault, fake_reranker
from hostile_json import fragments, spoil
from memoryd_server.providers import RerankConfig, RerankFailure, make_reranker
from memoryd_server.providers.http_reranker import base_of, scores_in
from memoryd_server.providers.remote import BadResponse
from memoryd_server.providers.reranker import MAX_PASSAGE_CHARS, logistic
from properties import examples

KEY = "key-of-the-test-0123456789"
QUERY = "red ferry dawn"
PASSAGES = ["green tea", "the red ferry sails at dawn", "a red boat"]
SHARES = [0.0, 1.0, 1 / 3]


def soon(seconds=20.0):
    return time.monotonic() + seconds


@pytest.fixture
def connect():
    made = []

    def connect(server, url=None, **options):
        config = RerankConfig("http", server.model, url or server.url, keys=(KEY,), **options)
        made.append(make_reranker(config))
        return made[-1]

    yield connect
    for reranker in made:
        reranker.close()


def check_fails(reranker, why):
    with pytest.raises(RerankFailure, match=why) as caught:
        reranker.rerank(QUERY, PASSAGES, soon())
    assert KEY not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", RERANKERS)
def test_scores_of_every_dialect_are_in_the_order_of_the_passages(name, connect):
    with fake_reranker(name, [KEY]) as server:
        reply = connect(server).rerank(QUERY, PASSAGES, soon())
    wanted = [logistic(8 * share - 4) for share in SHARES] if name == "llama-server" else SHARES
    assert reply.scores == pytest.approx(wanted)
    assert reply.tokens == 14


def test_nothing_is_sent_but_the_model_the_query_and_the_passages(connect):
    with fake_reranker("vllm") as server:
        connect(server).rerank(QUERY, PASSAGES, soon())
        (request,) = server.requests
    assert request.body == {"model": server.model, "query": QUERY, "documents": PASSAGES}
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_no_model_is_sent_if_none_is_configured():
    with fake_reranker() as server:
        reranker = make_reranker(RerankConfig("http", base_url=server.url))
        reranker.rerank(QUERY, PASSAGES, soon())
        reranker.close()
        assert "model" not in server.requests[0].body


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
        ("http://127.0.0.1:8080/rerank", "http://127.0.0.1:8080"),
        ("https://api.cohere.com/v2/rerank/", "https://api.cohere.com/v2"),
        ("https://api.jina.ai/v1", "https://api.jina.ai/v1"),
        ("https://u:p@host/a/v1/rerank?sig=1", "https://u:p@host/a/v1?sig=1"),
    ],
)
def test_an_address_may_have_the_path_or_not(url, base):
    assert base_of(url) == base


@pytest.mark.parametrize("path", ["", "/", "/rerank", "/v1", "/v1/rerank", "/v2/"])
def test_every_form_of_the_address_reaches_the_server(path, connect):
    with fake_reranker("vllm") as server:
        url = server.url.removesuffix("/v1") + path
        assert connect(server, url).rerank(QUERY, PASSAGES, soon()).scores == pytest.approx(SHARES)


def test_missing_results_have_no_score(connect):
    with fake_reranker("jina") as server:
        server.faults.append(server.fewer(1))
        assert connect(server).rerank(QUERY, PASSAGES, soon()).scores == (None, 1.0, None)


FAULTS = {
    "wrong index": (lambda server: server.wrong_index(3), "index is not one of the 3 documents"),
    "negative index": (lambda server: server.wrong_index(-1), "index is not one of the 3 documents"),
    "fraction": (lambda server: server.wrong_index(0.5), "index is not one of the 3 documents"),
    "true": (lambda server: server.wrong_index(True), "index is not one of the 3 documents"),
    "huge index": (lambda server: server.wrong_index(HUGE), "index is not one of the 3 documents"),
    "twice": (lambda server: server.twice(), "two scores for document 1"),
    "nan": (lambda server: server.not_finite(), "document 1 that is not a finite number"),
    "infinite": (lambda server: server.not_finite(math.inf), "not a finite number"),
    "huge": (lambda server: server.not_finite(HUGE), "not a finite number"),
    "text": (lambda server: server.not_finite("0.5"), "not a finite number"),
    "bool": (lambda server: server.not_finite(True), "not a finite number"),
    "no results": (lambda server: server.fewer(0), "without a list of results"),
    "garbage": (lambda server: server.garbage(), "invalid JSON"),
    "another list": (lambda _server: Fault(body=[1]), "without a list of results"),
    "too long": (lambda server: server.huge(), "more than 8388608 bytes"),
    "failing": (lambda server: server.failing(), "HTTP 500"),
    "denied": (lambda server: server.denied(), "refuses the key"),
    "quota": (lambda server: server.quota(), "HTTP 402"),
    "refused": (lambda server: Fault(400, server.error(400, "too long")), "HTTP 400"),
    "redirect": (lambda _server: Fault(302, b"", {"location": "http://127.0.0.1:1/v1/rerank"}), "HTTP 302"),
    "truncated": (lambda server: server.truncated(), "invalid JSON"),
    "reset": (lambda server: server.reset(), "the reranker at http"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_reply_that_cannot_be_used_is_a_failure_and_one_request(name, connect):
    fault, why = FAULTS[name]
    with fake_reranker("jina") as server:
        server.faults.append(fault(server))
        reranker = connect(server)
        check_fails(reranker, why)
        assert len(server.requests) == 1
        assert reranker.rerank(QUERY, PASSAGES, soon()).scores == pytest.approx(SHARES)


def test_the_pause_that_a_server_requests_is_reported_and_not_waited_for(connect):
    with fake_reranker("voyage") as server:
        server.faults.append(server.limited(30))
        began = time.monotonic()
        assert check_fails(connect(server), "HTTP 429").retry_after_seconds == 30
        assert time.monotonic() - began < 10


def test_a_reply_after_the_deadline_is_still_received(connect):
    with fake_reranker("jina") as server:
        server.faults.append(server.slow(0.2))
        assert connect(server).rerank(QUERY, PASSAGES, soon(0.05)).scores == pytest.approx(SHARES)


def test_a_server_that_is_down_is_a_failure(connect):
    with fake_reranker("jina") as server:
        reranker = connect(server)
    check_fails(reranker, "the reranker at http://127.0.0.1")


def test_texts_are_cut_and_can_be_encoded(connect):
    with fake_reranker("jina") as server:
        connect(server).rerank("q" * 5_000, ["p" * 5_000, "half \ud800", ""], soon())
        body = server.requests[0].body
    assert [len(body["query"]), len(body["documents"][0])] == [MAX_PASSAGE_CHARS, MAX_PASSAGE_CHARS]
    assert body["documents"][1:] == ["half ?", " "]


def test_a_server_that_returned_a_logit_returns_logits_from_then_on(connect):
    with fake_reranker() as server:
        reranker = connect(server)
        server.score = lambda _query, document: {"a": 0.55, "b": 1.0}[document]
        assert reranker.rerank("a", ["a"], soon()).scores == pytest.approx([0.4])
        assert reranker.rerank("a", ["a", "b"], soon()).scores == pytest.approx([logistic(0.4), logistic(4)])
        assert reranker.rerank("a", ["a"], soon()).scores == pytest.approx([logistic(0.4)])


def test_a_rounding_error_is_no_logit(connect):
    with fake_reranker("jina") as server:
        server.score = lambda _query, _document: 1.0000002
        assert connect(server).rerank("a", ["a"], soon()).scores == (1.0,)


def test_secrets_are_in_no_message(connect):
    with fake_reranker("jina") as server:
        url = server.url.replace("//", "//joe:5ecret-password@") + "?sig=5ecret-signature"
        reranker = connect(server, url, headers=(("x-private", "5ecret-header"),))
        words = f"Bearer {KEY} 5ecret-password 5ecret-signature 5ecret-header"
        server.refuse = lambda _texts: Fault(500, {"detail": words})
        error = check_fails(reranker, "HTTP 500")
    assert "5ecret" not in f"{error} {reranker.endpoint}"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (RerankConfig("http"), r"memoryd\.rerank\.baseUrl is not set"),
        (RerankConfig("http", base_url="ftp://a"), "must begin with http"),
        (RerankConfig("http", base_url="http://a", keys=("a\nb",)), "characters that HTTP forbids"),
        (RerankConfig("http", base_url="http://a", problem="no value"), "no value"),
        (RerankConfig("http", base_url="http://a", blocked_by=("f: k",)), "reranking over HTTP is disabled, because"),
        (RerankConfig("local"), r"memoryd\.rerank\.modelPath is not set"),
    ],
)
def test_a_reranker_that_cannot_be_used_says_why(config, why):
    reranker = make_reranker(config)
    with pytest.raises(RerankFailure, match=why):
        reranker.rerank(QUERY, PASSAGES, soon())
    assert reranker.problem


def test_no_reranker_is_made_if_none_is_configured():
    assert make_reranker(RerankConfig()) is None


@pytest.fixture(scope="module")
def spoiled():
    with fake_reranker("jina") as server:
        reranker = make_reranker(RerankConfig("http", server.model, server.url, keys=(KEY,)))
        yield server, reranker
        reranker.close()


@pytest.mark.attacks
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 30), fragment=fragments)
def test_any_value_of_a_reply_may_be_anything(spoiled, number, fragment):
    server, reranker = spoiled
    server.refuse = lambda _texts: Fault(change=lambda reply: spoil(reply, number, fragment))
    scores, tokens, message = (None,), 0, "-"
    try:
        reply = reranker.rerank(QUERY, PASSAGES, soon(5))
        scores, tokens = reply.scores, reply.tokens
    except RerankFailure as failure:
        message = str(failure)
    assert all(score is None or 0 <= score <= 1 for score in scores)
    assert 0 <= tokens < 2**63
    assert 0 < len(message.encode()) < 2_000


@given(st.lists(st.tuples(st.integers(-2, 6), st.floats()), max_size=8), st.integers(1, 5))
def test_scores_are_read_only_from_valid_lists(found, count):
    items = [{"index": index, "relevance_score": score} for index, score in found]
    indexes = [index for index, _ in found]
    valid = found and len(set(indexes)) == len(indexes) and all(0 <= index < count for index in indexes)
    if valid and all(math.isfinite(score) for _, score in found):
        scores = scores_in({"results": items}, count)
        assert scores == [dict(found).get(index) for index in range(count)]
    else:
        with pytest.raises(BadResponse):
            scores_in({"results": items}, count)


@given(st.floats(allow_nan=False))
def test_the_logistic_function_is_within_0_and_1_and_never_overflows(logit):
    assert 0 <= logistic(logit) <= 1
    assert logistic(logit) <= logistic(logit + 1)
