"""Attacks on the inspector: other origins, forged cookies, guessed tokens, malformed bodies, and methods that write."""

import asyncio
import hashlib
import json
from urllib.parse import quote

import pytest

from rpc.callers import new_token
from rpc.http_client import any_agent, client, http_settings, raw, request_bytes, status_of
from rpc.inspector_client import SIGN_IN, WATCH, call, cookie_name, error, is_signed_in, page, sign_in
from waiting import eventually

pytest.importorskip("mcp")
pytestmark = pytest.mark.attacks

ATTEMPTS = 5
POSTS = (SIGN_IN, "/inspector/sign-out", "/inspector/session", WATCH, "/inspector/call/Status")
WRITES = {
    "MemoryAppend": {"text": "injected", "path": "memory/a.md"},
    "MemoryWrite": {"path": "memory/a.md", "content": "injected"},
    "MemoryMove": {"fromPath": "memory/a.md", "toPath": "memory/b.md"},
    "MemoryRestore": {"versionId": "1"},
    "MemoryForget": {"path": "memory/a.md", "deleteSource": True},
    "SessionArchive": {"transcript": "a.jsonl"},
    "SessionAppend": {"sessionId": "a", "records": ["{}"]},
    "Sync": {},
    "FlushDecision": {},
    "WatchIndex": {},
}


@pytest.fixture
def noted(home):
    """A workspace with one note."""
    home.write(a="# Harbour\n\na crane\n")
    return home


@pytest.fixture
async def browser(serve, noted):
    """A browser that has signed in with a token for everything, and the daemon as its attribute `running`."""
    running = await serve({"memoryd": {**http_settings()["memoryd"], "writes": "edit"}})
    await running.synced()
    async with page(running) as browser:
        browser.running = running
        assert (await sign_in(browser, new_token(noted, scopes=["admin", "edit"])[1])).status_code == 204
        yield browser


async def test_only_the_page_itself_may_send_requests_with_the_cookie(serve, home):
    running = await serve(http_settings(allowedOrigins=["https://app.example"], allowedHosts=["memory.example"]))
    url = running.daemon.edges.http_url
    port = url.rpartition(":")[2]
    token = any_agent(home)
    async with page(running) as browser:
        assert (await sign_in(browser, token)).status_code == 204
        cookie = {"cookie": f"{cookie_name(running)}={browser.cookies[cookie_name(running)]}"}
        others = (
            "https://app.example", "http://127.0.0.1:1", "http://127.0.0.1", f"http://localhost:{port}",
            f"http://[::1]:{port}", f"ftp://127.0.0.1:{port}", f"{url}/", f"{url}.", "null", "", "https://evil.example",
            f"http://user@127.0.0.1:{port}", f"http://127.0.0.1:{port}.evil.example", f"127.0.0.1:{port}",
            "https://memory.example",
        )  # fmt: skip
        for path in POSTS:
            for origin in others:
                response = await browser.post(path, json={"token": token}, headers={"origin": origin})
                assert error(response) == (403, "ORIGIN_NOT_ALLOWED"), (path, origin)
                found = {name for name in response.headers if name.startswith("access-control") or name == "set-cookie"}
                assert not found, (path, origin)
    async with client(running) as http:
        for path in POSTS:
            response = await http.post(path, json={"token": token}, headers=cookie)
            assert error(response) == (403, "ORIGIN_NOT_ALLOWED"), path


async def test_a_configured_origin_gets_no_access_to_the_inspector(serve):
    running = await serve(http_settings(allowedOrigins=["https://app.example"]))
    asked = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    async with client(running) as http:
        assert (await http.options("/mcp", headers=asked)).status_code == 204
        for path in (*POSTS, "/", "/inspector/main.js"):
            for response in (await http.options(path, headers=asked), await http.get(path, headers=asked)):
                assert not [name for name in response.headers if name.startswith("access-control")], path
            assert (await http.options(path, headers=asked)).status_code == 405


