"""Who may do what over HTTP: tokens of every kind, for every agent, with every tool and resource; and sessions."""

import json
from datetime import timedelta

import pytest

from rpc.callers import new_token, store
from rpc.http_client import McpSession, client, http_settings, reason_of
from waiting import eventually

pytest.importorskip("mcp")
pytestmark = pytest.mark.attacks

TOOLS = {
    "memory_search": {"query": "heron"},
    "memory_get": {"path": "memory/a.md"},
    "memory_append": {"text": "a line"},
    "memory_recall": {"text": "where does the heron nest?"},
    "memory_status": {},
}
SECRET = "the otter hides the key under the boathouse"


@pytest.fixture
async def agents(home, serve):
    """A daemon with the agents main and bob, whose notes differ."""
    bob = home.root / "bob"
    (bob / "memory").mkdir(parents=True)
    (bob / "memory" / "a.md").write_text("bob's heron is made of brass\n")
    home.write(a="the heron nests by the weir\n")
    (home.root / "secret.md").write_text(SECRET)
    (home.workspace / "memory" / "link.md").symlink_to(home.root / "secret.md")
    entries = [{"id": "main", "default": True}, {"id": "bob", "workspace": str(bob)}]
    running = await serve({**http_settings(), "agents": {"list": entries}})
    for agent_id in ("main", "bob"):
        await running.synced(agent_id=agent_id)
    return running


def text_of(status):
    return json.dumps(status, ensure_ascii=False)


async def test_a_token_reaches_the_agents_that_it_allows_and_no_other_one(agents, home):
    for allowed in (("bob",), ("main", "bob"), ()):
        async with client(agents, new_token(home, *allowed)[1]) as http:
            for agent_id in ("MAIN", "bob", "ghost"):
                session = McpSession(http, **{"memoryd-agent": agent_id})
                response = await session.open()
                may = not allowed or agent_id.lower() in allowed
                if not may:
                    assert (response.status_code, reason_of(response)) == (403, "AGENT_FORBIDDEN"), (allowed, agent_id)
                    continue
                assert response.status_code == 200
                for name, arguments in TOOLS.items():
                    result = await session.tool(name, **arguments)
                    assert bool(result.get("isError")) is (agent_id == "ghost"), (allowed, agent_id, name, result)
                    assert ("brass" not in text_of(result)) or agent_id == "bob"
                    assert ("weir" not in text_of(result)) or agent_id == "MAIN"
                for target in ("main", "bob"):
                    _, answer = await session.request("resources/read", uri=f"memory://{target}/memory/a.md")
                    assert ("result" in answer) is (not allowed or target in allowed), (allowed, agent_id, target)


async def test_the_default_agent_is_the_only_one_of_the_token(agents, home):
    for allowed, word in ((("bob",), "brass"), (("main",), "weir"), ((), "weir"), (("main", "bob"), "weir")):
        async with client(agents, new_token(home, *allowed)[1]) as http:
            session = McpSession(http)
            await session.open()
            assert word in text_of(await session.tool("memory_search", query="heron"))
    async with client(agents, new_token(home, "bob", "carol")[1]) as http:
        assert (await McpSession(http).open()).status_code == 403


async def test_an_agent_that_is_not_an_id_is_refused(agents, home):
    async with client(agents, new_token(home)[1]) as http:
        for agent_id in ("../bob", "a b", "é", "a" * 65, "*", "bob,main", "-a", "a\\b"):
            response = await McpSession(http, **{"memoryd-agent": agent_id.encode("latin-1")}).open()
            assert (response.status_code, reason_of(response)) == (400, "INVALID_REQUEST"), agent_id


async def test_expired_and_revoked_tokens_are_refused_within_a_session(agents, home):
    token_id, token = new_token(home)
    _, expired = new_token(home, age=timedelta(hours=2), expires=timedelta(hours=1))
    async with client(agents, expired) as http:
        assert (await McpSession(http).open()).status_code == 401
    async with client(agents, token) as http:
        session = McpSession(http)
        assert (await session.open()).status_code == 200
        store(home).revoke(token_id)
        status, answer = await session.request("tools/call", name="memory_status", arguments={})
        assert (status, answer["error"]["data"]["reason"]) == (401, "TOKEN_INVALID")
    assert token not in agents.log.getvalue()


