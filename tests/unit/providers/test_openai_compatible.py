import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fake_providers import Fault, vector
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers.http_client import is_loopback
from memoryd_server.providers.openai import openai_compatible
from memoryd_server.providers.pacing import ThrottleConfig
from memoryd_server.providers.provider import EmbeddingFailure, ProviderState, RemoteConfig
from memoryd_server.vectors import unit

KEY = "sk-secret-0123456789"


def never():
    return False


def soon(seconds=5.0):
    return time.monotonic() + seconds


QUICK = ThrottleConfig(first_pause_seconds=0.01)


@pytest.fixture
def make(server):
    made = []

    def make(model="m", dimensions=None, base_url=None, key=KEY, headers=None, *, pace=QUICK):
        keys, pairs = (key,) if key else (), tuple((headers or {}).items())
        config = RemoteConfig("openai-compatible", model, base_url or server.url, keys, pairs, dimensions, pace=pace)
        provider = openai_compatible(config)
        made.append(provider)
        return provider

    yield make
    for provider in made:
        provider.close()


def check(answers, texts):
    assert len(answers) == len(texts)
    for answer, text in zip(answers, texts, strict=True):
        assert not isinstance(answer, EmbeddingFailure), answer
        assert np.allclose(answer, unit(vector(text, answer.size)))


def test_a_question_carries_key_headers_and_prefix(server, make):
    provider = make("nomic-embed-text", headers={"X-Team": "red"})
    check([provider.embed_query("where is it", soon())], ["search_query: where is it"])
    (request,) = server.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-team"] == "red"
    assert request.body == {"model": "nomic-embed-text", "input": ["search_query: where is it"]}


def test_dimensions_are_sent_only_when_they_are_asked_for(server, make):
    assert make(dimensions=8).embed_query("a", soon()).size == 8
    assert server.requests[0].body["dimensions"] == 8


def test_no_key_means_no_authorization(server, make):
    make(key="").embed_query("a", soon())
    assert "authorization" not in server.requests[0].headers


def test_documents_come_back_in_order_over_many_batches(server, make):
    texts = [f"text number {number}" for number in range(150)]
    provider = make()
    check(provider.embed_documents(texts, never), texts)
    assert sorted(len(request.texts) for request in server.requests) == [22, 64, 64]
    status = provider.status()
    assert (status.state, status.calls, status.tokens) == (ProviderState.READY, 3, 450)


def test_a_batch_is_bounded_by_its_bytes(server, make):
    texts = ["é" * 5_000] * 7 + ["b" * 70_000]
    make().embed_documents(texts, never)
    assert sorted(len(request.texts) for request in server.requests) == [1, 1, 3, 3]


def test_no_texts_need_no_call(server, make):
    assert make().embed_documents([], never) == []
    assert server.requests == []


def test_answers_out_of_order_are_put_in_order_by_their_index(server, make):
    def shuffled(reply):
        random.Random(7).shuffle(reply["data"])
        return reply

    server.faults.append(Fault(change=shuffled))
    texts = [f"text {number}" for number in range(20)]
    check(make().embed_documents(texts, never), texts)


def test_answers_without_an_index_are_taken_in_order(server, make):
    def bare(reply):
        return {"data": [{"embedding": item["embedding"]} for item in reply["data"]]}

    server.faults.append(Fault(change=bare))
    check(make().embed_documents(["a", "b c"], never), ["a", "b c"])


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500),
        Fault(status=503, body={"error": {"message": "overloaded"}}),
        Fault(status=429, body={"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
        Fault(truncated=True),
        Fault(reset=True),
    ],
    ids=["500", "503", "429", "truncated", "reset"],
)
def test_a_passing_fault_is_met_with_another_try(server, make, fault):
    server.faults.extend([fault, fault])
    provider = make()
    check(provider.embed_documents(["a", "b"], never), ["a", "b"])
    assert provider.status().retries == 2
    server.faults.append(fault)
    check([provider.embed_query("a", soon())], ["a"])


def test_a_fault_that_stays_ends_after_four_tries_and_shows(server, make):
    server.refuse = lambda _texts: Fault(status=503, body={"error": "down"})
    provider = make()
    with pytest.raises(EmbeddingUnavailable, match="HTTP 503: down; tried 4 times"):
        provider.embed_documents(["a"], never)
    assert len(server.requests) == 4
    assert provider.status().state is ProviderState.UNAVAILABLE
    server.refuse = lambda _texts: None
    provider.embed_query("a", soon())
    assert provider.status().state is ProviderState.READY


