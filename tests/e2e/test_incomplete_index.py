"""`memoryd index` reports vectors that are wanted and missing, and exits with 1: through a daemon and without one."""

import json
import re
import socket

import pytest

from daemon_process import memoryd, serving
from fake_providers import Fault, embedding_server

NOTES = {"boat": "the red ferry sails at dawn", "food": "soup and bread for lunch"}


@pytest.fixture
def provider():
    with embedding_server() as server:
        yield server


class CommandFixture:
    """A state directory with settings, and a workspace; `index` runs the command on them."""

    def __init__(self, root):
        self.root, self.state, self.workspace = root, root / "s", root / "w"
        self.state.mkdir(exist_ok=True)
        self.write(self.workspace, **NOTES)
        self.served = None

    def write(self, workspace, **notes):
        (workspace / "memory").mkdir(parents=True, exist_ok=True)
        for name, text in notes.items():
            (workspace / "memory" / f"{name}.md").write_text(text, "utf-8")

    def settings(self, search, agents=(), **ours):
        quiet = {"watch": False, "onSearch": False, "onSessionStart": False}
        agents = {"defaults": {"memorySearch": {**search, "sync": quiet}}, **({"list": agents} if agents else {})}
        (self.state / "memoryd.json5").write_text(json.dumps({"agents": agents, "memoryd": ours}), "utf-8")

    def run(self, *arguments):
        where = ("--state-dir", self.state, "--workspace", self.workspace)
        return memoryd(*arguments, *where, home=self.root)


@pytest.fixture(params=["with a daemon", "without a daemon"])
def begin(request, tmp_path):
    """Writes settings and starts a daemon on them, or none; gives the place where the command runs."""
    started = []

    def begin(search, agents=(), **ours):
        place = CommandFixture(tmp_path)
        place.settings(search, agents, **ours)
        if request.param == "with a daemon":
            daemon = serving(place.workspace, place.state, home=tmp_path)
            daemon.__enter__()
            started.append(daemon)
        return place

    yield begin
    for daemon in started:
        daemon.__exit__(None, None, None)


def using(provider):
    return {
        "provider": "openai-compatible",
        "model": "words",
        "remote": {"baseUrl": provider.url, "apiKey": "sk-of-this-test"},
    }


def refusing_the_key(_texts):
    return Fault(status=401, body={"error": {"message": "wrong key"}})


def refusing_soup(texts):
    fault = Fault(status=400, body={"error": {"message": "cannot read it"}})
    return fault if any("soup" in text for text in texts) else None


def check(done, code, out="", err=""):
    assert done.returncode == code, (done.stdout, done.stderr)
    assert re.search(out, done.stdout), done.stdout
    assert re.search(err, done.stderr), done.stderr
    return done


def completed(done):
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_refused_key_is_named_and_the_exit_status_is_1(begin, provider):
    provider.refuse = refusing_the_key
    place = begin(using(provider))
    done = check(
        place.run("index"), 1, r"^Memory index incomplete \(main\): .* 0 failed, 2 chunks without a vector, in "
    )
    assert "updated" not in done.stdout
    assert (
        f"memoryd: main: 2 chunks have no vector yet: openai-compatible at {provider.url} refuses the key"
        in done.stderr
    )
    assert "check the provider's apiKey" in done.stderr
    assert "fix the cause and run memoryd index again" in done.stderr
    assert done.stderr.count("refuses the key") == 1
    check(place.run("index", "--agent", "main", "--force"), 1, "incomplete", "refuses the key")
    end = completed(check(place.run("index", "--json"), 1))
    assert end["agentId"] == "main"
    assert (end["completed"]["pendingEmbeddings"], end["completed"]["refusedEmbeddings"]) == (2, 0)
    assert end["completed"]["vectorsMissing"] is True
    assert end["completed"]["degradations"][0]["kind"] == "DEGRADATION_KIND_VECTORS_PENDING"
    assert "HTTP 401" in end["completed"]["degradations"][0]["reason"]
    check(place.run("index", "--dry-run"), 0, "main: 0 files to read")
    provider.refuse = lambda _texts: None
    done = check(place.run("index"), 0, r"^Memory index updated \(main\): .* 0 failed, in ")
    assert done.stderr == ""


