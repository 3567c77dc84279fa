"""The `memoryd` command with a reranker: what it shows, and that it hides the key."""

import json

import pytest

from daemon_process import memoryd, serving
from fake_providers import fake_reranker

KEY = "5entinel-key-of-the-reranker"


@pytest.fixture
def server():
    with fake_reranker("cohere", [KEY]) as server:
        yield server


@pytest.fixture
def served(tmp_path, server):
    workspace, state = tmp_path / "workspace", tmp_path / "state"
    (workspace / "memory").mkdir(parents=True)
    state.mkdir()
    for name, text in {"a": "the ferry sails", "b": "the red ferry sails at dawn", "c": "a ferry"}.items():
        (workspace / "memory" / f"{name}.md").write_text(text)
    block = {"provider": "http", "baseUrl": server.url, "model": server.model, "apiKey": KEY, "timeoutMs": 20_000}
    (state / "memoryd.json5").write_text(json.dumps({"memoryd": {"rerank": block}}))
    with serving(workspace, state, home=tmp_path) as daemon:
        daemon.memoryd("index")
        yield daemon


@pytest.mark.slow
def test_the_command_shows_the_reranker_and_hides_its_key(served, server, tmp_path):
    done = served.memoryd("search", "ferry dawn", "--explain")
    assert done.returncode == 0
    assert f"3 results reranked by http {server.model} in " in done.stderr
    assert "memory/b.md" in done.stdout.splitlines()[0]
    found = json.loads(served.memoryd("search", "ferry dawn", "--explain", "--json").stdout)
    assert found["results"][0]["scoreDetail"]["rerank"] == 1.0
    assert found["info"]["reranking"]["cached"] == 3
    status = served.memoryd("status").stdout
    assert f"Reranker   http {server.model}, 30 candidates, about " in status
    doctor = served.memoryd("doctor").stdout
    assert doctor.count("ok   reranker: ") == 1
    server.refuse = lambda _texts: server.failing()
    assert "WARN reranker: " in served.memoryd("doctor").stdout
    config = memoryd("config", "--state-dir", served.state, home=tmp_path).stdout
    assert "memoryd.rerank.provider" in config
    assert "memoryd.rerank.access" in config
    told = [done.stdout, done.stderr, status, doctor, config, (tmp_path / "daemon.log").read_text()]
    assert not [text for text in told if KEY in text]