def test_retry_after_is_waited_for(server, make):
    server.faults.append(Fault(status=429, headers={"retry-after": "1"}, body={}))
    before = time.monotonic()
    check(make().embed_documents(["a"], never), ["a"])
    assert time.monotonic() - before >= 1.0


def test_all_callers_share_the_cooldown(server, make):
    provider = make()
    server.faults.append(Fault(status=429, headers={"retry-after": "60"}, body={}))
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(provider.embed_documents, ["a"], stop.is_set)
        while not provider.status().retries:
            time.sleep(0.01)
        with pytest.raises(EmbeddingUnavailable, match="pause") as caught:
            provider.embed_query("b", soon())
        assert caught.value.retry_after_seconds > 50
        stop.set()
        (answer,) = waiting.result(5)
    assert answer.transient
    assert len(server.requests) == 1


def test_patience_has_an_end(server, make):
    server.faults.append(Fault(status=429, headers={"retry-after": "3600"}, body={}))
    with pytest.raises(EmbeddingUnavailable) as caught:
        make().embed_documents(["a"], never)
    assert caught.value.retry_after_seconds == 3600


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, body={"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
        Fault(status=402, body={"error": {"message": "pay"}}),
    ],
)
def test_a_quota_used_up_is_not_tried_again(server, make, fault):
    server.refuse = lambda _texts: fault
    with pytest.raises(EmbeddingQuotaExceeded):
        make().embed_documents(["a"], never)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 301, 400, 429, 500])
def test_a_key_never_shows(server, make, status):
    body = {"error": {"message": f"Incorrect API key provided: {KEY}. Bearer {KEY}"}}
    server.refuse = lambda _texts: Fault(status=status, body=body)
    provider = make(headers={"x-api-key": "other-secret"}, base_url=server.url.replace("//", "//joe:hidden-word@"))
    with pytest.raises(EmbeddingUnavailable) as caught:
        provider.embed_query("a", soon())
    told = [caught.value.message, provider.status().reason, *map(str, caught.value.metadata.values())]
    assert not [words for words in told if KEY in words or "secret" in words or "hidden" in words]
    if status in {401, 403, 404}:
        assert len(server.requests) == 1
        assert f"HTTP {status}" in caught.value.message


def test_a_server_that_says_too_many_gets_fewer_from_then_on(server, make):
    def refuse(texts):
        return (
            Fault(status=422, body={"error": "batch size 64 > maximum allowed batch size 10"})
            if len(texts) > 10
            else None
        )

    server.refuse = refuse
    provider = make()
    texts = [f"text {number}" for number in range(64)]
    check(provider.embed_documents(texts, never), texts)
    server.requests.clear()
    check(provider.embed_documents(texts, never), texts)
    assert {len(request.texts) for request in server.requests} == {8}


def test_a_bad_text_fails_alone(server, make):
    server.refuse = lambda texts: (
        Fault(status=400, body={"error": {"message": "bad input"}}) if "bad" in texts else None
    )
    texts = [f"text {number}" for number in range(40)]
    texts[17] = "bad"
    answers = make().embed_documents(texts, never)
    assert isinstance(answers[17], EmbeddingFailure)
    assert not answers[17].transient
    assert "bad input" in answers[17].reason
    check(answers[:17] + answers[18:], texts[:17] + texts[18:])


@pytest.mark.parametrize("status", [400, 413, 500])
def test_a_text_that_is_too_long_is_cut_and_embedded(server, make, status):
    def refuse(texts):
        body = {"error": {"message": "input is too large to process: maximum context length is 512 tokens"}}
        return Fault(status=status, body=body) if max(map(len, texts)) > 600 else None

    server.refuse = refuse
    long = "word " * 1000
    answers = make("all-minilm").embed_documents(["a", long, "b"], never)
    check(answers, ["a", long[:512], "b"])


def test_a_servers_answer_to_a_bad_text_makes_no_later_request_smaller(server, make):
    refusal = Fault(status=400, body={"error": {"message": "input[1]: expected a string or an array of strings"}})
    server.refuse = lambda texts: refusal if "bad" in texts else None
    provider = make()
    texts = [f"text {number}" for number in range(64)]
    provider.embed_documents([*texts[:-1], "bad"], never)
    server.requests.clear()
    check(provider.embed_documents(texts, never), texts)
    assert len(server.requests) == 1