async def test_a_host_that_is_not_the_daemons_gets_nothing(serve, home):
    running = await serve(http_settings())
    foreign = {"host": "evil.example", "origin": "http://evil.example"}
    async with page(running) as browser:
        assert error(await sign_in(browser, any_agent(home), **foreign)) == (421, "HOST_NOT_ALLOWED")
        assert (await browser.get("/", headers=foreign)).status_code == 421
        assert (await browser.get("/inspector/main.js", headers=foreign)).status_code == 421


async def test_forms_and_scripts_of_other_sites_cannot_send_a_request_that_is_read(browser):
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""):
        for path in POSTS:
            response = await browser.post(path, content=b'{"token":"a"}', headers={"content-type": content_type})
            assert error(response) == (415, "INVALID_REQUEST"), (path, content_type)
    accepted = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await browser.post("/inspector/call/Status", content=b"{}", headers=accepted)).status_code == 200


async def test_other_methods_than_post_are_refused(browser):
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        for path in POSTS:
            response = await browser.request(method, path)
            assert response.status_code == 405, (method, path)
            assert response.headers["allow"] == "POST"
            assert "set-cookie" not in response.headers
    for method in ("POST", "PUT", "DELETE"):
        for path in ("/", "/inspector/main.js"):
            assert (await browser.request(method, path)).status_code == 405


async def test_a_request_without_the_cookie_of_a_session_is_refused(browser):
    running = browser.running
    name, session = cookie_name(running), browser.cookies[cookie_name(running)]
    forged = (
        "", f"{name}=", f"{name}={'a' * 43}", f"{name}={session[:-1]}", f"{name}={session}a",
        f"{name}={session.upper()}",
        f"other={session}", f"{name}-2={session}", f"{name.upper()}={session}", f"{name}={quote('../' + session)}",
        f"{name}={session}; {name}=a", f"{name}=a; {name}={session}", f'{name}="{session}"', "=" * 2_000, ";" * 2_000,
        f"{name}={hashlib.sha256(session.encode()).hexdigest()}",
    )  # fmt: skip
    async with page(running) as thief:
        for cookie in forged:
            for path in ("/inspector/call/Status", WATCH, "/inspector/sign-out"):
                response = await thief.post(path, json={}, headers={"cookie": cookie} if cookie else {})
                assert error(response) == (401, "SIGN_IN_REQUIRED"), (path, cookie)
        token = new_token(running.home)[1]
        bearer = {"authorization": f"Bearer {token}"}
        assert error(await call(thief, "Status", **bearer)) == (401, "SIGN_IN_REQUIRED")
        found = await call(thief, "Status", cookie=f"theme=dark; {name}={session}; a=b")
        assert found.status_code == 200
    assert not running.logged("fail-request")


async def test_the_session_is_no_bearer_token_and_opens_no_other_path(browser):
    running = browser.running
    session = browser.cookies[cookie_name(running)]
    for path in ("/metrics", "/mcp"):
        cookie = {"cookie": f"{cookie_name(running)}={session}"}
        assert (await browser.get(path, headers=cookie)).status_code == 401
        assert (await browser.get(path, headers={"authorization": f"Bearer {session}"})).status_code == 401


async def test_methods_that_write_do_not_exist_and_change_nothing(browser):
    running = browser.running

    def files():
        return {file: file.read_bytes() for file in running.home.workspace.rglob("*") if file.is_file()}

    before, revision, runs = files(), (await running.status()).index.revision, len(running.runs())
    for method, request in WRITES.items():
        assert error(await call(browser, method, request)) == (404, "NOT_FOUND"), method
    for name in (
        "status",
        "STATUS",
        "",
        "Status/",
        "Status?x",
        "memoryd.v1.MemoryService/Status",
        "__class__",
        "%53tatus",
    ):
        found = await call(browser, name)
        assert found.status_code == (200 if name == "Status?x" else 404), name
    assert files() == before
    assert (await running.status()).index.revision == revision
    assert len(running.runs()) == runs


