"""The command, with the settings of a current OpenClaw: nothing is sent, and the setting is named everywhere."""

import json

import pytest

from daemon_process import memoryd, serving
from fake_providers import fake_provider

NAME = "memorySearch"
KEY = "key-of-this-test-0123456789"


@pytest.fixture
def openai():
    with fake_provider("openai", [KEY]) as server:
        yield server


def configure(state, openai, **more):
    models = {"providers": {"openai": {"baseUrl": openai.url, "apiKey": KEY}}}
    file = state / "openclaw.json"
    file.write_text(json.dumps({"models": models, **more}))
    return f"{file}: {NAME}"


NONE = {"memorySearch": {"provider": "none"}}


@pytest.mark.slow
def test_doctor_status_log_and_reload_name_the_setting_and_nothing_is_sent(places, openai):
    home, workspace, state = places
    where = configure(state, openai, **NONE)
    with serving(workspace, state, home=home) as served:
        assert served.memoryd("index", "--force").returncode == 0
        assert "memory/a.md" in served.memoryd("search", "ferry").stdout
        told = served.memoryd("doctor").stdout
        assert f"WARN settings: {where}: " in told
        assert (
            f"VECTOR_LEG_SKIPPED: remote embeddings are disabled, because memoryd does not understand {where}" in told
        )
        assert f"Degraded   remote embeddings are disabled, because memoryd does not understand {where}" in (
            served.memoryd("status", "--deep").stdout
        )
        assert where in (home / "daemon.log").read_text()
        assert openai.requests == []
        configure(state, openai)
        assert "in effect: remoteEmbeddingsBlockedBy" in served.memoryd("reload").stdout
        assert served.memoryd("index").returncode == 0
        assert openai.texts == ["the red ferry sails at dawn"]
        configure(state, openai, **NONE)
        assert "in effect: remoteEmbeddingsBlockedBy" in served.memoryd("reload").stdout
        openai.requests.clear()
        (workspace / "memory" / "b.md").write_text("the kettle is in the shed")
        served.memoryd("index", "--force")
        assert openai.requests == []


@pytest.mark.slow
def test_refused_reload_of_a_truncated_file_sends_nothing_until_the_file_is_right_again(places, openai):
    home, workspace, state = places
    file = state / "openclaw.json"
    configure(state, openai)
    right = file.read_text()
    with serving(workspace, state, home=home) as served:
        assert served.memoryd("index").returncode == 0
        openai.requests.clear()
        file.write_text('{"memory": {"search": {"provider": "none"')
        assert served.memoryd("reload").returncode == 1
        (workspace / "memory" / "b.md").write_text("the kettle is in the shed")
        # With the address, a command needs no settings of its own.
        assert memoryd("index", "--address", served.address, home=home).returncode == 0
        assert str(file) in memoryd("status", "--deep", "--address", served.address, home=home).stdout
        assert openai.requests == []
        file.write_text(right)
        assert served.memoryd("reload").returncode == 0
        assert served.memoryd("index").returncode == 0
        assert openai.texts == ["the kettle is in the shed"]


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "status"), [("auto", 0), ("openai", 1)])
def test_index_fails_only_where_the_blocked_provider_is_named(places, openai, provider, status):
    home, workspace, state = places
    where = configure(state, openai, agents={"defaults": {"memorySearch": {"provider": provider}}}, **NONE)
    done = memoryd("index", "--workspace", workspace, "--state-dir", state, home=home)
    assert done.returncode == status
    assert f"memoryd does not understand {where}" in done.stderr
    assert openai.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", [("doctor",), ("index", "--force"), ("search", "ferry"), ("status", "--deep")])
def test_commands_without_a_daemon_send_nothing_either(places, openai, verb):
    home, workspace, state = places
    where = configure(state, openai, **NONE)
    done = memoryd(*verb, "--workspace", workspace, "--state-dir", state, home=home)
    assert done.returncode == 0, done.stderr
    if verb[0] in {"doctor", "status"}:
        assert where in done.stdout
    assert openai.requests == []
