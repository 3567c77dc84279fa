"""A daemon with four agents whose memory the inspector shows, and an embedding provider on loopback."""

import json
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from browser.inspected_notes import (
    HISTORY,
    HOSTILE_CALLER,
    MAX_FILE_BYTES,
    date_files,
    write_hostile_notes,
    write_long_note,
    write_notes,
    write_numbered,
    write_transcript,
)
from daemon_process import Served, end, start
from e2e.shifted_clock import Clock
from fake_providers import fake_provider
from memoryd.client import connect
from memoryd.messages import TextReplacement
from waiting import WAIT_SECONDS, wait_until

# Enough that texts without common words are rarely similar.
DIMENSIONS = 256
# In the settings only; no response and no page may have them.
PROVIDER_KEY = "sk-inspector-0123456789abcdef"
REFUSED_KEY = "sk-inspector-fedcba9876543210"
MAIN, SUPPORT, CRANES, BEACONS = "main", "support", "cranes", "beacons"
# Those of the daemon. The provider refuses the key of the last one.
AGENTS = (MAIN, SUPPORT, CRANES, BEACONS)
# The provider embeds texts with this word only if `Inspected.gate` is set.
GATED_WORD = "crane"
CRANE_NOTES = 60


@dataclass
class Inspected:
    """The daemon, where its page is, and how a test changes what the page shows.

    `gate` delays the embedding of the notes of the agent `cranes` while it is not set.
    """

    served: Served
    url: str
    gate: threading.Event

    @property
    def socket(self):
        return f"unix:{self.served.state}/m.sock"

    def client(self, token=None):
        """A client of the Unix socket; over TCP if it has a token."""
        return connect(self.served.address.split(", ")[0], token) if token else connect(self.socket, "")

    def new_token(self, *agents, name="", expires="", scope="read"):
        """Create a token, and return its ID and the token."""
        options = [*(f"--agent={agent}" for agent in agents), f"--name={name}", f"--scope={scope}", "--json"]
        options += [f"--expires={expires}"] if expires else []
        done = self.served.memoryd("token", "new", f"--config={self.config}", *options)
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        return made["id"], made["token"]

    def revoke(self, token_id):
        done = self.served.memoryd("token", "revoke", token_id)
        assert done.returncode == 0, done.stderr

    @property
    def config(self):
        return self.served.home / "memoryd.json5"

    def workspace(self, agent=MAIN):
        return self.served.home / agent

    def status(self, agent=MAIN):
        with self.client() as client:
            return client.status(agent_id=agent)


@contextmanager
def inspected_daemon(folder: Path, *, hostile: bool, now: datetime | None = None):
    """A daemon whose agents are indexed, until the block ends. Without `hostile`, its notes are fit to be shown.

    The daily notes end on the day before `now`, which is also the time of the daemon's clock.
    """
    state = folder / "state"
    state.mkdir(mode=0o700)
    write_notes(folder / MAIN, now)
    write_transcript(state)
    write_numbered(folder / SUPPORT, 3, "ticket")
    write_long_note(folder / SUPPORT)
    write_numbered(folder / CRANES, 3, GATED_WORD)
    write_numbered(folder / BEACONS, 3, "beacon")
    if hostile:
        write_hostile_notes(folder / MAIN)
        write_long_note(folder / MAIN)
    date_files(folder, now)
    gate = threading.Event()
    gate.set()
    with fake_provider("openai-compatible", [PROVIDER_KEY]) as provider:
        provider.refuse = lambda texts: _wait(gate, texts)
        provider.dimensions = DIMENSIONS
        config = folder / "memoryd.json5"
        config.write_text(json.dumps(_settings(folder, provider.url, watch=not hostile)))
        options = ("--config", config, "--listen", f"unix:{state}/m.sock")
        served = start(None, state, *options, home=folder, listen="127.0.0.1:0", within=_clock(folder, now))
        try:
            url = wait_until(lambda: _http_url(folder / "daemon.log"))
            inspected = Inspected(served, url, gate)
            _prepare(inspected, now, hostile=hostile)
            yield inspected
        finally:
            gate.set()
            end(served.process)


def _clock(folder, now):
    """The command that runs a daemon whose clock shows `now` at its start."""
    if now is None:
        return ()
    clock = Clock(folder)
    clock.set((now - datetime.now(UTC)).total_seconds())
    return clock.within


def _wait(gate, texts):
    if any(GATED_WORD in text for text in texts):
        gate.wait(WAIT_SECONDS)


def _settings(folder, provider_url, *, watch):
    search = {
        "provider": "openai-compatible",
        "model": "words",
        "remote": {"baseUrl": provider_url, "apiKey": PROVIDER_KEY},
        "sources": ["memory", "sessions"],
        "experimental": {"sessionMemory": True},
        # Small, so that notes of a few lines have several chunks.
        "chunking": {"tokens": 120, "overlap": 30},
        "query": {"hybrid": {"temporalDecay": {"enabled": True, "halfLifeDays": 180}}},
        # A test starts each sync, so that it knows when the page shows one.
        "sync": {"watch": watch},
    }
    agents = [{"id": agent, "workspace": str(folder / agent)} for agent in AGENTS]
    agents[0] |= {"default": True, "memorySearch": {"query": {"hybrid": {"mmr": {"enabled": True}}}}}
    agents[-1]["memorySearch"] = {"remote": {"apiKey": REFUSED_KEY}}
    memoryd = {
        "writes": "edit",
        "reconcileSeconds": 3_600,
        "http": {"listen": "127.0.0.1:0"},
        "limits": {"maxFileBytes": MAX_FILE_BYTES},
        "log": {"level": "info", "format": "json"},
    }
    return {"agents": {"defaults": {"memorySearch": search}, "list": agents}, "memoryd": memoryd}


def _http_url(log):
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return next((event["url"] for event in events if event["event"] == "serve-http"), None)


def _prepare(inspected, now, *, hostile):
    """Index all agents, and edit a file, so that it has a history."""
    with inspected.client() as client:
        for agent in AGENTS:
            *_, last = client.sync(agent_id=agent, timeout=WAIT_SECONDS)
            assert last.completed.index_revision, last
    _, token = inspected.new_token(MAIN, name=HOSTILE_CALLER if hostile else "pip", scope="edit")
    with inspected.client(token) as client:
        for old, new in pairwise(HISTORY):
            seen = client.get(agent_id=MAIN, path="MEMORY.md")
            client.write(
                agent_id=MAIN,
                path="MEMORY.md",
                expected_sha256=seen.content_sha256,
                replace=TextReplacement(old_text=old, new_text=new),
            )
    if now is not None:
        # The file system's clock is not moved.
        os.utime(inspected.workspace() / "MEMORY.md", (now.timestamp(), now.timestamp()))
        with inspected.client() as client:
            list(client.sync(agent_id=MAIN, timeout=WAIT_SECONDS))
