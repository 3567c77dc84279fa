"""What the clients call: real daemons with a small workspace, which is as it was before every case."""

import json
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from certificates import Authority
from daemon_process import end, start
from memoryd.client import connect
from memoryd_server.access.grants import Scope
from memoryd_server.access.token_store import TokenStore
from memoryd_server.access.tokens import TokenFiles
from rpc.agent_calls import HAS_LANCEDB

# Nothing happens in the background, and a day is the same for everybody.
_QUIET = {"watch": False, "onSearch": False, "onSessionStart": False}
_DEFAULTS = {
    "userTimezone": "UTC",
    "memorySearch": {
        "provider": "none",
        "sync": _QUIET,
        "sources": ["memory", "sessions"],
        "experimental": {"sessionMemory": True},
    },
}
_AGENTS = [
    {"id": "main", "default": True},
    {"id": "work"},
    {"id": "quiet", "memorySearch": {"enabled": False}},
]


def has_ipv6():
    """Whether this machine has the IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6) as attempt:
            attempt.bind(("::1", 0))
    except OSError:
        return False
    return True


@dataclass
class ClientsDaemon:
    """A daemon on a Unix socket and on TCP: with TLS, or, when `plain`, in the clear on loopback.

    `addresses` are the socket's, TCP's, and, where there is one, that of the IPv6 loopback. The plain
    one keeps no entries and refuses edits. A `replica_of` another daemon accepts the same tokens, and has a certificate
    of the same authority.
    """

    root: Path
    plain: bool = False
    mutual: bool = False
    replica_of: "ClientsDaemon | None" = None
    process: object = None
    addresses: list = field(default_factory=list)

    def __post_init__(self):
        self.workspace, self.state, self.home = (self.root / name for name in ("w", "s", "h"))
        for folder in (self.workspace, self.state, self.home):
            folder.mkdir()
        first = self.replica_of
        if first is not None:
            self.authority = first.authority
        else:
            self.authority = None if self.plain else Authority(self.root)
        (self.state / "memoryd.json5").write_text(json.dumps(self._settings()), "utf-8")
        store = TokenFiles.in_state_dir(self.state, None).store
        if first is not None:
            shutil.copy2(TokenFiles.in_state_dir(first.state, None).store, store)
            self.token, self.limited_token = first.token, first.limited_token
        else:
            made = {
                name: TokenStore(store).add(name, agents, datetime.now(UTC), None, scopes=scopes)[1]
                for name, (agents, scopes) in _TOKENS.items()
            }
            self.token, self.limited_token = made["everything"], made["work"]
        self.token_file = self.root / "token"
        self.token_file.write_text(f"\n# of the clients' tests\n{self.token}\n", "utf-8")
        self.token_file.chmod(0o600)

    def _settings(self):
        ours = {
            "writes": "append" if self.plain else "edit",
            "entries": {"enabled": HAS_LANCEDB and not self.plain},
            # By default, a pass every 45 s could index what a case has written before its sync does.
            "reconcileSeconds": 3600,
        }
        if self.authority is not None:
            certificate, key = self.authority.issue("daemon" if self.replica_of is None else self.root.name)
            ours["tls"] = {"certFile": str(certificate), "keyFile": str(key)}
        if self.mutual:
            ours["tls"]["clientCaFile"] = str(self.authority.ca)
        return {"agents": {"defaults": _DEFAULTS, "list": _AGENTS}, "memoryd": ours}

    @property
    def listening(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        """Starts the daemon; the next time at the same addresses."""
        first, *others = self.addresses or [
            f"unix:{self.root}/m.sock",
            "127.0.0.1:0",
            *(["[::1]:0"] if has_ipv6() else []),
        ]
        more = [part for address in others for part in ("--listen", address)]
        self.process = start(self.workspace, self.state, *more, home=self.home, listen=first).process
        self.addresses = json.loads((self.state / "memoryd.endpoint.json").read_text("utf-8"))["addresses"]
        return self

    def stop(self, number=signal.SIGTERM):
        if not self.listening:
            return
        try:
            end(self.process, number)
        except subprocess.TimeoutExpired:
            end(self.process, signal.SIGKILL)
            raise

    def values(self):
        """What a case can name."""
        unix, tcp, *six = self.addresses
        port = tcp.rpartition(":")[2]
        return {
            "unix": unix,
            "socket": unix.removeprefix("unix:"),
            "tcp": tcp,
            "localhost": f"localhost:{port}",
            "tcp6": next(iter(six), ""),
            "token": self.token,
            "limited_token": self.limited_token,
            "token_file": str(self.token_file),
            "ca_file": "" if self.authority is None else str(self.authority.ca),
        }

    def connection(self, over):
        """What a client is told for its connection."""
        values = self.values()
        if over == "unix":
            return {"address": values["unix"]}
        secured = {} if self.plain else {"tls": {"ca_file": values["ca_file"]}}
        return {"address": values["tcp"], "token": values["token"], **secured}

    def reset(self, files, transcripts):
        """Makes these all that the agent `main` has, and brings its index in line."""
        if not self.listening:
            self.start()
        sessions = self.state / "agents" / "main" / "sessions"
        for folder, content in ((self.workspace, files), (sessions, transcripts)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for path, text in content.items():
                self.write(folder, path, text)
        with connect(self.addresses[0], timeout=60) as client:
            for _ in client.sync():
                pass

    @staticmethod
    def write(folder, path, text):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file


# Name of a token: its agents and its scopes, None for all of the agents and for the default scopes.
_TOKENS = {"everything": (None, (Scope.ADMIN, Scope.EDIT)), "work": (["work"], None)}
