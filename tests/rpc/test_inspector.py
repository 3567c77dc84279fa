"""The inspector over HTTP: its files, sign-in, the calls of its page, and the watch of an index."""

import asyncio
import re
from datetime import timedelta

import httpx
import pytest

from certificates import Authority, needs_openssl
from memoryd_server.errors import SettingsError
from rpc.callers import new_token, store
from rpc.http_client import any_agent, client, http_settings, reason_of, tls_client
from rpc.inspector_client import WATCH, attributes, call, cookie_name, error, events, is_signed_in, page, sign_in
from waiting import eventually

pytest.importorskip("mcp")

POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
    "trusted-types 'none'",
}  # fmt: skip
CALLS = {
    "ListAgents": {},
    "Status": {},
    "ListFiles": {"includeExcluded": True},
    "MemoryGet": {"path": "memory/a.md", "includeChunks": True},
    "MemoryHistory": {},
    "MemorySearch": {"query": "crane", "explain": True},
    "ExplainMiss": {"search": {"query": "crane"}, "path": "memory/a.md"},
    "MemoryRecall": {"text": "Where is the crane?"},
    "SessionContext": {"sessionKey": "agent:main:main:thread:inspector"},
}
LESS_THAN_A_HEARTBEAT = 12.0
TWO_AGENTS = {"agents": {"list": [{"id": "main"}, {"id": "other"}]}}


@pytest.fixture
def noted(home):
    """A workspace with one note."""
    home.write(a="# Harbour\n\na crane\n")
    return home


@pytest.fixture
async def browser(serve, noted):
    """A browser that has signed in, and the daemon as its attribute `running`."""
    running = await serve(http_settings())
    await running.synced()
    async with page(running) as browser:
        browser.running = running
        browser.token_id, token = new_token(noted, scopes=["read"])
        assert (await sign_in(browser, token)).status_code == 204
        yield browser


async def test_the_page_and_its_files_need_no_token_and_have_a_strict_policy(serve):
    running = await serve(http_settings())
    async with page(running) as browser:
        index = await browser.get("/")
        assert index.headers["content-type"] == "text/html; charset=utf-8"
        paths = set(re.findall(r'(?:href|src)="(/[^"]+)"', index.text))
        types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
        assert {path.rpartition(".")[2] for path in paths} == set(types)
        for path in ("/", *paths):
            response = await browser.get(path)
            headers = response.headers
            assert response.status_code == 200, path
            if path != "/":
                assert headers["content-type"] == f"{types[path.rpartition('.')[2]]}; charset=utf-8"
            assert set(headers["content-security-policy"].split("; ")) == POLICY
            assert headers["cache-control"] == "no-cache"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
            assert not {"server", "date", "set-cookie", "access-control-allow-origin"} & set(headers)
            head = await browser.head(path)
            assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", headers["etag"])


async def test_every_module_that_a_module_imports_is_preloaded(serve):
    """A module that is not preloaded delays the page by a round trip, and one that is missing breaks it."""
    running = await serve(http_settings())
    async with page(running) as browser:
        index = (await browser.get("/")).text
        named = set(re.findall(r'(?:href|src)="(/inspector/[^"]+\.js)"', index))
        imported = set()
        for path in named:
            imported |= set(
                re.findall(r'^(?:import|export)[^"]*from "\./([^"]+)"', (await browser.get(path)).text, re.MULTILINE)
            )
        assert imported
        assert {f"/inspector/{name}" for name in imported} <= named


