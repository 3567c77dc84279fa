"""Two network namespaces with a link that can be cut: one for a replica, one for the database and other replicas."""

import shutil
import subprocess
from contextlib import contextmanager

import pytest

from e2e import namespaces
from postgres_server import IS_ROOT, UNPRIVILEGED

UNSHARE = ("unshare", "--net") if IS_ROOT else ("unshare", "--user", "--map-current-user", "--keep-caps", "--net")
DATABASE_ADDRESS, REPLICA_ADDRESS = "10.213.0.1", "10.213.0.2"
# Packets to an address that no card has are lost without an error.
NO_CARD = "02:00:00:00:00:01"


class Network:
    """`database_side` and `replica_side` are commands that run another command in one of the namespaces."""

    def __init__(self, shell):
        # The shell has the rights to change both namespaces.
        self._shell = shell
        self._sleeping = self._run("unshare --net sleep 1000 >/dev/null 2>&1 & echo $!")
        spaces = [f"$(readlink /proc/{process}/ns/net)" for process in (self._sleeping, "$$")]
        self._run(f'until [ "{spaces[0]}" != "{spaces[1]}" ]; do sleep 0.01; done')
        self.database_side = self._within(shell.pid)
        self.replica_side = self._within(self._sleeping)
        self._run(f"ip link add database type veth peer name replica netns {self._sleeping}")
        self._configure("", "database", DATABASE_ADDRESS)
        self._configure(self._inside, "replica", REPLICA_ADDRESS)

    def _configure(self, prefix, card, address):
        self._run(f"{prefix} ip address add {address}/24 dev {card}")
        for each in (card, "lo"):
            self._run(f"{prefix} ip link set {each} up")

    @property
    def _inside(self):
        return f"nsenter --net=/proc/{self._sleeping}/ns/net"

    def _within(self, process):
        user = () if IS_ROOT else (f"--user=/proc/{process}/ns/user", "--preserve-credentials")
        return ("nsenter", *user, f"--net=/proc/{process}/ns/net")

    def database_server(self):
        """Return the command that runs PostgreSQL, which refuses to run as root."""
        return (*self.database_side, *UNPRIVILEGED)

    def take_down(self):
        """Take the link down at the side of the replica, which notices it."""
        self._run(f"{self._inside} ip link set replica down")

    def lose_packets(self):
        """Lose the packets of both directions, of which neither side is notified."""
        self._run(f"ip neighbour replace {REPLICA_ADDRESS} lladdr {NO_CARD} dev database nud permanent")
        self._run(f"{self._inside} ip neighbour replace {DATABASE_ADDRESS} lladdr {NO_CARD} dev replica nud permanent")

    def restore(self):
        """End either fault."""
        self._run(f"{self._inside} ip link set replica up")
        self._run("ip neighbour flush dev database nud permanent")
        self._run(f"{self._inside} ip neighbour flush dev replica nud permanent")

    def _run(self, command):
        """Run a command in the shell and return what it prints."""
        self._shell.stdin.write(f"{command}\necho status $?\n")
        self._shell.stdin.flush()
        printed = []
        while not (line := self._shell.stdout.readline()).startswith("status "):
            assert line, f"the shell ended: {printed}"
            printed.append(line)
        assert line == "status 0\n", f"{command}: {printed}"
        return "".join(printed).strip()

    def close(self):
        """Remove the namespaces, which the programs in them must have left."""
        self._run(f"kill {self._sleeping}")
        self._shell.communicate(timeout=10)


@contextmanager
def network():
    """Create the namespaces, and remove them when the block ends. Skip the test if the system does not allow them."""
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed: `apt-get install iproute2` on Debian")
    namespaces.require((*UNSHARE, "sh", "-c", "ip link add database type veth peer name replica"))
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    made = Network(subprocess.Popen([*UNSHARE, "sh"], text=True, **streams))
    try:
        yield made
    finally:
        made.close()