@pytest.mark.parametrize("count", [1, 3, 64])
def test_a_server_that_refuses_everything_is_at_fault_and_no_text_is(server, make, count):
    provider = make()
    provider.embed_documents(["before"], never)
    server.requests.clear()
    server.refuse = lambda _texts: Fault(status=400, body={"error": {"message": "model m does not exist"}})
    with pytest.raises(EmbeddingUnavailable, match="model m does not exist"):
        provider.embed_documents([f"text {number}" for number in range(count)], never)
    assert len(server.requests) < 15


def test_a_server_whose_vectors_are_all_bad_is_at_fault_and_no_text_is(server, make):
    server.refuse = lambda texts: Fault(body={"data": [{"embedding": [0.0] * 16}] * len(texts)})
    with pytest.raises(EmbeddingUnavailable, match="zero"):
        make().embed_documents(["a", "b"], never)


def test_a_server_that_begins_to_refuse_keeps_nothing_against_the_texts(server, make):
    def refuse(texts):
        return None if "text 0" in texts else Fault(status=400, body={"error": {"message": "no such model"}})

    server.refuse = refuse
    answers = make().embed_documents([f"text {number}" for number in range(100)], never)
    check(answers[:64], [f"text {number}" for number in range(64)])
    assert {(answer.transient, "no such model" in answer.reason) for answer in answers[64:]} == {(True, True)}


def test_texts_that_are_all_bad_are_distinguished_from_a_bad_server_by_a_plain_one(server, make):
    refusal = Fault(status=400, body={"error": {"message": "bad input"}})
    server.refuse = lambda texts: refusal if any("bad" in text for text in texts) else None
    answers = make().embed_documents([f"bad {number}" for number in range(9)], never)
    assert [(answer.transient, "bad input" in answer.reason) for answer in answers] == [(False, True)] * 9


def test_a_question_that_is_refused_costs_no_second_request(server, make):
    server.refuse = lambda _texts: Fault(status=400, body={"error": {"message": "bad input"}})
    with pytest.raises(EmbeddingUnavailable, match="bad input"):
        make().embed_query("a", soon())
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda reply: {**reply, "data": reply["data"][:-1]},
        lambda reply: {**reply, "data": [reply["data"][0]] * 2},
        lambda _reply: {"error": "none"},
        lambda _reply: [],
        lambda _reply: {"data": [1, 2, 3]},
    ],
)
def test_an_answer_that_does_not_fit_is_refused_as_a_whole(server, make, change):
    """The texts are sent again one by one; those at fault are refused."""
    server.refuse = lambda texts: Fault(change=change) if "bad" in texts else None
    good, bad = make().embed_documents(["a", "bad"], never)
    assert len(good) == 16
    assert not bad.transient


@pytest.mark.parametrize("change", [lambda _reply: {"data": []}, lambda _reply: []])
def test_a_server_whose_answers_never_fit_is_unavailable(server, make, change):
    server.refuse = lambda _texts: Fault(change=change)
    with pytest.raises(EmbeddingUnavailable, match="answers with"):
        make().embed_documents(["a", "b"], never)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([0.0] * 16, "zero"),
        ([float("nan")] * 16, "not finite"),
        ([1.0] * 15, "15 dimensions instead of 16"),
        ("AAAA", "not a list of numbers"),
        (None, "not a list of numbers"),
    ],
)
def test_a_bad_vector_fails_its_text(server, make, values, why):
    def spoil(reply):
        reply["data"][1]["embedding"] = values
        return reply

    server.faults.append(Fault(change=spoil))
    first, second, third = make().embed_documents(["a", "b", "c"], never)
    assert isinstance(second, EmbeddingFailure)
    assert why in second.reason
    check([first, third], ["a", "c"])


def test_another_model_behind_the_server_shows_by_its_dimensions(server, make):
    provider = make()
    assert provider.embed_query("a", soon()).size == 16
    server.dimensions = 8
    assert provider.embed_query("a", soon()).size == 8
    check(provider.embed_documents(["a", "b"], never), ["a", "b"])


def test_dimensions_that_were_asked_for_and_not_given_are_refused(server, make):
    server.refuse = lambda texts: Fault(body={"data": [{"embedding": [1.0] * 16}] * len(texts)})
    with pytest.raises(EmbeddingUnavailable, match="16 dimensions instead of 8"):
        make(dimensions=8).embed_documents(["a", "b"], never)


