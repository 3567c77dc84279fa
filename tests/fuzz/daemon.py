"""The daemon that is fuzzed: two agents, transcripts, entries and vectors, at a Unix socket and at a TCP port."""

import contextlib
import importlib.util
import json
import shutil
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from daemon_process import end, start
from fake_providers import embedding_server
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1.memory_service_pb2_grpc import MemoryServiceStub
from waiting import wait_until

OWNER_TOKEN = "fuzz-owner-token-0123456789abcdef0123456789abcdef"
NOTE = "# Notes of {0}\n\nthe heron nests by the weir of {0}\n\n## Pier\n\na crane on pier seven at 2026-01-02\n"
MESSAGE = {"role": "user", "content": "where does the heron nest?"}
# The most that foreign changes and appends may leave in a workspace, so that the size of the index has a limit.
MOST_BYTES = 3_000_000
MOST_FILES = 60
IDLE_CPU_SECONDS = 0.06
IDLE_SECONDS = 90
# Without the time that the main thread waits for a processor, because the test must not depend on an idle machine.
STOP_SECONDS = 2.0
MOST_STOP_SECONDS = 60


class FuzzedDaemon:
    """A daemon in `home`. The embedding provider is a fake on loopback."""

    def __init__(self, home, provider):
        self.home = home
        self.workspace, self.other, self.state = home / "workspace", home / "other", home / "state"
        for folder in (self.workspace, self.other, self.state):
            folder.mkdir(mode=0o700)
        self.folders = {"workspace": self.workspace, "sessions": self.state / "agents" / "main" / "sessions"}
        self._metrics = f"127.0.0.1:{_free_port()}"
        self.reset()
        (self.state / "memoryd.token").write_text(f"{OWNER_TOKEN}\n")
        (self.state / "memoryd.token").chmod(0o600)
        (self.state / "memoryd.json5").write_text(json.dumps(self._settings(provider)))
        self._served = start(
            self.workspace, self.state, "--listen", f"unix:{self.state}/m.sock", home=home, listen="127.0.0.1:0"
        )
        self.process = psutil.Process(self._served.process.pid)
        tcp, unix = self._served.address.split(", ")
        self.addresses = {"tcp": tcp, "unix": unix}
        scopes = ("--scope", "admin", "--scope", "edit")
        made = self._served.memoryd("token", "new", "--name", "limited", "--agent", "other", *scopes)
        limited = made.stdout.split()[0]
        self.tokens = {"none": None, "owner": OWNER_TOKEN, "limited": limited, "wrong": "x" * 43, "odd": "a b"}
        self._channel = grpc.insecure_channel(unix)
        self._health = health_pb2_grpc.HealthStub(self._channel)
        self._memory = MemoryServiceStub(self._channel)

    def _settings(self, provider):
        search = {
            "provider": "openai-compatible",
            "model": "words",
            "remote": {"baseUrl": provider.url},
            "experimental": {"sessionMemory": True},
            "sources": ["memory", "sessions"],
            "sync": {"watchDebounceMs": 50},
        }
        agents = [{"id": "main", "default": True}, {"id": "other", "workspace": str(self.other)}]
        entries = importlib.util.find_spec("lancedb") is not None
        own = {
            "entries": {"enabled": entries},
            "metrics": {"listen": self._metrics},
            "writes": "edit",
            "history": {"maxBytes": 4 * 2**20},
        }
        return {"agents": {"defaults": {"memorySearch": search}, "list": agents}, "memoryd": own}

    def reset(self):
        """Write the initial files, and remove all others."""
        for name, folder in (("main", self.workspace), ("other", self.other)):
            _clear(folder)
            (folder / "memory" / "deep" / "er").mkdir(parents=True)
            for path in ("MEMORY.md", "memory/a.md", "memory/b.md", "memory/2026-01-02.md", "memory/deep/er/c.md"):
                (folder / path).write_text(NOTE.format(name))
        sessions = self.folders["sessions"]
        sessions.mkdir(parents=True, exist_ok=True)
        _clear(sessions)
        line = json.dumps({"type": "message", "message": MESSAGE}) + "\n"
        for name in ("talk", "long"):
            (sessions / f"{name}.jsonl").write_text(line * 20)

    def limit_files(self):
        """Restore the initial files if there are too many, or too large ones."""
        files = [path for folder in (self.workspace, self.other) for path in folder.rglob("*") if _is_file(path)]
        if len(files) > MOST_FILES or sum(_size(path) for path in files) > MOST_BYTES:
            self.reset()

    def check_serving(self):
        """Check that the process runs and is healthy."""
        assert self._served.process.poll() is None, self.log()[-3000:]
        answer = self._health.Check(health_pb2.HealthCheckRequest(), timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer

    def check_answers(self):
        """Check that enough concurrent calls to occupy every worker thread are answered."""
        calls = []
        for agent_id in ("main", "other") * 8:
            calls += [
                self._memory.MemorySearch.future(pb.MemorySearchRequest(agent_id=agent_id, query="heron"), timeout=30),
                self._memory.MemoryGet.future(pb.MemoryGetRequest(agent_id=agent_id, path="memory/a.md"), timeout=30),
                self._memory.ListFiles.future(pb.ListFilesRequest(agent_id=agent_id), timeout=30),
            ]
        for call in calls:
            call.result()
        for agent_id in ("main", "other"):
            *_, last = self._memory.Sync(pb.SyncRequest(agent_id=agent_id), timeout=60)
            assert last.HasField("completed"), last

    def wait_until_idle(self):
        """Wait until no call is in progress, no sync runs, and no thread uses the processor."""
        wait_until(self._is_idle, IDLE_SECONDS, pause=0.05)

    def _is_idle(self):
        busy = self.metrics("memoryd_rpc_calls_running") + self.metrics("memoryd_rpc_streams_running")
        if busy or any(self._status(agent_id).HasField("active_sync") for agent_id in ("main", "other")):
            return False
        began = self._cpu_seconds()
        threading.Event().wait(0.6)
        return self._cpu_seconds() - began <= IDLE_CPU_SECONDS

    def _status(self, agent_id):
        return self._memory.Status(pb.StatusRequest(agent_id=agent_id), timeout=30)

    def _cpu_seconds(self):
        times = self.process.cpu_times()
        return times.user + times.system

    @property
    def rss(self):
        """The resident memory, in bytes."""
        return self.process.memory_info().rss

    def thread_states(self):
        """Return the state of each thread, as in /proc: S sleeps, R runs, D waits for a disk."""
        folder = f"/proc/{self.process.pid}/task"
        states = []
        for thread in self.process.threads():
            with contextlib.suppress(OSError):
                states.append(Path(f"{folder}/{thread.id}/stat").read_text().rpartition(")")[2].split()[0])
        return states

    def metrics(self, name, **labels):
        """Return the sum of the series of a metric that have these labels."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=20) as reply:
            lines = reply.read().decode().splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        series = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in series if all(part in line for part in wanted))

    def log(self):
        """Return the daemon's log."""
        return (self.home / "daemon.log").read_text("utf-8", "replace")

    def stop(self):
        """Send SIGTERM; return the exit status and the seconds until the end, without waits for a processor."""
        self._channel.close()
        process = self._served.process
        waited_before = waited = self._processor_waits()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        while process.poll() is None and time.monotonic() - began < MOST_STOP_SECONDS:
            waited = max(waited, self._processor_waits())
            time.sleep(0.01)
        return process.poll(), time.monotonic() - began - (waited - waited_before)

    def _processor_waits(self):
        """Return the seconds that the main thread has waited for a processor; 0 if the process has ended."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9
        return 0.0

    def kill(self):
        """End the process, if it still runs."""
        end(self._served.process, signal.SIGKILL)


@contextlib.contextmanager
def fuzzed_daemon(home):
    """A daemon until the block ends."""
    with embedding_server() as provider:
        daemon = FuzzedDaemon(home, provider)
        try:
            yield daemon
        finally:
            daemon.kill()


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _clear(folder):
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _is_file(path):
    with contextlib.suppress(OSError):
        return not path.is_symlink() and path.is_file()
    return False


def _size(path):
    with contextlib.suppress(OSError):
        return path.lstat().st_size
    return 0
