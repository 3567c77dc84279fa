"""memoryd refuses to run on Windows; the Python client works there, over TCP."""

import socket
import subprocess
import sys

import pytest

# `-m` would run before the platform could be changed, so runpy does what it does.
AS_MODULE = 'import runpy; runpy.run_module("memoryd_server", run_name="__main__")'
# As the script of an installed package.
AS_COMMAND = "from memoryd_server.cli.main import main; main()"

# grpc and protobuf are imported first: for Windows they have files that this system lacks.
CALL_WITHOUT_POSIX = """
import os, pathlib, sys
import grpc, grpc.aio, google.protobuf.json_format, google.rpc.status_pb2
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_NOFOLLOW", "fchmod", "fork", "getegid", "geteuid", "getgid", "getuid", "killpg"):
    delattr(os, name)
sys.platform = "win32"
from memoryd.client import MemorydError, connect
from memoryd.discovery import Environment, find_endpoint
print(find_endpoint(Environment({}, pathlib.Path("nowhere"))).over_tcp)
try:
    with connect(sys.argv[1], token="t", timeout=20) as client:
        client.status()
except MemorydError as error:
    print(error.code.name)
"""


def run(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("start", [AS_MODULE, AS_COMMAND], ids=["python -m memoryd_server", "memoryd"])
def test_the_command_refuses_windows_with_one_sentence(start):
    done = run(f'import sys; sys.platform = "win32"; {start}', "--version")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("memoryd does not support Windows, because")
    assert "WSL 2" in done.stderr


@pytest.mark.parametrize("start", [AS_MODULE, AS_COMMAND], ids=["python -m memoryd_server", "memoryd"])
def test_the_command_runs_on_this_system(start):
    done = run(start, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("memoryd, version")


def test_the_python_client_needs_nothing_that_windows_lacks():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = run(CALL_WITHOUT_POSIX, f"127.0.0.1:{unused.getsockname()[1]}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["False", "UNAVAILABLE"]