async def test_fields_with_which_a_reading_method_has_an_effect_are_refused(browser):
    refused = (
        ("Status", {"probe": True}, "probe"),
        ("MemoryRecall", {"text": "a", "rememberShown": True}, "rememberShown"),
        ("MemoryRecall", {"text": "a", "remember_shown": True}, "remember_shown"),
        ("MemoryRecall", {"text": "a", "sessionKey": "main"}, "sessionKey"),
        ("MemorySearch", {"query": "a", "sessionKey": "main"}, "sessionKey"),
        ("MemorySearch", {"query": "a", "session_key": "main"}, "session_key"),
        ("SessionContext", {"sessionKey": "main"}, "sessionKey"),
        ("SessionContext", {"sessionKey": "agent:main:main"}, "sessionKey"),
        ("SessionContext", {"session_key": "agent:main:main:thread:inspector:x"}, "session_key"),
        ("SessionContext", {"sessionKey": ["agent:main:main:thread:inspector"]}, "sessionKey"),
    )
    for method, request, field in refused:
        response = await call(browser, method, request)
        assert error(response) == (400, "INVALID_REQUEST"), request
        assert [each["field"] for each in response.json()["error"]["violations"]] == [field]
    for method, request in (("Status", {"probe": False}), ("MemoryRecall", {"text": "a", "sessionKey": ""})):
        assert (await call(browser, method, request)).status_code == 200


MALFORMED = (
    b"", b"{", b"null", b"1", b"[]", b'"a"', b"\xff\xfe{}", b"[" * 60_000, b'{"a":' * 12_000, b"{}{}", b"{'a': 1}",
    b'{"agentId":' + b"9" * 5_000 + b"}", b'{"agentId":NaN}', b'{"agentId":{}}', b'{"agentId":["main"]}',
    b'{"agentId":"' + b"\\ud800" * 10 + b'"}', b'{"__proto__":{"a":1}}',
    b'{"agentId":true}', b'{"@type":"type.googleapis.com/google.protobuf.Empty"}', b'{"agentId":"a\x00b"}',
)  # fmt: skip


async def test_malformed_bodies_are_refused(browser):
    running = browser.running
    headers = {"content-type": "application/json"}
    for body in MALFORMED:
        for path in ("/inspector/call/Status", WATCH):
            response = await browser.post(path, content=body, headers=headers)
            assert response.status_code in {400, 404}, (path, body[:60])
            assert error(response)[1] in {"INVALID_REQUEST", "AGENT_NOT_FOUND"}
        response = await browser.post(SIGN_IN, content=body, headers=headers)
        assert response.status_code in {400, 413}, body[:60]
    for number in (b"1e400", b"-1e400", b"9" * 50, b"NaN", b"Infinity"):
        for field in (b"mode", b"citations", b"maxResults", b"minRevision", b"sources"):
            body = b'{"query":"a","%s":%s}' % (field, number)
            response = await browser.post("/inspector/call/MemorySearch", content=body, headers=headers)
            assert error(response) == (400, "INVALID_REQUEST"), body
    response = await call(browser, "MemorySearch", {"query": "a", "mode": "a" * 60_000})
    assert error(response) == (400, "INVALID_REQUEST")
    assert len(response.content) < 20_000
    for request in ({"heartbeatInterval": "1s"}, {"heartbeat_interval": "60s"}, {"agentId": "main", "x": 1}):
        assert error(await browser.post(WATCH, json=request)) == (400, "INVALID_REQUEST"), request
    assert not running.logged("fail-request")
    assert not running.logged("fail-call")


