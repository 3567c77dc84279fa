"""Start the `memoryd` command in a process that has imported its modules already.

The imports are nine tenths of the processor time of a start, and the same each time. A `Launcher` runs one process with
the modules of the daemon, which forks for each start. A fork has its own process id, arguments, environment, folder and
standard streams, and runs the command as `python -m memoryd_server` does. It cannot have other variables that the
interpreter or a library reads before the command runs: `Launcher.can_start` is false for them.
"""

import atexit
import contextlib
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

READ_EARLY = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC_", "GRPC_", "OPENBLAS_", "OMP_")
"""Prefixes of the variables that are read before the command runs."""


def early_variables(environ):
    """Return the variables with a prefix of `READ_EARLY`."""
    return {name: value for name, value in environ.items() if name.startswith(READ_EARLY)}


class Launcher:
    """The process that forks. It is started when it is first needed, and ends with this process."""

    def __init__(self):
        self._lock = threading.Lock()
        self._variables = early_variables(os.environ)
        self._enabled = False
        self._channel = None
        self._process = None

    @contextlib.contextmanager
    def used(self, enabled):
        """Allow forks in the block, or not."""
        before, self._enabled = self._enabled, enabled
        try:
            yield
        finally:
            self._enabled = before

    def can_start(self, environ):
        """Whether forks are allowed, and a fork with these variables runs as a new interpreter with them does."""
        return self._enabled and sys.platform == "linux" and early_variables(environ) == self._variables

    def start(self, arguments, environ, files):
        """Start `memoryd` with these arguments; `files` are the descriptors of its three standard streams."""
        request = {"arguments": arguments, "environ": environ, "folder": str(Path.cwd())}
        return Fork(self, int(self._ask(request, files)))

    def run(self, arguments, environ, stdin, seconds):
        """Run `memoryd` to its end and return what `subprocess.run` returns. `stdin` is a text, or None.

        Raises:
            subprocess.TimeoutExpired: the process has been killed after this many seconds.
        """
        with contextlib.ExitStack() as files:
            given, output, errors = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
            given.write(stdin or "")
            given.seek(0)
            process = self.start(arguments, environ, [file.fileno() for file in (given, output, errors)])
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            for file in (output, errors):
                file.seek(0)
            command = ["memoryd", *arguments]
            return subprocess.CompletedProcess(command, process.returncode, output.read(), errors.read())

    def wait(self, pid):
        """Wait for the end of a fork and return its status, as `os.waitpid` does."""
        return int(self._ask({"wait": pid}))

    def _ask(self, request, files=()):
        with self._lock:
            if self._channel is None:
                self._begin()
            socket.send_fds(self._channel, [json.dumps(request).encode()], files)
            return self._channel.recv(100)

    def _begin(self):
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Pipes, as most tests give a command.
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        atexit.register(self._end)

    def _end(self):
        self._channel.close()
        self._process.communicate(timeout=10)


class Fork:
    """A process that a `Launcher` has started, with the part of `subprocess.Popen` that the tests use."""

    def __init__(self, launcher, pid):
        self.pid = pid
        self.returncode = None
        self.stdout = None
        self._launcher = launcher
        self._handle = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def wait(self, timeout=None):
        """Wait for the end of the process and return its exit status, which is negative for a signal.

        Raises:
            subprocess.TimeoutExpired: the process still runs after `timeout` seconds.
        """
        with self._lock:
            if self.returncode is None:
                with selectors.DefaultSelector() as selector:
                    selector.register(self._handle, selectors.EVENT_READ)
                    if not selector.select(timeout):
                        raise subprocess.TimeoutExpired("memoryd", timeout)
                os.close(self._handle)
                self.returncode = os.waitstatus_to_exitcode(self._launcher.wait(self.pid))
            return self.returncode

    def poll(self):
        """Return the exit status if the process has ended, else None."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number):
        """Send a signal to the process if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def fork_for_requests(channel):
    """Fork for each request until the other end is closed. Return True in a fork, False in the launching process."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not message:
            return False
        request = json.loads(message)
        if "wait" in request:
            answer = os.waitpid(request["wait"], 0)[1]
        elif (answer := os.fork()) == 0:
            channel.close()
            become(request, files)
            return True
        for file in files:
            os.close(file)
        channel.send(str(answer).encode())


def become(request, files):
    """Give this process the arguments, the environment, the folder and the streams of a request."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv[1:] = request["arguments"]


def main():
    # The folder of this file, which the command does not see.
    del sys.path[0]
    # A daemon uses one thread of BLAS, and a process with threads cannot be forked safely.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from memoryd_server.settings import use_one_grpc_thread  # noqa: PLC0415

    # As `memoryd serve` does before these imports.
    use_one_grpc_thread()
    import memoryd_server.app  # noqa: PLC0415
    import memoryd_server.cli.serve  # noqa: F401, PLC0415

    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, f"a module has started {len(threads) - 1} threads"
    gc.freeze()
    if fork_for_requests(socket.socket(fileno=int(sys.argv[1]))):
        runpy.run_module("memoryd_server", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
