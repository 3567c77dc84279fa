"""A session key `agent:<id>:<rest>` names the agent of a request that has no agent id."""

import json

import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.sessions import SessionKey
from rpc.agent_calls import AGENT_CALLS, call, for_agent, stores_transcripts
from rpc.callers import bearer, new_token
from rpc.wire import check_refused, paths

KEYED = [method for method, request in AGENT_CALLS.items() if "session_key" in request.DESCRIPTOR.fields_by_name]


def with_key(method, session_key, agent_id=""):
    request = for_agent(method, agent_id)
    request.session_key = session_key
    return request


async def answer(running, method, request, **options):
    """The reply of a call, or the events of a stream."""
    made = call(running, method, request, **options)
    return [event async for event in made] if method == "Sync" else await made


async def check_answered(running, method, request, **options):
    """The call reaches its agent, also if it is one that an agent with its documents in files does not answer."""
    if method == "SessionAppend" and not stores_transcripts(running):
        await check_refused(call(running, method, request, **options), "UNIMPLEMENTED", "NOT_IMPLEMENTED")
    else:
        assert await answer(running, method, request, **options)


@pytest.fixture
async def running(serve, home):
    home.put("MEMORY.md", "# Main\n\nthe note of main\n")
    work = home.root / "work"
    (work / "memory").mkdir(parents=True)
    (work / "MEMORY.md").write_text("# Work\n\nthe note of work\n")
    for agent_id in ("main", "work"):
        message = {"type": "message", "message": {"role": "user", "content": f"the session of {agent_id}"}}
        home.say("x.jsonl", json.dumps(message) + "\n", agent_id=agent_id)
    agents = [{"id": "main"}, {"id": "work", "workspace": str(work)}, {"id": "rest"}]
    running = await serve({"agents": {"list": agents}}, listen="127.0.0.1:0")
    _, running.token = new_token(home)
    return running


def test_six_requests_have_a_session_key():
    assert set(KEYED) == {"MemorySearch", "MemoryRecall", "Sync", "SessionContext", "SessionArchive", "SessionAppend"}


@pytest.mark.parametrize("key", ["agent:work:main", " Agent:WORK:telegram:direct:42 ", "agent: work :subagent:x"])
async def test_the_agent_of_the_session_key_answers_a_request_without_an_agent(running, key):
    options = bearer(running.token)
    await answer(running, "Sync", with_key("Sync", key), **options)
    found = await running.stub.MemorySearch(pb.MemorySearchRequest(query="note", session_key=key), **options)
    assert ["work" in result.snippet for result in found.results] == [True]
    assert (await running.stub.Status(pb.StatusRequest(), **options)).index.files == 0
    context = await answer(running, "SessionContext", with_key("SessionContext", key), **options)
    assert all("main" not in file.text for file in context.files)
    archive = await answer(running, "SessionArchive", with_key("SessionArchive", key), **options)
    assert "the session of work" in (running.home.root / "work" / archive.path).read_text()


async def test_the_main_session_of_the_key_s_agent_loads_its_long_term_memory(running):
    request = with_key("SessionContext", "agent:work:main")
    context = await answer(running, "SessionContext", request, **bearer(running.token))
    assert context.main_session
    assert "the note of work" in context.files[0].text


@pytest.mark.parametrize(
    "key", ["", "main", "agent", "agent:", "agent:work", "agent:work:", "agent::work", "agents:work:x"]
)
async def test_a_key_without_an_agent_leaves_the_request_to_the_default_agent(running, key):
    context = await answer(running, "SessionContext", with_key("SessionContext", key), **bearer(running.token))
    assert context.main_session is (key == "main")
    await answer(running, "Sync", with_key("Sync", key), **bearer(running.token))
    found = await running.stub.MemorySearch(
        pb.MemorySearchRequest(query="note", session_key=key), **bearer(running.token)
    )
    assert ["main" in result.snippet for result in found.results] == [True]


@pytest.mark.parametrize("method", KEYED)
async def test_an_agent_id_that_is_not_the_key_s_agent_is_invalid(running, method):
    options = bearer(running.token)
    request = with_key(method, "agent:work:main", agent_id="main")
    found = await check_refused(
        call(running, method, request, **options),
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
        violations={"session_key"},
    )
    assert found.violations["session_key"] == "names the agent 'work', but the request is for the agent 'main'"
    await check_answered(running, method, with_key(method, "agent:work:main", agent_id=" WORK "), **options)


@pytest.mark.parametrize("method", KEYED)
async def test_the_key_s_agent_is_refused_as_the_same_agent_id_is(running, home, method):
    _, token = new_token(home, "work")
    for other in ("main", "rest", "absent"):
        named = await check_refused(
            call(running, method, with_key(method, f"agent:{other}:main"), **bearer(token)),
            "PERMISSION_DENIED",
            "AGENT_FORBIDDEN",
        )
        explicit = await check_refused(
            call(running, method, for_agent(method, other), **bearer(token)), "PERMISSION_DENIED", "AGENT_FORBIDDEN"
        )
        assert (named.message, named.metadata) == (explicit.message, explicit.metadata)
    # An empty agent id means `main` to this token, except with a key of its agent.
    await check_answered(running, method, with_key(method, "agent:work:main"), **bearer(token))
    await check_refused(
        call(running, method, with_key(method, "main"), **bearer(token)), "PERMISSION_DENIED", "AGENT_FORBIDDEN"
    )


@pytest.mark.parametrize("method", KEYED)
async def test_a_contradiction_is_refused_without_a_word_about_other_agents(running, home, method):
    _, token = new_token(home, "work")
    for other in ("main", "absent"):
        await check_refused(
            call(running, method, with_key(method, f"agent:{other}:main", agent_id="work"), **bearer(token)),
            "INVALID_ARGUMENT",
            "INVALID_REQUEST",
            violations={"session_key"},
            mentions=other,
        )


@pytest.mark.parametrize("method", KEYED)
async def test_a_key_of_an_unknown_agent_is_not_found(running, method):
    await check_refused(
        call(running, method, with_key(method, "agent:absent:main"), **bearer(running.token)),
        "NOT_FOUND",
        "AGENT_NOT_FOUND",
        mentions="'absent'",
    )


@pytest.mark.attacks
async def test_a_key_that_is_too_long_names_no_agent_and_is_not_kept_in_memory(running):
    SessionKey.parse.cache_clear()
    for method in KEYED:
        # A longer request of a stream is refused as a whole.
        key = "agent:work:" + "x" * (60_000 if method == "Sync" else 2_000_000)
        await check_refused(
            call(running, method, with_key(method, key), **bearer(running.token)),
            "INVALID_ARGUMENT",
            "INVALID_REQUEST",
            violations={"session_key"},
        )
    assert SessionKey.parse.cache_info().currsize <= 1


async def test_the_default_agent_answers_if_there_is_no_main(serve, home):
    home.put("MEMORY.md", "# Work\n\nthe note of work\n")
    running = await serve({"agents": {"list": [{"id": "rest"}, {"id": "work", "default": True}]}})
    await running.sync()
    assert paths(await running.search("note")) == ["MEMORY.md"]
    assert paths(await running.search("note", session_key="agent:work:main")) == ["MEMORY.md"]
    assert not (await running.search("note", session_key="agent:rest:main")).results
