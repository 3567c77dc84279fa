"""A home in the current layout of OpenClaw, as callers see it: nothing is sent unasked."""

import json

import grpc
import pytest

from fake_providers import fake_provider
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.cli.doctor_checks import check_agent
from rpc.agent_calls import AGENT_CALLS, call, for_agent
from rpc.callers import bearer, new_token
from rpc.wire import HYBRID, KEYWORD, TIMEOUT, UNSET, VECTOR, check_refused, kinds, paths, quiet

KEY = "key-of-this-test-0123456789"
NAMED = 'memory.search.provider is not set; set it to "openai"'
SESSIONS = memory_pb2.SOURCE_SESSIONS


@pytest.fixture
def openai(home):
    """OpenAI's API on loopback; the environment has keys of several providers."""
    home.environ = {f"{name}_API_KEY": KEY for name in ("OPENAI", "GEMINI", "VOYAGE", "MISTRAL")}
    home.write(boat="the red ferry sails at dawn")
    with fake_provider("openai", [KEY]) as server:
        yield server


def host_file(home, settings, server=None):
    """Write `settings` as openclaw.json, with the address of every provider on loopback."""
    names = ("openai", "gemini", "voyage", "mistral")
    models = {"providers": {name: {"baseUrl": server.url} for name in names}} if server else {}
    (home.state_dir / "openclaw.json").write_text(json.dumps({"models": models, **settings}))


UNASKED = {
    "a file without memory keys": {"meta": {"lastTouchedVersion": "2026.9.6"}},
    "memory.search without a provider": {"memory": {"search": {"model": "text-embedding-3-small"}}},
    "a fallback alone": {"memory": {"search": {"fallback": "openai"}}},
    "agents.entries": {"agents": {"entries": {"main": {}}}},
    "a key alone": {"memory": {"search": {"remote": {"apiKey": KEY}}}},
}


async def test_a_home_without_sessions_has_no_issue(home, serve):
    home.write(boat="the red ferry sails at dawn")
    host_file(home, UNASKED["memory.search without a provider"])
    running = await serve()
    await running.synced()
    assert [*(await running.status()).source_issues] == []
    # OpenClaw has run the agent, but its database is gone.
    (home.state_dir / "agents" / "main" / "agent").mkdir(parents=True)
    assert "does not exist" in " ".join((await running.status()).source_issues)


@pytest.mark.parametrize("name", UNASKED)
async def test_an_unset_provider_sends_nothing_and_status_and_doctor_name_the_setting(home, serve, openai, name):
    host_file(home, UNASKED[name], openai)
    running = await serve()
    await running.synced()
    for mode in (UNSET, HYBRID, KEYWORD):
        answer = await running.search("ferry", mode=mode)
        assert (answer.info.served_mode, paths(answer)) == (KEYWORD, ["memory/boat.md"])
    await check_refused(
        running.search("ferry", mode=VECTOR), "FAILED_PRECONDITION", "EMBEDDING_NOT_CONFIGURED", mentions=NAMED
    )
    status = await running.status(probe=True)
    assert (status.embedding.requested_provider, status.embedding.provider) == ("none", "")
    assert NAMED in status.embedding.reason
    assert (kinds(status.degradations), status.index.pending_embeddings) == ([], 0)
    assert any(NAMED in check.detail for check in check_agent(status))
    assert openai.requests == []


@pytest.mark.parametrize("provider", ["openai", "auto"])
async def test_the_setting_that_is_named_enables_the_provider(home, serve, openai, provider):
    host_file(home, {"memory": {"search": {"provider": provider}}}, openai)
    running = await serve()
    await running.synced()
    assert (await running.search("ferry", mode=HYBRID)).info.served_mode == HYBRID
    assert (await running.status()).embedding.provider == "openai"
    assert set(openai.texts) == {"the red ferry sails at dawn", "ferry"}


async def test_auto_takes_no_other_provider_than_openai(home, serve, openai):
    del home.environ["OPENAI_API_KEY"]
    host_file(home, {"memory": {"search": {"provider": "auto"}}}, None)
    running = await serve()
    await running.synced()
    assert (await running.status()).embedding.reason == "no API key is configured for the provider openai"


async def test_an_unknown_provider_disables_the_embeddings_of_its_agent_alone(home, serve, openai):
    search = {"memory": {"search": {"provider": "opnai", "fallback": "openai"}}}
    agents = {
        "entries": {"main": {}, "odd": search},
        "ownership": "explicit",
        "defaults": {"workspace": str(home.root)},
    }
    for agent_id, text in (("main", "the red ferry"), ("odd", "a private note")):
        (home.root / agent_id / "memory").mkdir(parents=True)
        (home.root / agent_id / "memory" / "a.md").write_text(text)
    host_file(home, {"memory": {"search": {"provider": "openai"}}, "agents": agents}, openai)
    running = await serve()
    for agent_id in ("main", "odd"):
        await running.synced(agent_id=agent_id)
    status = await running.status(agent_id="odd")
    assert "the provider opnai is not supported by this version" in status.embedding.reason
    assert any('memory.search.provider: "opnai" is not known' in each for each in status.service.settings_warnings)
    assert openai.texts == ["the red ferry"]


