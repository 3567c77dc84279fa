"""A SecretRef without a value sends nothing and lets no other key take its place; one with a value is used."""

import json
import threading

import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2, sync_event_pb2
from openclaw_rows import put_own_profiles, put_secret, put_shared_profiles
from rpc.wire import TIMEOUT, check_refused, kinds, paths, quiet
from waiting import eventually

FULL = sync_event_pb2.SYNC_MODE_FULL
KEYWORD, VECTOR, HYBRID = (
    memory_pb2.SEARCH_MODE_KEYWORD,
    memory_pb2.SEARCH_MODE_VECTOR,
    memory_pb2.SEARCH_MODE_HYBRID,
)
KEY, OTHER = "key-of-this-test-0123456789", "key-of-another-place-0123456789"


@pytest.fixture
def openai(home):
    """OpenAI's API on loopback, which accepts both keys; the environment has one for it."""
    home.environ = {"OPENAI_API_KEY": OTHER}
    home.write(boat="the red ferry sails at dawn")
    with fake_provider("openai", [KEY, OTHER]) as server:
        yield server


def ref(name, source="env", provider="default"):
    return {"source": source, "provider": provider, "id": name}


def configure(home, openai, block=None, *, search=None, **top):
    """Write openclaw.json with a block for OpenAI at the address of the server."""
    settings = {
        "agents": {"defaults": {"memorySearch": {"provider": "openai", **(search or {})}}},
        "models": {"providers": {"openai": {"baseUrl": openai.url, **(block or {})}}},
        **top,
    }
    (home.state_dir / "openclaw.json").write_text(json.dumps(settings))


def secret_file(home, key):
    file = home.root / "secrets.json"
    file.write_text(json.dumps({"openai": {"apiKey": key}}))
    file.chmod(0o600)
    return {"providers": {"main": {"source": "file", "path": str(file)}}}


async def reload(running, settings=None):
    return await running.daemon.reload(lambda: running.home.settings(quiet(settings)))


async def check_nothing_is_sent(running, *servers, reason, agent_id=""):
    """Use everything that asks a provider, and look for the reason where it is to be shown."""
    for request in ({}, {"mode": FULL}, {"mode": FULL, "dry_run": True}):
        await running.sync(agent_id=agent_id, **request)
    answer = await running.search("ferry", mode=HYBRID, agent_id=agent_id)
    assert (answer.info.served_mode, paths(answer)) == (KEYWORD, ["memory/boat.md"])
    await check_refused(
        running.search("ferry", mode=VECTOR, agent_id=agent_id),
        "FAILED_PRECONDITION",
        "EMBEDDING_NOT_CONFIGURED",
        mentions=reason,
    )
    status = await running.status(probe=True, agent_id=agent_id)
    assert reason in status.embedding.reason
    assert reason in status.embedding.probe.error
    assert any(reason in warning for warning in status.service.settings_warnings)
    for server in servers:
        assert server.requests == []


UNRESOLVED = {
    "a variable": ({"apiKey": ref("UNSET")}, {}, "the variable UNSET is not set"),
    "a header": ({"headers": {"X-Team": ref("UNSET")}}, {}, "the variable UNSET is not set"),
    "the store": ({"apiKey": ref("UNSET", "store")}, {}, "OpenClaw's secret store has no UNSET"),
    "a command": (
        {"apiKey": ref("openai", "exec", "vault")},
        {"secrets": {"providers": {"vault": {"source": "exec", "command": "/bin/true"}}}},
        "commands are run only if memoryd.secrets.exec is true",
    ),
    "no source": ({"apiKey": ref("/x", "file", "main")}, {}, "secrets.providers.main is not configured"),
    "malformed": ({"apiKey": {"id": "OPENAI_API_KEY"}}, {}, 'its "source" is not env, file, exec or store'),
}


@pytest.mark.parametrize("name", UNRESOLVED)
async def test_nothing_is_sent_while_a_secret_does_not_resolve(home, serve, openai, provider, name):
    block, top, reason = UNRESOLVED[name]
    fallback = {"openai-compatible": {"baseUrl": provider.url, "apiKey": "sk-of-the-fallback"}}
    configure(home, openai, block, search={"fallback": "openai-compatible"}, **top)
    running = await serve({"models": {"providers": fallback}})
    await check_nothing_is_sent(running, openai, provider, reason=reason)


@pytest.mark.parametrize(
    ("search", "reason"),
    [
        ({"provider": "auto"}, "it is used only if the settings name the provider"),
        ({"remote": {"apiKey": ref("UNSET")}}, "the variable UNSET is not set"),
    ],
    ids=str,
)
async def test_neither_another_place_nor_another_provider_takes_over(home, serve, openai, search, reason):
    home.environ["MISTRAL_API_KEY"] = OTHER
    configure(home, openai, {"apiKey": ref("UNSET")}, search=search)
    running = await serve()
    await check_nothing_is_sent(running, openai, reason=reason)


