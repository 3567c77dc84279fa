"""What answers of real providers mean: the bodies are theirs, shortened."""

import json

import pytest

from fake_providers import SERVERS
from memoryd_server.errors import EmbeddingQuotaExceeded, EmbeddingUnavailable
from memoryd_server.providers.http_errors import RequestRefused, SecretRedactor, parse_error, raise_for
from memoryd_server.providers.pacing import RateLimited, TransientFailure

GOOGLE = "type.googleapis.com/google.rpc."
EXCEEDED = "You exceeded your current quota, please check your plan and billing details."
TOO_MANY, TOO_LONG = True, False


def googles(code, status, message, *details):
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


def limit(name):
    return {"@type": GOOGLE + "QuotaFailure", "violations": [{"quotaId": name, "quotaMetric": "m"}]}


PAUSE = {"@type": GOOGLE + "RetryInfo", "retryDelay": "33.38s"}
PER_MINUTE = limit("EmbedContentRequestsPerMinutePerUserPerProjectPerModel-FreeTier")
PER_DAY = limit("EmbedContentRequestsPerDayPerUserPerProjectPerModel-FreeTier")
INVALID_KEY = {"@type": GOOGLE + "ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
EXTRA = {"detail": [{"type": "extra_forbidden", "loc": ["body", "x"], "msg": "Extra inputs are not permitted"}]}


def raised(status, body, headers=None):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises((RequestRefused, TransientFailure, EmbeddingQuotaExceeded, EmbeddingUnavailable)) as caught:
        raise_for(status, headers or {}, content, "it", SecretRedactor(()))
    return caught.value


@pytest.mark.parametrize(
    ("body", "kind", "pause"),
    [
        (googles(429, "RESOURCE_EXHAUSTED", EXCEEDED, PER_MINUTE, PAUSE), RateLimited, 33.38),
        (googles(429, "RESOURCE_EXHAUSTED", EXCEEDED), RateLimited, None),
        (googles(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."), RateLimited, None),
        (googles(429, "RESOURCE_EXHAUSTED", EXCEEDED, PER_DAY, PER_MINUTE, PAUSE), EmbeddingQuotaExceeded, None),
        ([googles(429, "RESOURCE_EXHAUSTED", EXCEEDED, PER_DAY)], EmbeddingQuotaExceeded, None),
        ({"error": {"message": EXCEEDED, "type": "insufficient_quota"}}, EmbeddingQuotaExceeded, None),
        ({"error": {"message": EXCEEDED}}, EmbeddingQuotaExceeded, None),
        ({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, RateLimited, None),
        (
            {"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "code": "1300"},
            RateLimited,
            None,
        ),
        ({"detail": "You have not yet added your payment method in the billing page"}, RateLimited, None),
        (b"<html>busy</html>", RateLimited, None),
    ],
)
def test_a_limit_that_passes_is_distinguished_from_a_quota_that_is_used_up(body, kind, pause):
    error = raised(429, body)
    assert type(error) is kind
    if isinstance(error, RateLimited):
        assert error.retry_after_seconds == pause


def test_the_header_counts_over_what_the_body_says_of_a_pause():
    body = googles(429, "RESOURCE_EXHAUSTED", "slow down", PAUSE)
    assert raised(429, body, {"retry-after": "5"}).retry_after_seconds == 5


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, googles(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", INVALID_KEY)),
        (401, {"detail": "Provided API key is invalid."}),
        (401, {"message": "Unauthorized", "request_id": "0"}),
        (401, b""),
    ],
)
def test_a_refused_key_is_known_in_every_form(status, body):
    error = raised(status, body)
    assert type(error) is EmbeddingUnavailable
    assert error.message == f"it refuses the key (HTTP {status}): check the provider's apiKey"


def test_a_key_that_may_not_do_this_is_reported_why():
    error = raised(403, googles(403, "PERMISSION_DENIED", "The API is disabled. Enable it by visiting the console."))
    assert type(error) is EmbeddingUnavailable
    assert error.message == (
        "it answers HTTP 403: The API is disabled. Enable it by visiting the console.; "
        "check the provider's apiKey and its permissions"
    )


@pytest.mark.parametrize(
    ("status", "message", "what"),
    [
        (400, "* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch\n", TOO_MANY),
        (400, "Too many inputs in request, split into more batches.", TOO_MANY),
        (400, "The batch size limit is 1000. Your batch size is 1001.", TOO_MANY),
        (400, "Invalid 'input': array too long. Expected an array with maximum length 2048, but got 2049.", TOO_MANY),
        (400, "Value error, batch size is invalid, it should not be larger than 10.: input.contents", TOO_MANY),
        (422, "batch size 64 > maximum allowed batch size 32", TOO_MANY),
        (400, "Too many tokens overall, split into more batches.", TOO_LONG),
        (400, "The max allowed tokens per submitted batch is 120000. Your batch has 124302 tokens.", TOO_LONG),
        (400, "This model's maximum context length is 8192 tokens, however you requested 9000 tokens.", TOO_LONG),
        (400, "the input length exceeds the context length", TOO_LONG),
        (500, "the input length exceeds the context length", TOO_LONG),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        lambda message: {"error": {"message": message, "type": "invalid_request_error"}},
        lambda message: {"object": "error", "message": message, "type": "invalid_request_prompt", "code": "3210"},
        lambda message: {"detail": message},
        lambda message: {"error": message},
    ],
    ids=["openai", "mistral", "voyage", "ollama"],
)
def test_a_request_that_is_too_much_says_in_which_way(form, status, message, what):
    error = raised(status, form(message))
    assert isinstance(error, RequestRefused)
    assert error.too_many is what


@pytest.mark.parametrize("body", [EXTRA, {"object": "error", "message": EXTRA, "type": "x", "code": None}])
def test_a_message_within_a_message_is_found(body):
    assert str(raised(422, body)) == "it answers HTTP 422: Extra inputs are not permitted"


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"5", b'"x"', b'{"error": null}', b'{"details": 5}'])
def test_a_body_of_any_form_is_a_problem_all_the_same(content):
    assert parse_error(content).limits == ()
    assert isinstance(raised(503, content), TransientFailure)


@pytest.mark.parametrize("delay", ["", "s", "-3s", "1e9s", "3", 3, None, "9" * 50 + "s"])
def test_a_pause_that_is_none_is_overlooked(delay):
    body = googles(429, "RESOURCE_EXHAUSTED", "slow down", {"retryDelay": delay})
    assert raised(429, body).retry_after_seconds is None


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_of_these_tests_say_it_as_the_real_ones_do(name):
    server = SERVERS[name]()
    try:
        meanings = {"limited": TransientFailure, "failing": TransientFailure}
        meanings |= {"quota": EmbeddingQuotaExceeded, "denied": EmbeddingUnavailable}
        for kind, meaning in meanings.items():
            fault = getattr(server, kind)()
            assert isinstance(raised(fault.status, fault.body, fault.headers), meaning), kind
    finally:
        server.close()
