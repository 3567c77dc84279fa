"""Two PostgreSQL servers that Patroni controls through etcd: when the leader dies, the other one takes over by itself.

Patroni and etcd are those of the system. All listen on loopback, and end with the process that started them.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import postgres_server
from postgres_server import GUARD, IS_ROOT, PROGRAMS, ROLE, STOP_SECONDS, UNPRIVILEGED, kill_server, wait_for_end
from waiting import wait_until

PACKAGES = {"patroni": "patroni", "etcd": "etcd-server"}
"""The Debian packages of the programs."""

# The leader renews its key every second. Another node takes over when it has not done so for `ttl` seconds.
TIMES = {"ttl": 10, "loop_wait": 1, "retry_timeout": 4}
READY_SECONDS = 90


def missing():
    """Return why the tests cannot run; empty if they can."""
    if reason := postgres_server.missing():
        return reason
    names = [name for name in PACKAGES if shutil.which(name) is None]
    packages = " ".join(PACKAGES[name] for name in names)
    return f"{' and '.join(names)} not installed: `apt-get install {packages}` on Debian" if names else ""


class PatroniCluster:
    """The running programs. `url_of` names both hosts."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._programs = {}
        self._ports = {name: _free_port() for name in ("etcd", "peer", "a", "b", "a-rest", "b-rest")}
        self._start_etcd()
        for name in ("a", "b"):
            (self.folder / f"{name}.json").write_text(json.dumps(self._configuration(name)))
            self.start(name)

    def _start_etcd(self):
        client, peer = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peer"))
        self._run(
            *("etcd", "etcd", "--data-dir", self.folder / "etcd", "--initial-cluster", f"default={peer}"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        )

    def _configuration(self, name):
        server, rest, etcd = (f"127.0.0.1:{self._ports[each]}" for each in (name, f"{name}-rest", "etcd"))
        superuser = {"username": "postgres"}
        return {
            "scope": "memoryd",
            "name": name,
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"host": etcd},
            "bootstrap": {
                "dcs": {**TIMES, "synchronous_mode": True, "postgresql": {"use_pg_rewind": True}},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": server,
                "connect_address": server,
                "data_dir": str(self._data(name)),
                "bin_dir": str(PROGRAMS),
                "pgpass": str(self.folder / f"{name}.pgpass"),
                "authentication": dict.fromkeys(("superuser", "replication", "rewind"), superuser),
                "pg_hba": [f"host {what} all 127.0.0.1/32 trust" for what in ("all", "replication")],
                # By default, a standby that has to wait for its replication slot tries again after five seconds.
                "parameters": {"unix_socket_directories": "", "wal_retrieve_retry_interval": "500ms"},
            },
        }

    def _data(self, name):
        return self.folder / name

    def start(self, name):
        """Start the Patroni of a node, which starts its server."""
        self._run(name, "patroni", self.folder / f"{name}.json")

    def _run(self, name, *command):
        with (self.folder / f"{name}.log").open("ab") as log:
            self._programs[name] = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, "TERM", *UNPRIVILEGED, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                env={**os.environ, "HOME": str(self.folder)},
            )

    def kill(self, name):
        """Kill Patroni and the server of a node, as a crash of its machine ends them."""
        guard = self._programs.pop(name)
        (patroni,) = postgres_server.children(guard.pid)
        killed = kill_server(self._data(name), patroni)
        guard.stdin.close()
        guard.wait(STOP_SECONDS)
        wait_for_end(killed)

    def members(self):
        """Return the role of each node that runs, as its Patroni reports it."""
        for name in ("a", "b"):
            with suppress(urllib.error.URLError, OSError):
                url = f"http://127.0.0.1:{self._ports[f'{name}-rest']}/cluster"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    found = json.load(answer)["members"]
                return {each["name"]: each["role"] for each in found if each["state"] in {"running", "streaming"}}
        return {}

    def wait_until_synchronous(self):
        """Wait until both nodes run and one is the synchronous standby of the other; return the name of the leader."""
        roles = ["leader", "sync_standby"]
        wait_until(lambda: sorted(self.members().values()) == roles, READY_SECONDS, pause=0.2)
        return next(name for name, role in self.members().items() if role == "leader")

    def create_database(self, name):
        """Create a database that belongs to the role of memoryd, and return its URL with both hosts."""
        with self.admin("postgres") as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOBYPASSRLS")
            connection.execute(f"CREATE DATABASE {name} OWNER {ROLE}")
        with self.admin(name) as connection:
            connection.execute("CREATE EXTENSION vector")
        return self._url_of(name, ROLE)

    def admin(self, database):
        """Connect to the leader as the superuser."""
        import psycopg  # noqa: PLC0415 -- optional

        return psycopg.connect(f"{self._url_of(database, 'postgres')}&target_session_attrs=read-write", autocommit=True)

    def _url_of(self, database, role):
        hosts = ",".join(f"127.0.0.1:{self._ports[name]}" for name in ("a", "b"))
        return f"postgresql://{role}@{hosts}/{database}?connect_timeout=5"

    def stop(self):
        """Stop all programs. Patroni stops its server."""
        for name in ("b", "a", "etcd"):
            if name in self._programs:
                guard = self._programs.pop(name)
                guard.stdin.close()
                guard.wait(STOP_SECONDS)


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@contextmanager
def patroni_cluster():
    """Start the programs and stop them when the block ends. The cluster may still be forming."""
    with tempfile.TemporaryDirectory(prefix="pa-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if IS_ROOT:
            shutil.chown(folder, "nobody")
        cluster = PatroniCluster(folder)
        try:
            yield cluster
        except BaseException:
            for log in sorted(cluster.folder.glob("*.log")):
                print(f"{log.name}: ...{log.read_text()[-4000:]}")  # noqa: T201 -- pytest shows it
            raise
        finally:
            cluster.stop()