async def test_a_file_is_compressed_if_the_browser_accepts_gzip(serve):
    running = await serve(http_settings())
    async with page(running) as browser:
        plain = await browser.get("/", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        for accepted in ("gzip", "deflate, GZIP;q=0.5", "br, gzip"):
            response = await browser.get("/", headers={"accept-encoding": accepted})
            assert response.headers["content-encoding"] == "gzip", accepted
            assert int(response.headers["content-length"]) < len(plain.content) == len(response.content)
            assert response.content == plain.content
            assert response.headers["vary"] == plain.headers["vary"] == "accept-encoding"
            assert response.headers["etag"] != plain.headers["etag"]
        for refused in ("gzip;q=0", "br, gzip; q=0.000", "gzipped", ""):
            response = await browser.get("/", headers={"accept-encoding": refused})
            assert "content-encoding" not in response.headers, refused
            assert response.headers["etag"] == plain.headers["etag"]


async def test_a_known_version_of_a_file_is_not_sent_again(serve):
    running = await serve(http_settings())
    async with page(running) as browser:
        etag = (await browser.get("/")).headers["etag"]
        assert re.fullmatch(r'"[0-9a-f]{32}"', etag)
        for known in (etag, f'"old", {etag}', f"W/{etag}", "*"):
            response = await browser.get("/", headers={"if-none-match": known})
            assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", etag), known
            assert set(response.headers["content-security-policy"].split("; ")) == POLICY
        for unknown in ('"old"', etag.strip('"'), ""):
            assert (await browser.get("/", headers={"if-none-match": unknown})).status_code == 200, unknown
        assert (await browser.get("/")).status_code == 200


async def test_a_token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get(serve, home):
    running = await serve(http_settings())
    token_id, token = new_token(home)
    async with page(running) as browser:
        assert not await is_signed_in(browser)
        response = await sign_in(browser, f" {token}\n")
        assert (response.status_code, response.content) == (204, b"")
        (name, value), found = attributes(response)
        assert name == cookie_name(running)
        assert re.fullmatch(r"[\w-]{43}", value)
        assert found == {"httponly", "samesite=strict", "path=/inspector", "max-age=43200"}
        assert response.headers["cache-control"] == "no-store"
        assert await is_signed_in(browser)
        (line,) = running.logged("open-inspector-session")
        assert line["token_id"] == token_id
        assert "127.0.0.1" not in str(line)


async def test_a_sign_in_replaces_the_session_of_the_browser(browser, noted):
    first = browser.cookies[cookie_name(browser.running)]
    assert (await sign_in(browser, any_agent(noted))).status_code == 204
    second = browser.cookies[cookie_name(browser.running)]
    assert first != second
    async with page(browser.running, cookies={cookie_name(browser.running): first}) as other:
        assert error(await call(other, "Status")) == (401, "SIGN_IN_REQUIRED")


async def test_a_wrong_token_gets_no_cookie(serve):
    running = await serve(http_settings())
    async with page(running) as browser:
        response = await sign_in(browser, "wrong")
        assert error(response) == (401, "TOKEN_INVALID")
        assert "set-cookie" not in response.headers
        for body in ({}, {"token": ""}, {"token": " "}, {"token": 1}, {"token": None}, [], "text", {"token": ["a"]}):
            response = await browser.post("/inspector/sign-in", json=body)
            assert error(response) == (400, "INVALID_REQUEST"), body
            assert response.json()["error"]["violations"]


async def test_a_sign_out_ends_the_session_and_clears_the_cookie(browser):
    running = browser.running
    session = browser.cookies[cookie_name(running)]
    assert (await browser.post("/inspector/session", json={})).json() == {"signedIn": True}
    response = await browser.post("/inspector/sign-out", json={})
    assert response.status_code == 204
    assert attributes(response)[0] == (cookie_name(running), "")
    assert "max-age=0" in attributes(response)[1]
    assert (await browser.post("/inspector/session", json={})).json() == {"signedIn": False}
    async with page(running, cookies={cookie_name(running): session}) as thief:
        assert error(await call(thief, "Status")) == (401, "SIGN_IN_REQUIRED")
        assert error(await thief.post("/inspector/sign-out", json={})) == (401, "SIGN_IN_REQUIRED")


async def test_the_calls_of_the_page_are_answered_in_proto3_json(browser):
    found = {method: (await call(browser, method, request)) for method, request in CALLS.items()}
    for method, response in found.items():
        assert response.status_code == 200, (method, response.text)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
    bodies = {method: response.json() for method, response in found.items()}
    assert [agent["agentId"] for agent in bodies["ListAgents"]["agents"]] == ["main"]
    assert bodies["Status"]["index"]["state"] == "INDEX_STATE_READY"
    assert bodies["ListFiles"]["files"][0]["path"] == "memory/a.md"
    assert bodies["MemoryGet"]["text"].startswith("# Harbour")
    assert bodies["MemorySearch"]["results"][0]["path"] == "memory/a.md"
    assert bodies["SessionContext"]["mainSession"]
    metrics = await browser_metrics(browser)
    assert 'memoryd_rpc_calls_total{code="200",method="http/inspector/call"} 9.0' in metrics
    assert 'memoryd_rpc_calls_total{code="OK",method="memoryd.v1.MemoryService/MemorySearch"} 1.0' in metrics


async def browser_metrics(browser):
    async with client(browser.running, any_agent(browser.running.home)) as http:
        return (await http.get("/metrics")).text


async def test_errors_have_the_reason_the_violations_and_the_status_of_the_reason(browser):
    async def refused(method, request):
        response = await call(browser, method, request)
        return (*error(response), response.json()["error"].get("violations", []))

    assert await refused("MemoryGet", {"path": "memory/absent.md"}) == (404, "FILE_NOT_FOUND", [])
    assert await refused("MemoryGet", {"path": "../a.md"}) == (403, "PATH_NOT_ALLOWED", [])
    assert await refused("Status", {"agentId": "absent"}) == (404, "AGENT_NOT_FOUND", [])
    assert await refused("MemorySearch", {"query": "a", "mode": "SEARCH_MODE_VECTOR"}) == (
        400,
        "EMBEDDING_NOT_CONFIGURED",
        [],
    )
    status, reason, violations = await refused("MemorySearch", {"query": " ", "maxResults": 0})
    assert (status, reason) == (400, "INVALID_REQUEST")
    assert {violation["field"] for violation in violations} == {"query", "max_results"}
    status, reason, violations = await refused("MemorySearch", {"text": "a"})
    assert (status, reason, violations[0]["field"]) == (400, "INVALID_REQUEST", "request")


async def test_an_agent_that_a_token_does_not_allow_is_not_visible(serve, noted):
    running = await serve({**http_settings(), **TWO_AGENTS})
    async with page(running) as browser:
        await sign_in(browser, new_token(noted, "other")[1])
        agents = (await call(browser, "ListAgents")).json()["agents"]
        assert [agent["agentId"] for agent in agents] == ["other"]
        for method, request in CALLS.items():
            if method not in {"ListAgents", "SessionContext"}:
                response = await call(browser, method, {**request, "agentId": "main"})
                assert error(response) == (403, "AGENT_FORBIDDEN"), method
        assert error(await call(browser, "SessionContext", CALLS["SessionContext"])) == (403, "AGENT_FORBIDDEN")
        assert error(await browser.post(WATCH, json={"agentId": "main"})) == (403, "AGENT_FORBIDDEN")
        assert (await call(browser, "Status", {"agentId": "other"})).status_code == 200


async def test_a_watch_sends_each_state_of_the_index_and_ends_with_the_connection(browser, noted):
    running = browser.running
    async with browser.stream("POST", WATCH, json={"agentId": "main"}) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        states = events(response)
        first = await anext(states)
        assert (first["agentId"], first["state"]) == ("main", "INDEX_STATE_READY")
        noted.write(b="another note")
        await running.synced()
        async with asyncio.timeout(30):
            while (await anext(states))["indexRevision"] == first["indexRevision"]:
                pass
        assert running.daemon.edges.http.requests == 1
    await eventually(lambda: running.daemon.edges.http.requests == 0)
    assert running.gate.admission.streams == 0
    assert not running.logged("fail-background-task")


async def test_a_call_ends_when_its_client_leaves(serve, noted, pause_sync):
    running = await serve(http_settings())
    async with page(running) as browser:
        await sign_in(browser, any_agent(noted))
        waiting = asyncio.ensure_future(call(browser, "MemorySearch", {"query": "a", "minRevision": "9" * 18}))
        await eventually(lambda: running.gate.admission.calls == 1)
        waiting.cancel()
        await eventually(lambda: running.gate.admission.calls == 0, seconds=10)
    assert not running.logged("fail-background-task")


async def test_a_stop_of_the_daemon_ends_a_watch_without_its_grace(serve, noted):
    running = await serve(http_settings({"shutdownGraceSeconds": 60}))
    async with page(running) as browser:
        await sign_in(browser, any_agent(noted))
        async with browser.stream("POST", WATCH, json={}) as response:
            states = events(response)
            await anext(states)
            stop = asyncio.ensure_future(running.stop_daemon())
            async with asyncio.timeout(LESS_THAN_A_HEARTBEAT):
                assert [state async for state in states] == []
                await stop
    assert not running.logged("fail-request")


@pytest.mark.slow
async def test_a_revoked_token_ends_the_session_and_its_watch(browser, noted):
    running = browser.running
    async with browser.stream("POST", WATCH, json={}) as response:
        states = events(response)
        await anext(states)
        store(noted).revoke(browser.token_id)
        async with asyncio.timeout(LESS_THAN_A_HEARTBEAT):
            assert [state async for state in states] == []
    assert error(await call(browser, "Status")) == (401, "SIGN_IN_REQUIRED")
    assert not running.logged("fail-request")


async def test_a_revoked_token_ends_the_session_at_the_next_call(browser, noted):
    store(noted).revoke(browser.token_id)
    assert error(await call(browser, "Status")) == (401, "SIGN_IN_REQUIRED")
    assert (await browser.post("/inspector/session", json={})).json() == {"signedIn": False}


@pytest.mark.slow
async def test_an_expired_token_ends_the_session_and_its_watch(serve, noted):
    running = await serve(http_settings())
    _, token = new_token(noted, age=timedelta(hours=1), expires=timedelta(hours=1, seconds=3))
    async with page(running) as browser:
        assert (await sign_in(browser, token)).status_code == 204
        async with browser.stream("POST", WATCH, json={}) as response, asyncio.timeout(LESS_THAN_A_HEARTBEAT):
            assert [state async for state in events(response)]
        assert error(await call(browser, "Status")) == (401, "SIGN_IN_REQUIRED")


async def test_a_watch_ends_at_its_next_event_after_a_sign_out(browser, noted):
    async with browser.stream("POST", WATCH, json={}) as response:
        states = events(response)
        await anext(states)
        assert (await browser.post("/inspector/sign-out", json={})).status_code == 204
        noted.write(b="a note that the page does not see")
        await browser.running.synced()
        async with asyncio.timeout(20):
            assert [state async for state in states] == []


async def test_the_inspector_can_be_disabled(serve, home):
    running = await serve(http_settings(inspector=False))
    async with page(running) as browser:
        response = await browser.get("/")
        assert (response.status_code, reason_of(response)) == (404, "NOT_FOUND")
        assert response.json()["error"]["message"].endswith("it has /mcp, /healthz, /readyz, /metrics")
        for path in ("/inspector/main.js", "/inspector/sign-in", "/inspector/call/Status"):
            assert error(await browser.post(path, json={"token": any_agent(home)})) == (404, "NOT_FOUND")
        assert (await browser.get("/healthz")).status_code == 200


async def test_unknown_paths_are_not_found(serve):
    running = await serve(http_settings())
    async with page(running) as browser:
        for path in ("/inspector", "/inspector/", "/inspector/absent.js", "/inspector/index.html", "/index.html"):
            response = await browser.get(path)
            assert response.status_code == 404, path
            assert response.json()["error"]["message"].endswith("it has /mcp, /healthz, /readyz, /metrics, /")


@needs_openssl
async def test_with_tls_the_cookie_is_secure_and_the_origin_must_be(serve, home):
    authority = Authority(home.root)
    certificate, key = authority.issue("first")
    settings = http_settings()
    settings["memoryd"]["tls"] = {"certFile": str(certificate), "keyFile": str(key)}
    running = await serve(settings)
    async with page(running, verify=tls_client(authority.ca)) as browser:
        token = any_agent(home)
        own = browser.headers["origin"]
        assert own.startswith("https://")
        plain = own.replace("https://", "http://")
        assert error(await sign_in(browser, token, origin=plain)) == (403, "ORIGIN_NOT_ALLOWED")
        response = await sign_in(browser, token)
        assert response.status_code == 204
        assert "secure" in attributes(response)[1]
        assert error(await call(browser, "Status", origin=plain)) == (403, "ORIGIN_NOT_ALLOWED")
        assert await is_signed_in(browser)


async def test_behind_a_proxy_that_ends_tls_the_cookie_is_secure(serve, home):
    running = await serve(http_settings(allowedHosts=["memory.example"]))
    proxied = {"host": "memory.example", "origin": "https://memory.example"}
    async with httpx.AsyncClient(base_url=running.daemon.edges.http_url, trust_env=False, headers=proxied) as browser:
        response = await sign_in(browser, any_agent(home))
        assert response.status_code == 204
        (name, value), found = attributes(response)
        assert "secure" in found
        cookie = {"cookie": f"{name}={value}"}
        assert (await call(browser, "ListAgents", **cookie)).status_code == 200
        # A page that is not loaded with TLS has another origin, and no part in the session.
        plain = await call(browser, "ListAgents", origin="http://memory.example", **cookie)
        assert error(plain) == (401, "SIGN_IN_REQUIRED")


def test_a_missing_file_of_the_page_fails_the_start(tmp_path):
    inspector_assets = pytest.importorskip("memoryd_server.http.inspector_assets")
    with pytest.raises(SettingsError, match=r"missing: /; install memoryd again"):
        inspector_assets.read_page(tmp_path)
    (tmp_path / "index.html").write_text('<script src="/inspector/main.js"></script>')
    (tmp_path / "notes.txt").write_text("not a file of the page")
    with pytest.raises(SettingsError, match=r"missing: /inspector/main\.js"):
        inspector_assets.read_page(tmp_path)
    (tmp_path / "main.js").write_text("// é")
    assert set(inspector_assets.read_page(tmp_path)) == {"/", "/inspector/main.js"}
