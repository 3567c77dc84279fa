"""A real daemon in a separate process, with its resource usage."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from memoryd.client import MemorydClient, connect


class DaemonProcess:
    """`memoryd serve` on a workspace, from `start` to `stop`. `listen` has addresses in addition to its socket.

    `program` are Python's arguments that name the command.
    """

    def __init__(
        self,
        workspace: Path,
        state_dir: Path,
        *,
        python: str = sys.executable,
        listen: Sequence[str] = (),
        program: Sequence[str] = ("-m", "memoryd_server"),
        **environment: str,
    ) -> None:
        self.address = f"unix:{state_dir}/m.sock"
        self._command = [
            python, *program, "serve",
            "--workspace", str(workspace), "--state-dir", str(state_dir), "--listen", self.address,
            *(argument for address in listen for argument in ("--listen", address)),
        ]  # fmt: skip
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[str] | None = None
        self.start_seconds = 0.0

    def start(self) -> MemorydClient:
        """Start the daemon and wait until it listens."""
        began = time.perf_counter()
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        line = self._process.stdout.readline()
        if not line.startswith("listening on"):
            raise RuntimeError(f"the daemon did not start: {line!r}")
        self.start_seconds = time.perf_counter() - began
        return connect(self.address)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def _of_system(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    def cpu_seconds(self) -> float:
        """Return user and system time since the start."""
        times = self._of_system.cpu_times()
        return times.user + times.system

    def rss_mib(self) -> float:
        """Return the current resident memory in MiB."""
        return self._of_system.memory_info().rss / 2**20

    def peak_rss_mib(self) -> float:
        """Return the maximum resident memory in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def stop(self, seconds: float = 20) -> None:
        """Stop the daemon by its process id, and wait for its end."""
        self._process.terminate()
        self._process.wait(seconds)
        self._process.stdout.close()
