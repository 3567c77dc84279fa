"""`memoryd mcp` as an MCP client runs it: a process, and JSON-RPC messages on its standard input and output."""

import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from daemon_process import COMMAND, environment
from waiting import WAIT_SECONDS, wait_until

CLIENT = {"name": "test", "version": "1"}
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}


class McpProcess:
    """One `memoryd mcp`, and what it has written."""

    def __init__(self, home, *arguments, flags=(), **options):
        python, *module = COMMAND
        command = [python, *flags, *module, "mcp", *map(str, arguments)]
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(home),
            **options,
        )
        self._ids = itertools.count(1)
        self._messages = queue.Queue()
        self._errors = []
        for work in (self._read, self._read_errors):
            threading.Thread(target=work, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._messages.put(json.loads(line))

    def _read_errors(self):
        self._errors.extend(line.decode() for line in self.process.stderr)

    @property
    def errors(self):
        """Everything on standard error so far."""
        return "".join(self._errors)

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method, params=None, **more):
        """Send a request and return its id."""
        request_id = next(self._ids)
        self.write(
            json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}, **more}).encode()
            + b"\n"
        )
        return request_id

    def notify(self, method, params=None):
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}).encode() + b"\n")

    def message(self, seconds=WAIT_SECONDS):
        """Return the next message."""
        return self._messages.get(timeout=seconds)

    def response(self, request_id, seconds=WAIT_SECONDS):
        """Return the response to a request; ignore the messages before it."""
        while (message := self.message(seconds)).get("id") != request_id:
            pass
        return message

    def call(self, method, params=None, **more):
        return self.response(self.send(method, params, **more))

    def initialize(self, **more):
        """Perform the handshake and return the result of `initialize`."""
        response = self.call("initialize", {**HANDSHAKE, **more})
        self.notify("notifications/initialized")
        return response["result"]

    def tool(self, name, **arguments):
        """Call a tool and return its result."""
        return self.call("tools/call", {"name": name, "arguments": arguments})["result"]

    def rss_mib(self):
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def end(self, seconds=WAIT_SECONDS):
        """Close standard input and return the exit status and the seconds until the exit."""
        self.process.stdin.close()
        began = time.monotonic()
        return self.process.wait(seconds), time.monotonic() - began

    def close(self):
        """End the process in any case."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            # What the process has not read is lost.
            with suppress(BrokenPipeError):
                pipe.close()


class McpHome:
    """A home with a workspace and a state directory, the sessions of a test, and the daemons that they start."""

    def __init__(self, home, workspace, state):
        self.home, self.workspace, self.state = home, workspace, state
        self.log = state / "memoryd.log"
        self._sessions = []

    def session(self, *arguments, workspace=True, **options):
        """Start a session."""
        given = ("--workspace", self.workspace) if workspace else ()
        session = McpProcess(self.home, "--state-dir", self.state, *given, *arguments, **options)
        self._sessions.append(session)
        return session

    def daemon_pid(self):
        """Return the process id in the endpoint file; 0 if there is none."""
        try:
            return json.loads((self.state / "memoryd.endpoint.json").read_text())["pid"]
        except FileNotFoundError:
            return 0

    def starts(self):
        """Return how many daemons have become ready, by the log of those that sessions started."""
        return self.log.read_text().count('"start-daemon"') if self.log.exists() else 0

    def stop_daemon(self, number=signal.SIGTERM):
        """End the daemon by its process id, and wait for its end."""
        pid = self.daemon_pid()
        if pid and alive(pid):
            os.kill(pid, number)
            wait_until(lambda: not alive(pid))
        return pid

    def close(self):
        for session in self._sessions:
            session.close()
        self.stop_daemon()


def alive(pid):
    """Return whether a process runs; one that has ended and is not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