async def test_a_profile_whose_key_does_not_resolve_is_replaced_by_no_variable(home, serve, openai):
    profile = {"type": "api_key", "provider": "openai", "keyRef": ref("UNSET")}
    put_own_profiles(home.state_dir, {"openai:default": profile})
    configure(home, openai)
    running = await serve()
    await check_nothing_is_sent(running, openai, reason="the variable UNSET is not set")


async def test_the_secret_of_one_agent_disables_that_agent_alone(home, serve, openai):
    (home.state_dir / "workspace-bird" / "memory").mkdir(parents=True)
    (home.state_dir / "workspace-bird" / "memory" / "boat.md").write_text("a private ferry")
    configure(home, openai)
    bird = {"id": "bird", "memorySearch": {"remote": {"apiKey": ref("UNSET")}}}
    running = await serve({"agents": {"list": [{"id": "main"}, bird]}})
    await check_nothing_is_sent(running, openai, reason="the variable UNSET is not set", agent_id="bird")
    await running.synced()
    assert openai.texts == ["the red ferry sails at dawn"]
    assert "bird" not in (await running.status()).embedding.reason


# With a value


async def test_a_secret_of_a_file_is_sent_as_the_key(home, serve, openai):
    openai.keys = {KEY}
    configure(home, openai, {"apiKey": ref("/openai/apiKey", "file", "main")}, secrets=secret_file(home, KEY))
    running = await serve()
    await running.synced()
    assert openai.texts == ["the red ferry sails at dawn"]
    assert (await running.search("ferry", mode=HYBRID)).info.served_mode == HYBRID


async def test_a_key_of_openclaws_databases_is_sent(home, serve, openai):
    openai.keys = {KEY}
    put_secret(home.state_dir, "STORED", KEY)
    profile = {"type": "api_key", "provider": "openai", "keyRef": ref("STORED", "store")}
    put_shared_profiles(home.state_dir, {"openai:default": profile})
    configure(home, openai)
    running = await serve()
    await running.synced()
    assert openai.texts == ["the red ferry sails at dawn"]


async def test_a_reload_reads_a_key_again_that_the_provider_refuses(home, serve, openai):
    openai.keys = {KEY}
    block = {"apiKey": ref("/openai/apiKey", "file", "main")}
    configure(home, openai, block, secrets=secret_file(home, OTHER))
    running = await serve()
    await running.sync()
    assert {openai.key_of(request) for request in openai.requests} == {OTHER}
    assert (await running.status()).index.pending_embeddings == 1
    secret_file(home, KEY)
    report = await reload(running)
    assert (report.error, report.changed) == ("", ("agents.list[main].access.openai",))
    await running.synced()
    assert openai.key_of(openai.requests[-1]) == KEY
    assert (await running.status()).index.pending_embeddings == 0


async def test_a_reload_stops_and_allows_embeddings_as_a_secret_goes_and_comes(home, serve, openai):
    put_secret(home.state_dir, "STORED", KEY)
    configure(home, openai, {"apiKey": ref("STORED", "store")})
    running = await serve()
    await running.synced()
    assert len(openai.texts) == 1
    put_secret(home.state_dir, "STORED", KEY, deleted=1)
    await reload(running)
    openai.requests.clear()
    home.write(later="the kettle is in the shed")
    await check_nothing_is_sent(running, openai, reason="OpenClaw's secret store has no STORED")
    assert any("has no STORED" in line["warning"] for line in running.logged("warn-settings"))
    put_secret(home.state_dir, "STORED", KEY)
    await reload(running)
    await running.synced()
    # What has a vector is not embedded again.
    assert openai.texts == ["the kettle is in the shed"]
    assert kinds((await running.search("ferry", mode=HYBRID)).info.degradations) == []


async def test_a_reload_without_the_secret_ends_the_requests_of_a_sync_that_is_running(home, serve, openai):
    home.many(300)
    put_secret(home.state_dir, "STORED", KEY)
    configure(home, openai, {"apiKey": ref("STORED", "store")})
    asked, go = threading.Event(), threading.Event()

    def pause_sync(texts):
        asked.set()
        go.wait(TIMEOUT)

    openai.refuse = pause_sync
    running = await serve(background=True)
    await eventually(asked.is_set)
    put_secret(home.state_dir, "STORED", KEY, deleted=1)
    assert (await reload(running)).error == ""
    sent = len(openai.requests)
    go.set()
    await running.synced()
    await running.synced(mode=FULL)
    assert len(openai.requests) == sent
