"""The HTTP edge: routes, tokens, health, metrics, and what it adds to the log."""

import pytest

from rpc.callers import new_token
from rpc.http_client import PING, any_agent, client, http_settings, reason_of

pytest.importorskip("mcp")


async def test_http_is_off_by_default(serve):
    running = await serve()
    assert running.daemon.edges.http is None
    assert running.daemon.edges.http_url == ""
    assert not running.logged("serve-http")


async def test_health_needs_no_token_and_reveals_nothing_else(serve):
    running = await serve(http_settings())
    async with client(running) as http:
        for path in ("/healthz", "/readyz"):
            response = await http.get(path)
            assert (response.status_code, response.text) == (200, "ok\n")
            assert (await http.head(path)).status_code == 200
    assert running.logged("serve-http")[0]["url"] == running.daemon.edges.http_url


async def test_every_response_has_the_security_headers_and_no_name_of_the_server(serve):
    running = await serve(http_settings())
    async with client(running) as http:
        for response in (await http.get("/healthz"), await http.get("/metrics"), await http.get("/absent")):
            headers = response.headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["x-request-id"]
            assert not {"server", "date", "access-control-allow-origin"} & set(headers)


async def test_a_request_without_a_valid_token_is_refused(serve, home):
    running = await serve(http_settings())
    async with client(running) as http:
        for path in ("/metrics", "/mcp"):
            missing = await http.get(path)
            assert (missing.status_code, reason_of(missing)) == (401, "TOKEN_MISSING")
            assert missing.headers["www-authenticate"] == "Bearer"
            wrong = await http.get(path, headers={"authorization": "Bearer wrong"})
            assert (wrong.status_code, reason_of(wrong)) == (401, "TOKEN_INVALID")
            basic = await http.get(path, headers={"authorization": "Basic bWU6bWU="})
            assert basic.status_code == 401
        assert (await http.get("/metrics", params={"token": any_agent(home)})).status_code in {401, 404}


async def test_metrics_need_a_token_for_all_agents(serve, home):
    running = await serve(http_settings())
    async with client(running, any_agent(home)) as http:
        response = await http.get("/metrics")
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "memoryd_build_info" in response.text
        again = (await http.get("/metrics")).text
        assert 'memoryd_rpc_calls_total{code="200",method="http/metrics"} 1.0' in again
    async with client(running, new_token(home, "main")[1]) as http:
        response = await http.get("/metrics")
        assert (response.status_code, reason_of(response)) == (403, "AGENT_FORBIDDEN")
    assert running.daemon.metrics_url == ""


async def test_a_refused_request_is_one_line_of_the_log_with_the_request_id_of_the_client(serve, home):
    running = await serve(http_settings())
    token_id, token = new_token(home, "main")
    async with client(running, token) as http:
        response = await http.get("/metrics", headers={"x-request-id": "of-the-client"})
        assert response.headers["x-request-id"] == "of-the-client"
        generated = (await http.get("/absent?secret=1", headers={"x-request-id": "x" * 200})).headers["x-request-id"]
        assert len(generated) == 32
    first, second = running.logged("refuse-request")
    assert (first["method"], first["path"], first["code"]) == ("GET", "metrics", 403)
    assert (first["request_id"], first["token_id"], first["reason"]) == ("of-the-client", token_id, "AGENT_FORBIDDEN")
    assert (second["path"], second["code"], second["request_id"]) == ("other", 404, generated)
    assert "secret" not in running.log.getvalue()
    assert token not in running.log.getvalue()


async def test_several_requests_use_one_connection(serve):
    running = await serve(http_settings())
    async with client(running) as http:
        for _ in range(5):
            assert (await http.get("/healthz")).status_code == 200
        assert running.daemon.edges.http.connections == 1


async def test_unknown_paths_and_methods(serve, home):
    running = await serve(http_settings())
    async with client(running, any_agent(home)) as http:
        for path in ("/index.html", "/mcp/", "/MCP", "/.well-known/oauth-protected-resource", "/healthz/x"):
            response = await http.get(path)
            assert (response.status_code, reason_of(response)) == (404, "NOT_FOUND"), path
        for path, method in (("/healthz", "POST"), ("/mcp", "PUT"), ("/mcp", "OPTIONS"), ("/metrics", "DELETE")):
            response = await http.request(method, path)
            assert (response.status_code, reason_of(response)) == (405, "METHOD_NOT_ALLOWED"), path
            assert "GET" in response.headers["allow"]
        assert (await http.head("/mcp")).status_code == 405


async def test_a_request_of_mcp_is_answered(serve, home):
    running = await serve(http_settings())
    async with client(running, any_agent(home)) as http:
        response = await http.post("/mcp", json=PING)
        assert response.status_code < 500
