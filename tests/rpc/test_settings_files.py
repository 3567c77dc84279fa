"""Settings in several files, over the wire: included files, `.env`, and what a reload makes of them."""

import json

import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2
from rpc.wire import check_refused, kinds, paths, quiet

HYBRID, KEYWORD = memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD
KEY = "key-of-this-test-0123456789"


@pytest.fixture
def openai():
    with fake_provider("openai", [KEY]) as server:
        yield server


def write(home, name, content):
    (home.state_dir / name).write_text(content if isinstance(content, str) else json.dumps(content))


async def reload(running):
    return await running.daemon.reload(lambda: running.home.settings(quiet()))


async def test_a_provider_in_an_included_file_is_used_and_nothing_is_sent_while_the_file_is_broken(home, serve, openai):
    home.write(boat="the red ferry sails at dawn")
    search = {"agents": {"defaults": {"memorySearch": {"provider": "openai"}}}}
    write(home, "openclaw.json", {"models": {"$include": "models.json5"}, **search})
    write(home, "models.json5", {"providers": {"openai": {"baseUrl": openai.url, "apiKey": "${MY_KEY}"}}})
    write(home, ".env", f"MY_KEY={KEY}")
    running = await serve()
    await running.synced()
    assert (await running.search("ferry", mode=HYBRID)).info.served_mode == HYBRID
    assert set(openai.texts) == {"the red ferry sails at dawn", "ferry"}

    openai.requests.clear()
    right = (home.state_dir / "models.json5").read_text()
    write(home, "models.json5", '{providers: {openai: {baseUrl: "')
    assert (await reload(running)).error == ""
    home.write(tea="green tea without sugar")
    await running.synced()
    answer = await running.search("ferry", mode=HYBRID)
    assert (answer.info.served_mode, paths(answer)) == (KEYWORD, ["memory/boat.md"])
    (skipped,) = [d for d in answer.info.degradations if kinds([d]) == ["VECTOR_LEG_SKIPPED"]]
    assert f"{home.state_dir / 'openclaw.json'}: models.$include" in skipped.reason
    assert openai.requests == []

    write(home, "models.json5", right)
    await reload(running)
    await running.synced()
    assert (await running.search("kettle", mode=HYBRID)).info.served_mode == HYBRID
    assert "green tea without sugar" in openai.texts


async def test_a_key_in_a_file_is_used_only_by_a_provider_that_the_settings_name(home, serve, openai):
    home.write(boat="the red ferry sails at dawn")
    models = {"models": {"providers": {"openai": {"baseUrl": openai.url}}}}
    search = {"provider": "auto"}
    write(home, "openclaw.json", {**models, "agents": {"defaults": {"memorySearch": search}}})
    write(home, ".env", f"OPENAI_API_KEY={KEY}")
    running = await serve()
    await running.synced()
    assert (await running.search("ferry", mode=HYBRID)).info.served_mode == KEYWORD
    assert openai.requests == []
    reason = (await running.status()).embedding.reason
    assert f"{home.state_dir / '.env'}: OPENAI_API_KEY is used only if the provider is" in reason

    search["provider"] = "openai"
    write(home, "openclaw.json", {**models, "agents": {"defaults": {"memorySearch": search}}})
    await reload(running)
    await running.synced()
    assert set(openai.texts) == {"the red ferry sails at dawn"}


async def test_a_workspace_with_an_unset_variable_is_neither_used_nor_created(home, serve):
    home.write(boat="the red ferry sails at dawn")
    nest = home.root / "nests" / "bird"
    listed = [{"id": "main"}, {"id": "bird", "workspace": "${NESTS}/bird"}]
    write(home, "openclaw.json", {"agents": {"list": listed}})
    running = await serve()
    for call in (
        running.search("egg", agent_id="bird"),
        running.append("an egg", agent_id="bird", idempotency_key="1"),
    ):
        await check_refused(call, "FAILED_PRECONDITION", "MEMORY_DISABLED", mentions="NESTS, which is not set")
    await running.synced()
    assert paths(await running.search("ferry", mode=KEYWORD)) == ["memory/boat.md"]
    assert not any("${NESTS}" in str(path) for path in home.root.rglob("*"))

    write(home, ".env", f"NESTS={nest.parent}")
    (nest / "memory").mkdir(parents=True)
    (nest / "memory" / "egg.md").write_text("one blue egg")
    changed = (await reload(running)).changed
    assert "agents.list[bird].workspace" in changed
    await running.sync(agent_id="bird")
    assert paths(await running.search("egg", agent_id="bird", mode=KEYWORD)) == ["memory/egg.md"]
