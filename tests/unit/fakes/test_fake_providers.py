"""The fake provider servers refuse what the real ones refuse, and faults can be set for the next requests."""

import json
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from fake_providers import KINDS, SERVERS, fake_provider

TESTS = Path(__file__).parents[2]
KEY = "key-of-the-test"
GOOGLE = "/v1beta/models/gemini-embedding-001:embedContent"
PATHS = {
    "gemini": GOOGLE,
    "ollama": "/api/embed",
    "deepinfra": "/v1/openai/embeddings",
    "bedrock": "/model/cohere.embed-v4%3A0/invoke",
}


@pytest.fixture
def post():
    with httpx.Client(trust_env=False) as client:

        def post(server, body, key=KEY, path=None):
            host = server.url.removesuffix(server.prefix)
            headers = {"x-goog-api-key" if server.provider == "gemini" else "authorization": key}
            return client.post(
                host + (path or PATHS.get(server.provider, "/v1/embeddings")), json=body, headers=headers
            )

        yield post


def good(server):
    if server.provider == "gemini":
        return {"content": {"parts": [{"text": "a"}]}}
    if server.provider == "bedrock":
        return {"texts": ["a"], "input_type": "search_document"}
    return {"model": server.model, "input": ["a"]}


ERRORS = {
    "openai": lambda body: body["error"]["message"],
    "openai-compatible": lambda body: body["error"]["message"],
    "gemini": lambda body: body["error"]["message"],
    "voyage": lambda body: body["detail"],
    "mistral": lambda body: json.dumps(body.get("message") or body["detail"]),
    "ollama": lambda body: body["error"],
    "lmstudio": lambda body: body["error"]["message"],
    "deepinfra": lambda body: body["error"]["message"],
    "bedrock": lambda body: body["message"],
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_right_request_is_answered_and_a_wrong_field_gets_the_providers_own_error(name, post):
    with fake_provider(name, [KEY]) as server:
        assert post(server, good(server)).status_code == 200
        refused = post(server, {**good(server), "surprise": 1})
        assert refused.status_code in {400, 422}
        assert "surprise" in ERRORS[name](refused.json())


@pytest.mark.parametrize("name", SERVERS)
def test_a_wrong_key_gets_the_providers_own_error(name, post):
    with fake_provider(name, [KEY]) as server:
        refused = post(server, good(server), key="wrong")
        assert refused.status_code == {"gemini": 400, "bedrock": 403}.get(name, 401)
        assert ERRORS[name](refused.json())


WRONG = [
    ("openai", {"model": "text-embedding-3-small", "input": []}, 400),
    ("openai", {"model": "text-embedding-3-small", "input": [""]}, 400),
    ("openai", {"model": "text-embedding-3-small", "input": 5}, 400),
    ("openai", {"input": ["a"]}, 404),
    ("openai", {"model": "text-embedding-ada-002", "input": ["a"], "dimensions": 5}, 400),
    ("openai-compatible", {"input": ["a"]}, 400),
    ("gemini", {"content": {"parts": []}}, 400),
    ("gemini", {"content": {"parts": [{"text": "a"}]}, "taskType": "X"}, 400),
    ("gemini", {"contents": {"parts": [{"text": "a"}]}}, 400),
    ("voyage", {"model": "voyage-4-large", "input": ["a"], "input_type": "question"}, 400),
    ("voyage", {"model": "voyage-4-large", "input": ["a"], "output_dimension": 300}, 400),
    ("voyage", {"model": "voyage-9", "input": ["a"]}, 400),
    ("mistral", {"model": "mistral-embed", "input": ["a"], "output_dimension": 300}, 400),
    ("mistral", {"model": "mistral", "input": ["a"]}, 400),
    ("ollama", {"model": "unknown", "input": ["a"]}, 404),
    ("ollama", {"model": "nomic-embed-text", "input": []}, 400),
    ("bedrock", {"texts": ["a"]}, 400),
    ("bedrock", {"texts": [], "input_type": "search_query"}, 400),
    ("bedrock", {"texts": ["a"], "input_type": "search_query", "output_dimension": 5}, 400),
]


@pytest.mark.parametrize(("name", "body", "status"), WRONG)
def test_a_request_that_the_provider_would_refuse_is_refused(name, body, status, post):
    with fake_provider(name) as server:
        assert post(server, body).status_code == status


def test_geminis_batches_name_the_model_of_the_address(post):
    path = "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    with fake_provider("gemini") as server:
        one = {"model": "models/gemini-embedding-001", "content": {"parts": [{"text": "a"}]}}
        assert post(server, {"requests": [one]}, path=path).json()["embeddings"][0]["values"]
        assert post(server, {"requests": [{**one, "model": "models/other"}]}, path=path).status_code == 400
        assert post(server, {"requests": [one] * 101}, path=path).status_code == 400
        second = "/v1beta/models/gemini-embedding-2-preview:embedContent"
        assert post(server, {"content": one["content"], "taskType": "RETRIEVAL_QUERY"}, path=second).status_code == 400


@pytest.mark.parametrize("name", SERVERS)
def test_an_unknown_address_is_not_found(name, post):
    with fake_provider(name) as server:
        assert post(server, good(server), path="/v1/nothing").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_can_be_asked_for_over_http_and_passes(name, kind, post):
    with fake_provider(name) as server:
        wanted = {"fault": kind, "times": 2, **({"seconds": 0.01} if kind == "slow" else {})}
        assert post(server, wanted, path="/_control").json()["faults_to_come"] == 2
        for _ in range(2):
            try:
                assert post(server, good(server)).status_code in {200, 400, 401, 402, 403, 429, 500, 503}
            except httpx.TransportError:
                assert kind == "reset"
        assert post(server, good(server)).status_code == 200
        counts = post(server, None, path="/_control").json()
        assert counts == {"requests": 3, "texts": 3, "asked_again": ["a"], "faults_to_come": 0}


def test_an_unknown_fault_is_reported(post):
    with fake_provider("openai") as server:
        assert "limited" in post(server, {"fault": "x"}, path="/_control").json()["error"]


def test_the_fake_servers_start_from_the_command_line_and_print_their_settings():
    command = [sys.executable, "-m", "fake_providers", "0"]
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = list(until_the_end(process.stdout))
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    urls = dict(line.split() for line in lines[: len(SERVERS)])
    assert set(urls) == set(SERVERS)
    snippets = [json.loads(line) for line in lines if line.startswith('{"agents"')]
    found = [snippet["agents"]["defaults"]["memorySearch"] for snippet in snippets]
    assert {search["provider"]: search["remote"]["baseUrl"] for search in found} == urls


def until_the_end(stream):
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        assert selector.select(30), "it says nothing"
        for line in stream:
            yield line.rstrip("\n")
            if line.startswith("Ctrl-C"):
                return
