"""Measure `memoryd mcp`: `python benchmarks/mcp_sessions.py`. Needs the extra `http`.

The time from the start of the command until the response to `initialize`, with a running daemon and without one; the
memory of 20 sessions and what they add to that of the daemon; and the time of `memory_search` over standard input and
output, compared with MemorySearch over gRPC. Prints JSON and writes it to benchmarks/results/mcp_sessions.json.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
from corpus import write
from daemon import DaemonProcess

RESULTS = Path(__file__).parent / "results" / "mcp_sessions.json"
SESSIONS = 20
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}


class McpSession:
    """One `memoryd mcp`, from its start to `close`."""

    def __init__(self, state_dir: Path, *options: str, **environment: str) -> None:
        command = [sys.executable, "-m", "memoryd_server", "mcp", "--state-dir", str(state_dir), *options]
        began = time.perf_counter()
        self._process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.call("initialize", HANDSHAKE)
        self.start_seconds = time.perf_counter() - began
        self._write({"method": "notifications/initialized"})

    def _write(self, message: dict[str, object]) -> None:
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def call(self, method: str, params: dict[str, object]) -> dict[str, object]:
        """Send a request and return the result."""
        self._write({"id": 1, "method": method, "params": params})
        while (message := json.loads(self._process.stdout.readline())).get("id") != 1:
            pass
        return message["result"]

    def search(self, query: str) -> dict[str, object]:
        """Call the tool that searches."""
        return self.call("tools/call", {"name": "memory_search", "arguments": {"query": query}})

    def rss_mib(self) -> float:
        """Return the resident memory in MiB."""
        return psutil.Process(self._process.pid).memory_info().rss / 2**20

    def cpu_seconds(self) -> float:
        """Return user and system time since the start."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def close(self) -> float:
        """End the input, and return the seconds until the exit."""
        began = time.perf_counter()
        self._process.stdin.close()
        self._process.wait(20)
        seconds = time.perf_counter() - began
        self._process.stdout.close()
        return seconds


def measure_first_starts(workspace: Path, home: Path, rounds: int, environment: dict[str, str]) -> list[float]:
    """Return the seconds until the response if the command has to start the daemon, which is indexed already."""
    seconds = []
    state = home / "first"
    for _ in range(rounds + 1):
        session = McpSession(state, "--workspace", str(workspace), **environment)
        seconds.append(session.start_seconds)
        while not session.search("anything"):
            pass
        session.close()
        daemon = psutil.Process(json.loads((state / "memoryd.endpoint.json").read_text("utf-8"))["pid"])
        daemon.terminate()
        daemon.wait(30)
    # The first round makes the index.
    return seconds[1:]


def measure_latency(session: McpSession, client: object, questions: list[str]) -> dict[str, dict[str, float]]:
    """Return the times of the same searches over MCP and over gRPC, in turn, in milliseconds."""
    times: dict[str, list[float]] = {"mcp": [], "grpc": []}
    for question in questions:
        for name, search in (("mcp", session.search), ("grpc", lambda query: client.search(query=query))):
            began = time.perf_counter()
            search(question)
            times[name].append((time.perf_counter() - began) * 1000)
    return {
        name: {"p50_ms": round(statistics.median(each), 1), "p95_ms": round(statistics.quantiles(each, n=20)[-1], 1)}
        for name, each in times.items()
    }


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--searches", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memoryd-mcp-") as folder, ExitStack() as ends:
        home, workspace = Path(folder), Path(folder) / "notes"
        prose = write(workspace, given.files, 4_096)
        environment = {"HOME": folder, "XDG_RUNTIME_DIR": ""}
        daemon = DaemonProcess(workspace, home / "state", **environment)
        client = ends.enter_context(daemon.start())
        ends.callback(daemon.stop)
        with client.sync() as events:
            list(events)
        without = daemon.rss_mib()
        first = McpSession(home / "state", **environment)
        with_mcp = daemon.rss_mib()
        starts = []
        for _ in range(given.rounds):
            session = McpSession(home / "state", **environment)
            starts.append(session.start_seconds)
            session.close()
        sessions = [first, *(McpSession(home / "state", **environment) for _ in range(SESSIONS - 1))]
        questions = [prose.question() for _ in range(given.searches)]
        for session in sessions:
            session.search(questions[0])
        memory = [session.rss_mib() for session in sessions]
        processor = [session.cpu_seconds() for session in sessions]
        rss, before = daemon.rss_mib(), daemon.cpu_seconds()
        time.sleep(10)
        idle_share = (daemon.cpu_seconds() - before) / 10
        latency = measure_latency(sessions[0], client, questions)
        ends_after = [session.close() for session in sessions]
        firsts = measure_first_starts(workspace, home, max(3, given.rounds // 5), environment)
    results = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "files": given.files,
        "start_seconds": {
            "running_daemon": round(statistics.median(starts), 3),
            "running_daemon_worst": round(max(starts), 3),
            "first_session_of_a_daemon": round(first.start_seconds, 3),
            "no_daemon": round(statistics.median(firsts), 3),
        },
        "sessions": {
            "count": SESSIONS,
            "rss_mib": round(statistics.median(memory), 1),
            "rss_mib_worst": round(max(memory), 1),
            "cpu_seconds": round(statistics.median(processor), 2),
            "end_seconds_worst": round(max(ends_after), 3),
        },
        "daemon": {
            "rss_mib_before_mcp": round(without, 1),
            "rss_mib_with_one_session": round(with_mcp, 1),
            "rss_mib_with_all_sessions": round(rss, 1),
            "processor_share_when_idle": round(idle_share, 4),
        },
        "memory_search": latency,
    }
    text = json.dumps(results, indent=2) + "\n"
    RESULTS.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