async def test_large_bodies_are_refused(browser):
    huge = json.dumps({"token": "a" * 10_000}).encode()
    headers = {"content-type": "application/json"}
    assert error(await browser.post(SIGN_IN, content=huge, headers=headers)) == (413, "INVALID_REQUEST")

    async def chunks():
        for _ in range(100):
            yield b"a" * 1_000

    assert (await browser.post(SIGN_IN, content=chunks(), headers=headers)).status_code == 413
    body = b'{"query":"' + b"a" * 5_000_000 + b'"}'
    assert (await browser.post("/inspector/call/MemorySearch", content=body, headers=headers)).status_code == 413
    # Long lists in a body that MCP may send would block the daemon for seconds.
    body = b'{"query":"a","sources":[' + b"1," * 40_000 + b"1]}"
    assert (await browser.post("/inspector/call/MemorySearch", content=body, headers=headers)).status_code == 413
    # The body of a watch would occupy the room for all bodies until the watch ends.
    assert (await browser.post(WATCH, content=b" " * 70_000 + b"{}", headers=headers)).status_code == 413
    assert (await call(browser, "MemoryRecall", {"text": "a" * 60_000})).status_code == 200
    # A body without a session is discarded, not stored.
    async with page(browser.running) as stranger:
        found = await stranger.post("/inspector/call/MemorySearch", content=body, headers=headers)
        assert found.status_code == 401


TRAVERSALS = (
    "/inspector/../metrics", "/inspector/..%2fmetrics", "/inspector/%2e%2e/server.py", "/inspector/..%2f..%2fserver.py",
    "/inspector//main.js", "//inspector/main.js", "/inspector/./main.js", "/inspector/main.js/",
    "/inspector/main.js%00",
    "/inspector/%6dain.js", "/inspector/..\\server.py", "/inspector/C:/a", "/inspector/__init__.py", "/./",
    "/inspector/call/../call/Status", "/inspector/call", "/INSPECTOR/main.js", "/inspector/file:///etc/passwd",
)  # fmt: skip


async def test_paths_that_lead_elsewhere_are_not_found(serve):
    running = await serve(http_settings())
    for target in TRAVERSALS:
        response = await raw(running, request_bytes(target=target))
        assert status_of(response) == 404, target
        assert b"import" not in response
        assert b"x-content-type-options: nosniff" in response
    assert (
        status_of(await raw(running, request_bytes(target="/inspector/main.js", headers=["Connection: close"]))) == 200
    )


async def test_a_client_that_guesses_tokens_is_refused_for_a_time_with_a_valid_token_too(serve, home):
    running = await serve(http_settings())
    token_id, token = new_token(home)
    async with page(running) as browser:
        for _ in range(3 * ATTEMPTS):
            assert (await sign_in(browser, token)).status_code == 204
        for number in range(ATTEMPTS):
            assert error(await sign_in(browser, f"guess {number}")) == (401, "TOKEN_INVALID")
        for presented in ("guess", token):
            response = await sign_in(browser, presented)
            assert error(response) == (429, "TOO_MANY_REQUESTS")
            assert 0 < response.json()["error"]["retryAfterSeconds"] <= 12
            assert 0 < int(response.headers["retry-after"]) <= 12
            assert "set-cookie" not in response.headers
        # Sessions that exist are not affected.
        assert await is_signed_in(browser)
    lines = running.logged("refuse-request")
    assert [line["code"] for line in lines] == [401] * ATTEMPTS + [429] * 2
    assert {line["path"] for line in lines} == {"inspector/sign-in"}
    assert token_id not in str(lines)


async def test_concurrent_guesses_do_not_pass_the_limit(serve):
    running = await serve(http_settings())
    async with page(running) as browser:
        found = await asyncio.gather(*(sign_in(browser, f"guess {number}") for number in range(4 * ATTEMPTS)))
    assert sorted(response.status_code for response in found) == [401] * ATTEMPTS + [429] * 3 * ATTEMPTS


