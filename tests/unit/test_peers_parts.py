"""The parts of the comparison of peers: commands, measurements, the MCP client and the embedding server."""

import base64
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pytest

from waiting import wait_until

# The scripts import each other by name. At the end of the path they do not replace other modules.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "peers"))

from commands import CommandError, private_environment, run
from embedding_server import EmbeddingServer
from mcp_stdio import McpError, McpStdio
from measure import TreeUsage, cpu_seconds, percentile, with_descendants
from qmd_peer import shown_result

BURN = "import time\nwhile time.process_time() < 0.2: pass\n"
# Runs a child that uses the processor and memory, and ends after it.
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"

# An MCP server that answers with what it received, or fails as the tool's name says.
MCP_SERVER = """
import json, sys
def send(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
print("this line is not JSON", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        send(id=request["id"], result={"capabilities": {}})
    if request["method"] != "tools/call":
        continue
    tool, arguments = request["params"]["name"], request["params"]["arguments"]
    if tool == "end":
        print("it has ended", file=sys.stderr)
        sys.exit(1)
    if tool == "ask":
        send(method="notifications/message", params={})
        send(id="own", method="roots/list")
        arguments = json.loads(sys.stdin.readline())
    if tool == "refuse":
        send(id=request["id"], error={"code": -32602, "message": "no such tool"})
    else:
        content = [{"type": "text", "text": "x" * 100_000}]
        send(id=request["id"], result={"content": content, "structuredContent": arguments, "isError": tool == "fail"})
"""


@pytest.fixture
def server(tmp_path):
    mcp = McpStdio([sys.executable, "-c", MCP_SERVER], {}, tmp_path, tmp_path / "mcp.log")
    yield mcp
    mcp.close()


def test_tool_call_returns_the_result(server):
    assert [server.call("echo", {"n": n})["structuredContent"] for n in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_request_of_the_server_is_refused_and_notifications_are_ignored(server):
    answer = server.call("ask", {})["structuredContent"]
    assert (answer["id"], answer["error"]["code"]) == ("own", -32601)


@pytest.mark.parametrize(
    ("tool", "message"), [("fail", "fail: .*xxx"), ("refuse", "no such tool"), ("end", "it has ended")]
)
def test_tool_call_that_fails_raises(server, tool, message):
    with pytest.raises(McpError, match=message):
        server.call(tool, {})


def test_closed_server_has_ended(server):
    server.close()
    assert server.process.poll() == 0


def test_usage_includes_ended_grandchildren_and_leaves_out_other_trees():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            with TreeUsage([psutil.Process(other.pid)]) as usage:
                subprocess.run([sys.executable, "-c", PARENT], check=True)
                wait_until(lambda: cpu_seconds([psutil.Process(other.pid)]) >= 0.5)
        finally:
            other.kill()
    assert 0.14 <= usage.cpu_seconds < 0.6
    assert usage.seconds >= 0.2
    assert usage.peak_rss_mib > 5


def test_usage_includes_a_process_that_still_runs():
    with TreeUsage() as usage:
        process = subprocess.Popen([sys.executable, "-c", BURN + "input()"], stdin=subprocess.PIPE)
        wait_until(lambda: cpu_seconds(with_descendants([psutil.Process(process.pid)])) >= 0.15)
    process.communicate()
    assert usage.cpu_seconds >= 0.14


def test_processor_time_of_a_process_includes_its_ended_children():
    with subprocess.Popen([sys.executable, "-c", PARENT + "; input()"], stdin=subprocess.PIPE) as process:
        wait_until(lambda: cpu_seconds([psutil.Process(process.pid)]) >= 0.15)
        process.communicate()


def test_processes_that_have_ended_are_left_out():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ended = psutil.Process(process.pid)
        process.communicate()
    assert with_descendants([ended]) == []
    assert cpu_seconds([ended]) == 0


def test_percentile_is_interpolated():
    assert percentile([5.0], 0.95) == 5.0
    assert percentile([float(n) for n in range(101)], 0.95) == pytest.approx(95)


def test_failed_command_reports_its_errors(tmp_path):
    code = "import sys; print('of no use'); sys.exit('the model is missing')"
    with pytest.raises(CommandError, match="ended with 1: the model is missing"):
        run([sys.executable, "-c", code], {}, tmp_path)


def test_command_that_takes_too_long_is_ended_with_its_children(tmp_path):
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import signal; signal.pause()'])"
    with pytest.raises(CommandError, match="did not end within 1 s"):
        run([sys.executable, "-c", code], {}, tmp_path, seconds=1)
    # The children of the command are not ours, so that their end cannot be waited for.
    wait_until(lambda: str(tmp_path) not in {each.info["cwd"] for each in psutil.process_iter(["cwd"])})


def test_environment_has_no_keys_and_no_settings_of_the_user(tmp_path, monkeypatch):
    for name in ("OPENAI_API_KEY", "MEMORYD_CONFIG", "OPENCLAW_STATE_DIR", "XDG_CONFIG_HOME", "https_proxy", "CI"):
        monkeypatch.setenv(name, "of the user")
    environment = private_environment(tmp_path, XDG_CACHE_HOME="cache")
    assert "of the user" not in environment.values()
    assert environment["HOME"] == str(tmp_path)
    assert environment["XDG_CACHE_HOME"] == "cache"
    assert environment["PATH"]


@pytest.fixture
def embeddings():
    """Return a function that posts to an embedding server with two embedders, which return the length of a text."""
    server = EmbeddingServer([lambda text: np.array([len(text), 1.0], np.float32)] * 2)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()

    def post(**body):
        request = urllib.request.Request(f"{server.url}/embeddings", json.dumps(body).encode())
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    yield post
    server.shutdown()
    server.server_close()
    thread.join()


def test_vectors_are_in_the_order_of_the_texts(embeddings):
    texts = ["x" * length for length in range(1, 9)]
    answer = embeddings(input=texts, model="m")
    assert [each["embedding"] for each in answer["data"]] == [[float(length), 1.0] for length in range(1, 9)]
    assert [each["index"] for each in answer["data"]] == list(range(8))
    assert answer["model"] == "m"


def test_single_text_as_base64(embeddings):
    (item,) = embeddings(input="abc", model="m", encoding_format="base64")["data"]
    assert np.frombuffer(base64.b64decode(item["embedding"]), "<f4").tolist() == [3.0, 1.0]


@pytest.mark.parametrize("body", [{"input": [[1, 2]]}, {"model": "m"}], ids=["token ids", "no input"])
def test_request_without_texts_is_refused(embeddings, body):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        embeddings(**body)


@pytest.mark.parametrize(
    ("snippet", "shown"),
    [
        ("3: @@ -2,2 @@ (1 before, 9 after)\n4: the heron\n5: nests", (2, 3, "the heron\nnests")),
        ("@@ -12,1 @@ (11 before, 0 after)\n\nthe heron", (12, 12, "\nthe heron")),
        ("the heron", (7, 7, "the heron")),
    ],
    ids=["MCP", "command", "no header"],
)
def test_snippet_of_qmd_has_lines_and_text(snippet, shown):
    hit = shown_result("notes/memory/a.md", {"snippet": snippet, "line": 7})
    assert (hit.path, hit.start_line, hit.end_line, hit.text) == ("memory/a.md", *shown)
