"""Which provider an agent gets, through the daemon: by its keys, by its name, and never another one in its place."""

import json
from contextlib import ExitStack

import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2
from rpc.wire import kinds

HYBRID, KEYWORD = memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD
KEY = "key-of-this-test-0123456789"
KEYED = ("openai", "gemini", "voyage", "mistral")
VARIABLES = {name: f"{name.upper()}_API_KEY" for name in KEYED}


@pytest.fixture
def servers():
    with ExitStack() as stack:
        yield {name: stack.enter_context(fake_provider(name, [KEY])) for name in KEYED}


def addresses(servers):
    """The gateway's settings: where the providers are, without a key."""
    return {"models": {"providers": {name: {"baseUrl": server.url} for name, server in servers.items()}}}


@pytest.mark.parametrize("count", range(1, 5))
async def test_auto_uses_the_first_provider_that_the_environment_has_a_key_of(home, serve, servers, count):
    home.write(boat="the red ferry sails at dawn")
    have = KEYED[-count:]
    home.environ = {VARIABLES[name]: KEY for name in have}
    daemon = await serve(addresses(servers))
    await daemon.synced()
    status = await daemon.status()
    assert (status.embedding.requested_provider, status.embedding.provider) == ("auto", have[0])
    assert (await daemon.search("red ferry", mode=HYBRID)).info.served_mode == HYBRID
    assert {name for name in KEYED if servers[name].requests} == {have[0]}


async def test_auto_without_a_key_sends_nothing_and_says_what_it_looked_for(home, serve, servers):
    home.write(boat="the red ferry sails at dawn")
    daemon = await serve(addresses(servers))
    await daemon.synced()
    status = await daemon.status()
    assert (status.embedding.provider, kinds(status.degradations)) == ("", [])
    assert status.embedding.reason == (
        "no embedding provider is configured: local.modelPath is not set, and there is no key for "
        "openai, gemini, voyage, mistral"
    )
    assert (await daemon.search("ferry")).info.served_mode == KEYWORD
    assert not any(server.requests for server in servers.values())


async def test_auto_goes_to_no_other_provider_when_the_one_with_a_key_fails(home, serve, servers):
    home.write(boat="the red ferry sails at dawn")
    home.environ = dict.fromkeys(VARIABLES.values(), KEY)
    servers["openai"].refuse = lambda _texts: servers["openai"].denied()
    daemon = await serve(addresses(servers))
    await daemon.synced()
    answer = await daemon.search("ferry", mode=HYBRID)
    assert (answer.info.served_mode, kinds(answer.info.degradations)[0]) == (KEYWORD, "VECTORS_PENDING")
    assert [name for name in KEYED if servers[name].requests] == ["openai"]


@pytest.mark.parametrize("name", KEYED)
async def test_a_named_provider_without_a_key_is_replaced_by_none(home, serve, name):
    """No address is given either: whatever was sent would have to leave the machine."""
    home.write(boat="the red ferry sails at dawn")
    daemon = await serve({"agents": {"defaults": {"memorySearch": {"provider": name}}}})
    await daemon.synced()
    status = await daemon.status()
    assert (status.embedding.requested_provider, status.embedding.provider) == (name, "")
    assert status.embedding.reason == f"no API key is configured for the provider {name}"
    answer = await daemon.search("ferry", mode=HYBRID)
    assert (answer.info.served_mode, kinds(answer.info.degradations)) == (KEYWORD, ["VECTOR_LEG_SKIPPED"])


async def test_an_address_in_an_unset_variable_sends_nothing_to_the_providers_own(home, serve):
    home.environ = {"OPENAI_API_KEY": KEY}
    remote = {"baseUrl": "${PRIVATE_SERVER}/v1"}
    daemon = await serve({"agents": {"defaults": {"memorySearch": {"provider": "openai", "remote": remote}}}})
    reason = "the provider openai cannot be used: remote.baseUrl names the variable PRIVATE_SERVER, which is not set"
    assert (await daemon.status()).embedding.reason == reason


async def test_agents_use_the_keys_of_their_own_profiles(home, serve, servers):
    folder = home.root / "other"
    for workspace in (home.workspace, folder):
        (workspace / "memory").mkdir(parents=True, exist_ok=True)
        (workspace / "memory" / "boat.md").write_text("the red ferry sails at dawn")
    for agent, key in (("one", KEY), ("two", "key-of-another-0123")):
        file = home.state_dir / "agents" / agent / "agent" / "auth-profiles.json"
        file.parent.mkdir(parents=True)
        profile = {"type": "api_key", "provider": "voyage", "key": key}
        file.write_text(json.dumps({"version": 1, "profiles": {"voyage:default": profile}}))
    listed = [{"id": "one"}, {"id": "two", "workspace": str(folder)}]
    settings = {**addresses(servers), "agents": {"defaults": {"memorySearch": {"provider": "voyage"}}, "list": listed}}
    daemon = await serve(settings)
    for agent in ("one", "two"):
        await daemon.synced(agent_id=agent)
    pending = [(await daemon.status(agent_id=agent)).index.pending_embeddings for agent in ("one", "two")]
    assert pending == [0, 1]
    sent = {request.headers["authorization"] for request in servers["voyage"].requests}
    assert sent == {f"Bearer {KEY}", "Bearer key-of-another-0123"}


async def test_headers_of_the_gateway_and_of_remote_are_sent_together(home, serve, servers):
    home.write(boat="the red ferry sails at dawn")
    settings = addresses(servers)
    settings["models"]["providers"]["mistral"] |= {"apiKey": KEY, "headers": {"X-Team": "red", "X-Trace": "1"}}
    remote = {"headers": {"x-team": "blue"}}
    settings["agents"] = {"defaults": {"memorySearch": {"provider": "mistral", "remote": remote}}}
    daemon = await serve(settings)
    await daemon.synced()
    headers = servers["mistral"].requests[0].headers
    assert (headers["x-team"], headers["x-trace"], headers["authorization"]) == ("blue", "1", f"Bearer {KEY}")
