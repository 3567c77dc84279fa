"""`memoryd mcp`: sessions over standard input and output, and the daemon that they share."""

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from daemon_process import COMMAND, environment, serving
from e2e.mcp_sessions import HANDSHAKE, McpHome, alive
from waiting import WAIT_SECONDS, wait_until

pytest.importorskip("mcp")

from mcp import Client, ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

# A session waits 0.6 s for the last responses. A call to a stopped daemon has no end.
PROMPT_SECONDS = 5
TOOLS = ["memory_search", "memory_get", "memory_append", "memory_recall", "memory_status"]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def mcp(places):
    home = McpHome(*places)
    yield home
    home.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A home whose daemon runs during all tests of this file."""
    root = tmp_path_factory.mktemp("shared")
    for folder in ("h", "w/memory", "s"):
        (root / folder).mkdir(parents=True)
    (root / "w" / "memory" / "a.md").write_text("the red ferry sails at dawn")
    listen = {"listen": "127.0.0.1:0"}
    with serving(root / "w", root / "s", "--listen", f"unix:{root}/s/m.sock", home=root / "h", **listen) as served:
        home = McpHome(root / "h", root / "w", root / "s")
        home.tcp = served.address.split(",")[0]
        yield home
        home.close()


def parameters(home, *arguments):
    command, *first = COMMAND
    given = [*first, "mcp", "--state-dir", home.state, *arguments]
    return StdioServerParameters(command=command, args=[str(each) for each in given], env=environment(home.home))


def processes_with(file):
    """Return the processes that have mapped a file into their memory."""
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if str(file.resolve()) in maps.read_text():
                found.append(maps.parent.name)
    return found


def text_of(result):
    return result["content"][0]["text"]


async def test_the_client_of_the_sdk_speaks_the_handshake_protocol(shared):
    async with stdio_client(parameters(shared)) as streams, ClientSession(*streams) as session:
        greeting = await session.initialize()
        assert greeting.server_info.name == "memoryd"
        assert [tool.name for tool in (await session.list_tools()).tools] == TOOLS
        found = await session.call_tool("memory_search", {"query": "ferry"})
        assert "memory/a.md" in found.content[0].text


async def test_the_client_of_the_sdk_speaks_the_protocol_without_a_handshake(shared):
    async with Client(parameters(shared)) as client:
        assert client.protocol_version == "2026-07-28"
        found = await client.call_tool("memory_search", {"query": "ferry"})
        assert "memory/a.md" in found.content[0].text


def test_an_old_version_of_the_protocol_is_spoken_too(shared):
    session = shared.session()
    assert session.initialize(protocolVersion="2024-11-05")["protocolVersion"] == "2024-11-05"
    assert "red ferry" in text_of(session.tool("memory_search", query="ferry"))


def test_a_session_ends_with_its_input_and_without_output_of_its_own(shared):
    session = shared.session()
    session.initialize()
    code, seconds = session.end()
    assert (code, session.errors) == (0, "")
    assert seconds < PROMPT_SECONDS


def test_a_session_imports_neither_the_packages_of_mcp_nor_those_of_the_daemon(shared):
    session = shared.session(workspace=False, flags=("-X", "importtime"))
    session.initialize()
    session.end()
    imported = {line.rpartition("|")[2].strip() for line in session.errors.splitlines()}
    assert "memoryd_server.cli.mcp_bridge" in imported
    assert not imported & {"mcp", "pydantic", "structlog", "numpy", "apsw", "memoryd_server.settings"}
    assert not imported & {"memoryd_server.app", "memoryd_server.http", "memoryd_server.rpc"}


def test_requests_before_the_end_of_the_input_are_answered(shared):
    session = shared.session()
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
    ]
    session.write("".join(json.dumps(line) + "\n" for line in lines).encode())
    session.process.stdin.close()
    assert len(session.response(2)["result"]["tools"]) == len(TOOLS)
    assert session.process.wait(WAIT_SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_session(shared, number):
    session = shared.session()
    session.initialize()
    session.process.send_signal(number)
    began = time.monotonic()
    assert session.process.wait(WAIT_SECONDS) == 0
    assert time.monotonic() - began < PROMPT_SECONDS


def test_malformed_lines_are_answered_and_the_session_continues(shared):
    session = shared.session()
    session.initialize()
    for line, code in ((b"{", -32700), (b"\xff\xfe", -32700), (b"[]", -32600), (b"7", -32600), (b'{"id": 1}', -32600)):
        session.write(line + b"\n")
        assert session.message()["error"]["code"] == code
    request = {"jsonrpc": "2.0", "method": "ping", "params": {"text": "x" * (5 * 2**20)}, "id": "long"}
    session.write(json.dumps(request).encode() + b"\n")
    assert session.response("long")["error"]["code"] == -32600
    session.write(b"\n\n  \n")
    assert session.call("ping")["result"] == {}


def test_the_agent_of_a_session_must_exist(shared):
    session = shared.session("--agent", "missing")
    session.initialize()
    result = session.tool("memory_status")
    assert result["isError"]
    assert "missing" in text_of(result)


def test_another_workspace_than_that_of_the_daemon_is_refused(shared, tmp_path):
    session = shared.session("--workspace", tmp_path, workspace=False)
    assert "--state-dir" in session.call("initialize", HANDSHAKE)["error"]["message"]


@pytest.mark.slow
def test_twenty_sessions_share_one_daemon_and_one_model(mcp, model_path):
    search = {"provider": "local", "local": {"modelPath": str(model_path)}}
    (mcp.state / "memoryd.json5").write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))
    sessions = [mcp.session() for _ in range(20)]
    requests = [session.send("initialize", HANDSHAKE) for session in sessions]
    for session, request in zip(sessions, requests, strict=True):
        assert session.response(request)["result"]["serverInfo"]["name"] == "memoryd"
    requests = [
        session.send("tools/call", {"name": "memory_search", "arguments": {"query": "boat"}}) for session in sessions
    ]
    for session, request in zip(sessions, requests, strict=True):
        assert not session.response(request)["result"]["isError"]
    assert mcp.starts() == 1
    assert not list(mcp.home.rglob("daemons/*.json"))
    assert len(processes_with(model_path)) == 1
    assert max(session.rss_mib() for session in sessions) < 100


@pytest.mark.slow
def test_a_daemon_that_is_not_started_is_reported(mcp):
    session = mcp.session("--no-start")
    message = session.call("initialize", HANDSHAKE)["error"]["message"]
    assert "memoryd serve" in message
    # Standard error is read by a thread of its own, which may come after the response.
    wait_until(lambda: message in session.errors)
    assert session.errors.count(message) == 1
    assert not mcp.log.exists()


@pytest.mark.slow
def test_settings_that_cannot_be_used_are_reported_to_the_client(mcp):
    (mcp.state / "memoryd.json5").write_text("{memoryd: {reconcileSeconds: 'soon'}}")
    session = mcp.session()
    message = session.call("initialize", HANDSHAKE)["error"]["message"]
    assert "reconcileSeconds" in message
    assert str(mcp.log) in message
    (mcp.state / "memoryd.json5").write_text("{}")
    wait_until(lambda: "result" in session.call("initialize", HANDSHAKE))


@pytest.mark.slow
def test_a_killed_daemon_is_an_error_of_the_call_and_then_replaced(mcp):
    session = mcp.session()
    session.initialize()
    pid = mcp.daemon_pid()
    request = session.send("tools/call", {"name": "memory_search", "arguments": {"query": "ferry"}})
    session.response(request)
    os.kill(pid, signal.SIGSTOP)
    call = session.send("tools/call", {"name": "memory_search", "arguments": {"query": "ferry"}})
    other = session.send("resources/list")
    # Both have to be sent to the stopped daemon first.
    time.sleep(1.5)
    os.kill(pid, signal.SIGKILL)
    result = session.response(call)["result"]
    assert result["isError"]
    assert "may or may not have been executed" in text_of(result)
    assert "stopped" in session.response(other)["error"]["message"]
    assert "red ferry" in text_of(session.tool("memory_search", query="ferry"))
    assert mcp.daemon_pid() != pid


def test_the_end_of_the_input_ends_a_session_whose_daemon_hangs(shared):
    session = shared.session()
    session.initialize()
    os.kill(shared.daemon_pid(), signal.SIGSTOP)
    try:
        for _ in range(3):
            session.send("tools/call", {"name": "memory_search", "arguments": {"query": "ferry"}})
        code, seconds = session.end()
    finally:
        os.kill(shared.daemon_pid(), signal.SIGCONT)
    assert code == 0
    assert seconds < PROMPT_SECONDS


def test_a_session_ends_when_its_responses_are_not_read(shared):
    session = shared.session()
    session.initialize()
    os.dup2(session.process.stderr.fileno(), session.process.stdout.fileno())
    # The thread that reads still takes one response.
    with suppress(BrokenPipeError):
        wait_until(lambda: session.send("ping") and session.process.poll() is not None)
    assert session.process.wait(WAIT_SECONDS) == 0


def test_a_refused_token_is_reported_with_what_to_do(shared):
    file = shared.home / "token"
    file.touch(mode=0o600)
    file.write_text("wrong\n")
    session = shared.session("--address", shared.tcp, "--token-file", file, workspace=False)
    assert "--token-file" in session.call("initialize", HANDSHAKE)["error"]["message"]


@pytest.mark.parametrize("others", ["", "127.0.0.1:1, localhost:1, "])
def test_a_session_over_tcp_uses_the_token_of_the_state_directory(shared, others):
    session = shared.session("--address", others + shared.tcp, workspace=False)
    session.initialize()
    assert "red ferry" in text_of(session.tool("memory_search", query="ferry"))


@pytest.mark.slow
def test_a_named_daemon_that_does_not_run_is_not_started(mcp):
    session = mcp.session("--address", "127.0.0.1:1", workspace=False)
    message = session.call("initialize", HANDSHAKE)["error"]["message"]
    assert "no daemon answers at 127.0.0.1:1" in message
    assert not mcp.log.exists()


@pytest.mark.slow
async def test_a_client_without_a_handshake_survives_a_killed_daemon(mcp):
    async with Client(parameters(mcp, "--workspace", mcp.workspace)) as client:
        await client.list_tools()
        pid = mcp.daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        call = asyncio.ensure_future(client.call_tool("memory_search", {"query": "ferry"}))
        # The call has to be sent to the stopped daemon first.
        await asyncio.sleep(1.5)
        os.kill(pid, signal.SIGKILL)
        failed = await call
        assert failed.is_error
        assert "stopped" in failed.content[0].text
        found = await client.call_tool("memory_search", {"query": "ferry"})
        assert not found.is_error


@pytest.mark.slow
def test_a_daemon_that_was_started_exits_when_it_is_idle(mcp):
    (mcp.state / "memoryd.json5").write_text("{memoryd: {mcp: {idleSeconds: 2}}}")
    session = mcp.session()
    session.initialize()
    time.sleep(3)
    assert session.call("ping")["result"] == {}
    pid = mcp.daemon_pid()
    assert session.end()[0] == 0
    wait_until(lambda: not alive(pid))
    assert "exit-idle-daemon" in mcp.log.read_text()
    assert not (mcp.state / "memoryd.endpoint.json").exists()


@pytest.mark.slow
def test_a_session_during_a_stop_of_the_daemon_gets_the_next_daemon(mcp):
    first = mcp.session()
    first.initialize()
    pid = mcp.daemon_pid()
    os.kill(pid, signal.SIGTERM)
    second = mcp.session()
    second.initialize()
    assert mcp.daemon_pid() != pid
    assert "red ferry" in text_of(first.tool("memory_search", query="ferry"))
    assert mcp.starts() == 2