async def test_a_session_can_be_used_only_with_its_token_and_its_agent(agents, home):
    _, token = new_token(home)
    async with client(agents, token) as http, client(agents, new_token(home)[1]) as other:
        session = McpSession(http)
        await session.open()
        for headers in (session.headers, {**session.headers, "memoryd-agent": "bob"}):
            stolen = McpSession(other, **headers)
            assert (await stolen.request("tools/list"))[0] == 404
            assert (await other.delete("/mcp", headers=headers)).status_code == 404
            assert (await other.get("/mcp", headers={**headers, "accept": "text/event-stream"})).status_code == 404
        changed = McpSession(http, **{**session.headers, "memoryd-agent": "bob"})
        assert (await changed.request("tools/list"))[0] == 404
        for guessed in ("0" * 32, "", "../x", "a" * 5_000):
            assert (await McpSession(http, **{**session.headers, "mcp-session-id": guessed}).request("tools/list"))[
                0
            ] in {400, 404}
        assert (await session.request("tools/list"))[0] == 200


@pytest.mark.slow
async def test_a_revoked_token_ends_an_event_stream(agents, home):
    token_id, token = new_token(home)
    server = agents.daemon.edges.http
    async with client(agents, token) as http:
        session = McpSession(http)
        await session.open()
        headers = {**session.headers, "accept": "text/event-stream"}
        async with http.stream("GET", "/mcp", headers=headers) as events:
            assert events.status_code == 200
            assert server.requests == 1
            store(home).revoke(token_id)
            assert [line async for line in events.aiter_lines() if line.startswith("data")] == []
        await eventually(lambda: server.requests == 0)


PATHS = (
    "../secret.md", "memory/../../secret.md", "memory/link.md", "/etc/passwd", "memory/..%2f..%2fsecret.md",
    "memory//../../secret.md", "~/secret.md", "memory/\0a.md", "file:///etc/passwd", "..\\secret.md",
    "../state/memoryd.tokens.json", "memory/a.md/../../../secret.md", "/proc/self/environ",
)  # fmt: skip
URIS = (
    "memory://main/../secret.md", "memory://main/%2e%2e/secret.md", "memory://main/..%2Fsecret.md",
    "memory://main/memory/link.md", "memory://main//etc/passwd", "memory://main/%2Fetc%2Fpasswd", "file:///etc/passwd",
    "memory:///../secret.md", "memory://main/memory/%00a.md", "memory://main/memory/a.md%00", "memory://../main/a.md",
    "memory://main@bob/memory/a.md", "memory://main/memory/a.md?x", "http://127.0.0.1/", "memory://main/%c0%ae%c0%ae/a",
    "memory://main/%2e%2e%2fstate%2fmemoryd.tokens.json", "memory://" + "a" * 20_000 + "/a.md",
)  # fmt: skip


async def test_no_path_and_no_uri_leads_outside_the_memory(agents, home):
    async with client(agents, new_token(home)[1]) as http:
        session = McpSession(http)
        await session.open()
        for path in (*PATHS, str(home.root / "secret.md"), str(home.state_dir / "memoryd.tokens.json")):
            result = await session.tool("memory_get", path=path)
            assert result["isError"] is True, path
            assert SECRET not in text_of(result)
            assert "sha256" not in text_of(result)
        for uri in (*URIS, f"memory://main/{home.root}/secret.md"):
            status, answer = await session.request("resources/read", uri=uri)
            assert status == 200
            assert "error" in answer, uri
            assert SECRET not in text_of(answer)
        assert "weir" in text_of(await session.tool("memory_get", path="memory/a.md"))
    assert not agents.logged("fail-request")
    assert not agents.logged("fail-call")