async def test_the_key_of_openai_is_not_sent_to_another_address(home, serve, openai):
    with fake_provider("openai", [KEY]) as elsewhere:
        remote = {"baseUrl": elsewhere.url}
        host_file(home, {"memory": {"search": {"provider": "openai", "remote": remote}}}, openai)
        running = await serve()
        await running.synced()
        status = await running.status()
        assert "its own key (env OPENAI_API_KEY) is not sent there" in status.embedding.reason
        assert elsewhere.requests == openai.requests == []
        remote["apiKey"] = KEY
        host_file(home, {"memory": {"search": {"provider": "openai", "remote": remote}}}, openai)
        report = await running.daemon.reload(lambda: home.settings(quiet()))
        assert report.error == ""
        await running.synced()
        assert elsewhere.texts[-1] == "the red ferry sails at dawn"


# Agents


@pytest.fixture
async def roster(home, serve):
    """Three agents without a default one, each with a note in its own workspace."""
    shared = home.root / "shared"
    entries = {"main": {}, "Third One": {}, "own": {"workspace": str(home.root / "own")}}
    agents = {"ownership": "explicit", "entries": entries, "defaults": {"workspace": str(shared)}}
    host_file(home, {"agents": agents})
    for agent_id, folder in (
        ("main", shared / "main"),
        ("third-one", shared / "third-one"),
        ("own", home.root / "own"),
    ):
        (folder / "memory").mkdir(parents=True)
        (folder / "memory" / "note.md").write_text(f"the note of {agent_id}")
    running = await serve(listen="127.0.0.1:0")
    _, running.token = new_token(home, scopes=["admin", "edit"])
    return running


async def sync(running, options, agent_id):
    async for _ in running.stub.Sync(pb.SyncRequest(agent_id=agent_id), timeout=TIMEOUT, **options):
        pass


async def search(running, options, **request):
    return await running.stub.MemorySearch(pb.MemorySearchRequest(query="note", **request), timeout=TIMEOUT, **options)


async def test_each_entry_has_its_own_workspace(roster):
    options = bearer(roster.token)
    for agent_id in ("main", "third-one", "own"):
        await sync(roster, options, agent_id)
        (result,) = (await search(roster, options, agent_id=agent_id)).results
        assert result.snippet.startswith(f"the note of {agent_id}\n")
    listed = await roster.stub.ListAgents(pb.ListAgentsRequest(), **options)
    assert {agent.agent_id: agent.default for agent in listed.agents} == dict.fromkeys(
        ("main", "own", "third-one"), False
    )


@pytest.mark.parametrize("method", AGENT_CALLS)
async def test_a_request_without_an_agent_is_refused_with_the_names_of_the_agents(roster, method):
    made = call(roster, method, for_agent(method, ""), **bearer(roster.token))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [each async for each in made] if method in {"Sync", "WatchIndex"} else await made
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "agent_id: must name one of main, own, third-one: no agent is the default" in caught.value.details()


async def test_the_session_key_names_the_agent_of_such_a_request(roster):
    options = bearer(roster.token)
    await sync(roster, options, "own")
    (result,) = (await search(roster, options, session_key="agent:own:main")).results
    assert "the note of own" in result.snippet


async def test_a_limited_token_learns_no_other_agents_from_such_a_request(roster, home):
    _, secret = new_token(home, "own")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await search(roster, bearer(secret))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "third-one" not in caught.value.details()


# Sessions and reads


async def test_remembered_sessions_are_found_only_if_the_request_names_them(home, serve):
    home.write(boat="the red ferry sails at dawn")
    message = {"type": "message", "message": {"role": "user", "content": "the ferry of the session"}}
    home.say("x.jsonl", json.dumps(message) + "\n")
    host_file(home, {"memory": {"search": {}}})
    running = await serve()
    await running.synced()
    assert paths(await running.search("ferry")) == ["memory/boat.md"]
    assert paths(await running.search("ferry", sources=[SESSIONS])) == ["sessions/x.jsonl"]
    host_file(home, {"memory": {"search": {"sources": ["memory", "sessions"]}}})
    await running.daemon.reload(lambda: home.settings(quiet()))
    assert set(paths(await running.search("ferry"))) == {"memory/boat.md", "sessions/x.jsonl"}


async def test_a_read_ends_at_the_configured_number_of_characters(home, serve):
    home.write(long="one\ntwo\nthree\n" + "x" * 50)
    host_file(home, {"agents": {"entries": {"main": {"contextLimits": {"memoryGetMaxChars": 9}}}}})
    running = await serve()
    first = await running.get("memory/long.md")
    assert (first.text, first.end_line, first.next_start_line, first.truncated) == ("one\ntwo", 2, 3, False)
    last = await running.get("memory/long.md", start_line=4)
    assert (last.text, last.end_line, last.next_start_line, last.truncated) == ("x" * 9, 4, 0, True)
