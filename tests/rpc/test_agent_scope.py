"""What a token for some agents opens: those, and no word about the others."""

import pytest

from memoryd.v1 import entry_service_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.agent_calls import AGENT_CALLS, ENTRY_CALLS, HAS_LANCEDB, call, for_agent, stores_transcripts
from rpc.callers import SERVICE, bearer, health, listed, new_token, store
from rpc.wire import check_refused, refused

AGENTS = ("main", "ada", "bob", "carl")
ABSENT = "nobody"
SCOPES = ["admin", "edit"]
# The answers of the agent about a file and a write that it does not have.
ANSWERS = {"MemoryMove": ("ABORTED", "CONTENT_CHANGED"), "MemoryRestore": ("NOT_FOUND", "VERSION_NOT_FOUND")}


@pytest.fixture
async def running(serve, home):
    entries = [{"id": name, "workspace": str(home.root / name)} for name in AGENTS]
    entries[-1]["memorySearch"] = {"enabled": False}
    for name in AGENTS:
        (home.root / name).mkdir()
        (home.root / name / "MEMORY.md").write_text(f"the secret of {name} is x\n")
        sessions = home.state_dir / "agents" / name / "sessions"
        sessions.mkdir(parents=True)
        (sessions / "x.jsonl").write_text('{"type":"message","message":{"role":"user","content":"a secret"}}\n')
    home.put("MEMORY.md", "main is the default agent, and its workspace that of the flag")
    settings = {"agents": {"list": entries}, "memoryd": {"entries": {"enabled": True}, "writes": "edit"}}
    return await serve(settings, listen="127.0.0.1:0")


def is_missing(running, method):
    """Whether the daemon lacks what the call needs."""
    if method in ENTRY_CALLS:
        return not HAS_LANCEDB
    return method == "SessionAppend" and not stores_transcripts(running)


async def check_answered(running, method, agent_id, options):
    made = call(running, method, for_agent(method, agent_id), **options)
    if method in {"Sync", "WatchIndex"}:
        assert await anext(aiter(made))
        made.cancel()
    elif is_missing(running, method):
        await check_refused(made, "UNIMPLEMENTED", "NOT_IMPLEMENTED")
    elif method in ANSWERS:
        await check_refused(made, *ANSWERS[method])
    else:
        assert await made is not None


async def forbidden(running, method, agent_id, options):
    made = call(running, method, for_agent(method, agent_id), **options)
    return await check_refused(made, "PERMISSION_DENIED", "AGENT_FORBIDDEN", mentions="this token does not allow")


@pytest.mark.parametrize("method", AGENT_CALLS)
async def test_a_token_opens_its_agent_and_refuses_every_other_alike(running, home, method):
    _, token = new_token(home, "ada", scopes=SCOPES)
    options = bearer(token)
    for spelling in ("ada", "ADA", " ada "):
        await check_answered(running, method, spelling, options)
    told = [await forbidden(running, method, other, options) for other in ("main", "bob", "carl", ABSENT, "ad", "a da")]
    for found, other in zip(told, ("main", "bob", "carl", ABSENT, "ad", "a da"), strict=True):
        assert found.metadata == {"agent_id": other}
        assert found.message.replace(other, "-") == told[0].message.replace("main", "-")


@pytest.mark.parametrize("method", AGENT_CALLS)
async def test_no_agent_means_main_and_nothing_else_to_a_limited_token(running, home, method):
    _, without = new_token(home, "ada", scopes=SCOPES)
    await forbidden(running, method, "", bearer(without))
    await forbidden(running, method, "  ", bearer(without))
    _, with_main = new_token(home, "ada", "main", scopes=SCOPES)
    await check_answered(running, method, "", bearer(with_main))


@pytest.mark.parametrize("method", AGENT_CALLS)
async def test_the_agent_is_refused_before_anything_else_of_the_request(running, home, method):
    """Bad fields, too, would tell: they are looked at with the agent's settings."""
    _, token = new_token(home, "ada", scopes=SCOPES)
    request = for_agent(method, "bob")
    for field in ("query", "path", "text"):
        if hasattr(request, field):
            setattr(request, field, "")
    await check_refused(call(running, method, request, **bearer(token)), "PERMISSION_DENIED", "AGENT_FORBIDDEN")