@pytest.mark.slow
def test_status_with_index_ends_as_index_does(begin, provider):
    provider.refuse = refusing_the_key
    place = begin(using(provider))
    check(place.run("status", "--index"), 1, "Degraded   2 chunks have no vector yet: .*HTTP 401")
    (report,) = json.loads(check(place.run("status", "--index", "--json"), 1).stdout)
    assert (report["complete"], report["sync"]["pendingEmbeddings"]) == (False, 2)
    check(place.run("status"), 0, "Degraded   2 chunks have no vector yet")
    provider.refuse = lambda _texts: None
    check(place.run("status", "--index"), 0)


@pytest.mark.slow
def test_cost_that_waits_for_approval_names_the_flag_that_approves_it(begin, provider, monkeypatch):
    monkeypatch.setenv(*provider.behind_proxy("embeddings.example"))
    place = begin(using(provider), confirmAboveTokens=1)
    check(place.run("index", "--dry-run"), 0, "2 to embed", "about .* tokens would be sent .* --force")
    check(place.run("index"), 1, "2 chunks without a vector", r"memoryd\.confirmAboveTokens; .*memoryd index --force")
    assert provider.texts == []
    assert check(place.run("index", "--force"), 0, "Memory index updated").stderr == ""


@pytest.mark.slow
def test_a_refused_text_is_missing_although_another_run_does_not_help(begin, provider):
    provider.refuse = refusing_soup
    place = begin(using(provider))
    for arguments in ((), (), ("--force",)):
        done = check(
            place.run("index", *arguments), 1, r"1 chunk without a vector", "1 chunk was refused by the provider"
        )
        assert "change the refused texts or the provider" in done.stderr
        assert "run memoryd index again" not in done.stderr
    place.write(place.workspace, food="rice and beans")
    check(place.run("index"), 0, "Memory index updated")


@pytest.mark.slow
def test_a_named_provider_without_a_key_is_missing(begin):
    place = begin({"provider": "openai"})
    check(place.run("index"), 1, "2 chunks without a vector", "main: no API key is configured for the provider openai")


@pytest.mark.slow
def test_a_missing_model_file_is_named(begin, tmp_path):
    place = begin({"provider": "local", "local": {"modelPath": str(tmp_path / "none.gguf")}})
    check(place.run("index"), 1, "2 chunks without a vector", r"none\.gguf is missing|llama-cpp-python is missing")


@pytest.mark.slow
def test_a_model_that_is_still_downloaded_is_named_with_what_to_do(begin, monkeypatch, model_path):
    """The hub's server accepts the connection and never answers."""
    assert model_path
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        place = begin({"provider": "local", "local": {"modelPath": "hf:org/repo/model.gguf"}})
        reason = r"hf:org/repo/model\.gguf (is being downloaded; its vectors follow|cannot be downloaded: timed out)"
        check(place.run("index"), 1, "2 chunks without a vector", reason)


@pytest.mark.slow
@pytest.mark.parametrize("search", [{"provider": "none"}, {}], ids=["none", "auto"])
def test_vectors_that_are_not_configured_are_not_mentioned(begin, search):
    place = begin(search)
    done = check(place.run("index"), 0, r"^Memory index updated \(main\)")
    assert (done.stderr, "vector" in done.stdout) == ("", False)
    assert completed(place.run("index", "--json"))["completed"]["vectorsMissing"] is False


@pytest.mark.slow
def test_an_agent_that_fails_prevents_no_other_sync(begin, tmp_path):
    """`broken` has a folder in the place of its index, and `unkeyed` a provider without a key."""
    listed = []
    for name in ("broken", "main", "unkeyed"):
        workspace = tmp_path / name
        CommandFixture.write(None, workspace, **NOTES)
        listed.append({"id": name, "workspace": str(workspace), "default": name == "main"})
    listed[2]["memorySearch"] = {"provider": "openai"}
    (tmp_path / "s" / "memory" / "broken.memoryd.sqlite").mkdir(parents=True)
    place = begin({"provider": "none"}, listed)
    done = check(place.run("index"), 1, r"Memory index updated \(main\)", r"memoryd: broken: .*\[INDEX_UNAVAILABLE\]")
    assert "Memory index incomplete (unkeyed): " in done.stdout
    assert "memoryd: unkeyed: no API key is configured" in done.stderr
    check(place.run("index", "--agent", "main"), 0, r"Memory index updated \(main\)")
    check(place.run("index", "--agent", "broken"), 5, "^$", "INDEX_UNAVAILABLE")
    done = check(place.run("index", "--json"), 1, "", "memoryd: broken: ")
    ends = {end["agentId"]: end["completed"] for end in map(json.loads, done.stdout.splitlines()) if "completed" in end}
    assert {agent: end["vectorsMissing"] for agent, end in ends.items()} == {"main": False, "unkeyed": True}