def test_a_question_waits_no_longer_than_its_deadline(server, make):
    server.refuse = lambda _texts: Fault(delay_seconds=3)
    before = time.monotonic()
    with pytest.raises(EmbeddingUnavailable, match="in time"):
        make().embed_query("a", soon(0.3))
    assert time.monotonic() - before < 1.5


def test_a_question_is_not_tried_again_beyond_its_deadline(server, make):
    server.refuse = lambda _texts: Fault(status=500, body={})
    with pytest.raises(EmbeddingUnavailable, match="HTTP 500"):
        make(pace=ThrottleConfig(first_pause_seconds=5.0)).embed_query("a", soon(1))
    assert len(server.requests) == 1


def test_a_dead_server_is_named(make):
    with pytest.raises(EmbeddingUnavailable, match=r"openai-compatible at http://127\.0\.0\.1:9/v1: "):
        make(base_url="http://127.0.0.1:9/v1").embed_query("a", soon(1))


def test_vectors_made_before_a_failure_are_kept(server, make):
    server.refuse = lambda texts: Fault(status=401, body={}) if "text 64" in texts else None
    answers = make().embed_documents([f"text {number}" for number in range(70)], never)
    check(answers[:64], [f"text {number}" for number in range(64)])
    assert {answer.transient for answer in answers[64:]} == {True}


def test_stopping_keeps_what_was_made(server, make):
    answers = make().embed_documents([f"text {number}" for number in range(6400)], lambda: len(server.requests) >= 20)
    made = [answer for answer in answers if not isinstance(answer, EmbeddingFailure)]
    assert 64 * 15 <= len(made) <= 64 * len(server.requests) < 6400
    assert all(answer.transient for answer in answers if isinstance(answer, EmbeddingFailure))


def test_many_threads_get_their_own_answers(server, make):
    provider = make()
    texts = [f"text number {number}" for number in range(64)]
    with ThreadPoolExecutor(32) as pool:
        check(list(pool.map(lambda text: provider.embed_query(text, soon(30)), texts)), texts)


def test_loopback_is_reached_without_the_proxy_and_others_with_it(server, make, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    make().embed_query("a", soon())
    proxy = server.url.removesuffix("/v1")
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("http_proxy", proxy)
    make(base_url="http://embeddings.invalid/v1").embed_query("a", soon())
    assert [request.path for request in server.requests] == [
        "/v1/embeddings",
        "http://embeddings.invalid/v1/embeddings",
    ]


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]"])
def test_this_machine_is_reached_without_the_proxy_in_every_spelling_of_its_address(server, make, monkeypatch, host):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    make(base_url=server.url.replace("127.0.0.1", host)).embed_query("a", soon())
    assert [request.path for request in server.requests] == ["/v1/embeddings"]


@pytest.mark.parametrize("host", ["128.1", "localhost.example.org", "127.0.0.1.example.org", "[::2]", "127.0.0.1%20x"])
def test_other_hosts_are_not_this_machine(host):
    assert not is_loopback(f"http://{host}/v1")
    assert is_loopback("http://localhost.:11434")


@pytest.mark.parametrize("url", ["example.org/v1", "ftp://example.org", "http://", "http://[bad", "file:///etc/passwd"])
def test_an_address_of_another_kind_is_refused(make, url):
    with pytest.raises(EmbeddingUnavailable, match="base URL"):
        make(base_url=url)


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines", "nul\x00"])
def test_a_key_that_http_cannot_carry_is_refused_without_showing_it(make, key):
    with pytest.raises(EmbeddingUnavailable) as caught:
        make(key=key)
    assert key not in str(caught.value)


def test_half_a_surrogate_and_nul_do_no_harm(server, make):
    answers = make().embed_documents(["a \ud800 b", "nul \x00", ""], never)
    assert not [answer for answer in answers if isinstance(answer, EmbeddingFailure)]
    assert server.texts[0] == "a ? b"


def test_closing_ends_the_waiting(server, make):
    server.faults.append(Fault(status=429, headers={"retry-after": "60"}, body={}))
    provider = make()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(provider.embed_documents, ["a"], never)
        while not provider.status().retries:
            time.sleep(0.01)
        provider.close()
        with pytest.raises(EmbeddingUnavailable, match="closed"):
            waiting.result(5)
    provider.close()
    with pytest.raises(EmbeddingUnavailable, match="closed"):
        provider.embed_query("a", soon())