@pytest.mark.parametrize("method", AGENT_CALLS)
async def test_a_token_for_several_agents_opens_them_all(running, home, method):
    _, token = new_token(home, "ada", "Bob".lower(), scopes=SCOPES)
    for agent_id in ("ada", "bob"):
        await check_answered(running, method, agent_id, bearer(token))
    await forbidden(running, method, "main", bearer(token))


def test_every_request_but_the_list_of_agents_names_an_agent():
    """The check of the agent goes by the field's name."""
    methods = [
        *pb.DESCRIPTOR.services_by_name["MemoryService"].methods,
        *entry_service_pb2.DESCRIPTOR.services_by_name["EntryService"].methods,
    ]
    without = [method.name for method in methods if "agent_id" not in method.input_type.fields_by_name]
    assert without == ["ListAgents"]
    assert {method.name for method in methods} == {*AGENT_CALLS, "ListAgents"}


@pytest.mark.parametrize("named", [("ada",), ("ada", "carl"), ("main", "bob"), (ABSENT,), ("ada", ABSENT), ()])
async def test_only_the_token_s_agents_are_listed(running, home, named):
    _, token = new_token(home, *named)
    options = bearer(token)
    found, page_token = [], ""
    while True:
        page = await running.stub.ListAgents(pb.ListAgentsRequest(page_size=1, page_token=page_token), **options)
        found += page.agents
        page_token = page.next_page_token
        if not page_token:
            break
    assert [agent.agent_id for agent in found] == sorted({*named} & {*AGENTS}) if named else sorted(AGENTS)
    assert [agent.agent_id for agent in found if agent.default] == (["main"] if not named or "main" in named else [])


async def test_a_removed_agent_is_not_found_and_no_other_is_named(running, home):
    _, token = new_token(home, ABSENT)
    found = await refused(running.stub.Status(pb.StatusRequest(agent_id=ABSENT), **bearer(token)))
    assert (found.code, found.reason) == ("NOT_FOUND", "AGENT_NOT_FOUND")
    assert not any(name in found.message for name in AGENTS)
    _, every = new_token(home)
    found = await refused(running.stub.Status(pb.StatusRequest(agent_id=ABSENT), **bearer(every)))
    assert "ada, bob, carl, main" in found.message


async def test_a_run_of_another_agent_cannot_be_followed(running, home):
    _, every = new_token(home)
    event = await anext(aiter(running.stub.Sync(pb.SyncRequest(agent_id="bob"), **bearer(every))))
    _, token = new_token(home, "ada")
    stream = running.stub.Sync(pb.SyncRequest(agent_id="ada", cursor=event.cursor), **bearer(token))
    await check_refused(stream, "OUT_OF_RANGE", "CURSOR_EXPIRED")


async def test_a_limit_holds_at_once_when_the_store_changes(running, home):
    """A token that is made anew for another agent is another token: the old one keeps its own agents."""
    token_id, token = new_token(home, "ada")
    await check_answered(running, "Status", "ada", bearer(token))
    store(home).revoke(token_id)
    _, other = new_token(home, "bob")
    made = running.stub.Status(pb.StatusRequest(agent_id="ada"), **bearer(token))
    await check_refused(made, "UNAUTHENTICATED", "TOKEN_INVALID")
    await forbidden(running, "Status", "ada", bearer(other))


async def test_health_and_reflection_are_about_the_daemon_and_open_to_a_limited_token(running, home):
    _, token = new_token(home, "ada")
    assert await health(running, SERVICE, **bearer(token)) == 1
    assert SERVICE in await listed(running, **bearer(token))


async def test_the_settings_of_others_are_not_in_the_status_of_a_limited_token(serve, home):
    settings = {"agents": {"list": [{"id": "main"}, {"id": "bob", "memorySearch": {"multimodal": {"enabled": True}}}]}}
    running = await serve(settings, listen="127.0.0.1:0")
    (_, token), (_, every) = new_token(home, "main"), new_token(home)
    full = await running.stub.Status(pb.StatusRequest(), **bearer(every))
    assert any("bob" in warning for warning in full.service.settings_warnings)
    narrow = await running.stub.Status(pb.StatusRequest(), **bearer(token))
    assert "bob" not in str(narrow)
    assert narrow.index == full.index