@pytest.mark.slow
async def test_the_sessions_are_bounded_and_those_in_use_are_kept(serve, home):
    running = await serve(http_settings())
    tokens = [new_token(home)[1] for _ in range(3)]
    sessions = []
    async with page(running) as browser:
        assert (await sign_in(browser, tokens[0])).status_code == 204
        used = browser.cookies[cookie_name(running)]
        browser.cookies.clear()
        for number in range(300):
            assert (await sign_in(browser, tokens[number % 3])).status_code == 204
            sessions.append(browser.cookies[cookie_name(running)])
            browser.cookies.clear()
            if number % 50 == 0:
                cookie = {"cookie": f"{cookie_name(running)}={used}"}
                assert (await call(browser, "ListAgents", **cookie)).status_code == 200

        async def is_open(session):
            response = await browser.post(
                "/inspector/session", json={}, headers={"cookie": f"{cookie_name(running)}={session}"}
            )
            return response.json()["signedIn"]

        found = [await is_open(session) for session in sessions]
        assert await is_open(used)
        assert found == [False] * 45 + [True] * 255
    assert len(set(sessions)) == 300


async def test_the_open_requests_of_a_token_are_limited(serve, home):
    running = await serve(http_settings({"tokenConcurrentStreams": 4}))
    token = any_agent(home)
    async with page(running) as browser:
        await sign_in(browser, token)
        async with (
            browser.stream("POST", WATCH, json={}) as one,
            browser.stream("POST", WATCH, json={}) as two,
        ):
            assert (one.status_code, two.status_code) == (200, 200)
            response = await call(browser, "Status")
            assert error(response) == (429, "TOO_MANY_REQUESTS")
            assert response.json()["error"]["retryAfterSeconds"] > 0
        await eventually(lambda: running.daemon.edges.http.requests == 0)
        assert (await call(browser, "Status")).status_code == 200


async def test_tokens_sessions_queries_and_notes_are_in_no_log_and_no_metric(serve, noted):
    running = await serve(http_settings())
    await running.synced()
    token_id, token = new_token(noted)
    async with page(running) as browser:
        await sign_in(browser, "a guess that is wrong")
        await sign_in(browser, token)
        session = browser.cookies[cookie_name(running)]
        assert (await call(browser, "MemorySearch", {"query": "crane"})).status_code == 200
        await call(browser, "MemoryGet", {"path": "memory/a.md"})
        await call(browser, "Sync/" + session)
        async with browser.stream("POST", WATCH, json={}) as response:
            await anext(response.aiter_lines())
        await browser.post("/inspector/sign-out", json={})
        async with client(running, any_agent(noted)) as http:
            metrics = (await http.get("/metrics")).text
    log = running.log.getvalue()
    assert running.logged("serve-call")
    assert token_id in log
    for secret in (token, session, hashlib.sha256(session.encode()).hexdigest(), "a guess", "a crane"):
        assert secret not in log
        assert secret not in metrics
    routes = {"file", "sign-in", "sign-out", "session", "watch", "call"}
    named = {part.split('"')[0] for part in metrics.split('method="http/inspector/')[1:]}
    assert named <= routes
    assert {"call", "watch", "sign-in"} <= named


async def test_every_response_has_the_security_headers(browser):
    found = [
        await browser.get("/"),
        await browser.get("/inspector/absent"),
        await call(browser, "Status"),
        await call(browser, "Status", origin="https://evil.example"),
        await call(browser, "Sync"),
        await browser.post(SIGN_IN, json={"token": "wrong"}),
        await browser.post("/inspector/session", json={}),
        await browser.post("/inspector/sign-out", json={}),
        await call(browser, "Status"),
    ]
    assert [response.status_code for response in found] == [200, 404, 200, 403, 404, 401, 200, 204, 401]
    for response in found:
        headers = response.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] in {"no-store", "no-cache"}
        assert headers["x-request-id"]
        assert len(headers.get_list("content-security-policy")) == len(headers.get_list("cache-control")) == 1
        assert not {"server", "date", "access-control-allow-origin"} & set(headers)
