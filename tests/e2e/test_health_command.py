"""`memoryd health` for containers and supervisors, and the readiness notification to systemd."""

import os
import signal
import socket
import subprocess

import pytest

from daemon_process import COMMAND, end, environment, memoryd, serving


@pytest.fixture
def places(tmp_path):
    home, workspace, state = tmp_path / "h", tmp_path / "w", tmp_path / "s"
    for folder in (home, workspace / "memory", state):
        folder.mkdir(parents=True)
    return home, workspace, state


@pytest.mark.slow
def test_a_daemon_that_serves_ends_with_0_on_a_socket_and_over_tcp(places):
    home, workspace, state = places
    for listen in (None, "127.0.0.1:0"):
        with serving(workspace, state, home=home, listen=listen) as served:
            done = served.memoryd("health")
            assert (done.returncode, done.stdout.strip()) == (0, "SERVING")
            named = memoryd("health", "--address", served.address, "--state-dir", state, home=home)
            assert named.returncode == 0
            ours = served.memoryd("health", "--service", "memoryd.v1.MemoryService")
            assert (ours.returncode, ours.stdout.strip()) == (0, "SERVING")


@pytest.mark.slow
def test_none_is_started_and_an_absent_one_ends_with_5(places):
    home, _, state = places
    done = memoryd("health", "--state-dir", state, home=home)
    assert (done.returncode, "no daemon is running" in done.stderr) == (5, True)
    named = memoryd("health", "--address", f"unix:{state}/absent", "--timeout", "0.5", home=home)
    assert (named.returncode, "UNAVAILABLE" in named.stderr) == (5, True)


@pytest.mark.slow
def test_a_killed_daemon_is_unhealthy_with_code_5(places):
    home, workspace, state = places
    with serving(workspace, state, home=home) as served:
        end(served.process, signal.SIGKILL)
        assert served.memoryd("health").returncode == 5


@pytest.mark.slow
def test_a_service_that_there_is_not_has_no_health(places):
    home, workspace, state = places
    with serving(workspace, state, home=home) as served:
        done = served.memoryd("health", "--service", "nothing.of.ours")
        assert (done.returncode, "NOT_FOUND" in done.stderr) == (5, True)


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_notified_when_the_daemon_answers(places, abstract):
    home, workspace, state = places
    name = f"@memoryd-test-{os.getpid()}" if abstract else str(home / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind("\0" + name[1:] if abstract else name)
        supervisor.settimeout(30)
        flags = ["--workspace", str(workspace), "--state-dir", str(state), "--listen", f"unix:{state}/m.sock"]
        told = {**environment(home), "NOTIFY_SOCKET": name}
        process = subprocess.Popen(
            [*COMMAND, "serve", *flags], env=told, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            lines = supervisor.recv(4096).decode().splitlines()
            assert lines == ["READY=1", f"STATUS=listening on unix:{state}/m.sock"]
            assert memoryd("health", "--state-dir", state, home=home).returncode == 0
        finally:
            end(process)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "relative", "/nowhere/at/all"])
def test_a_supervisor_that_is_not_there_holds_nothing_up(places, name):
    home, workspace, state = places
    flags = ["--workspace", str(workspace), "--state-dir", str(state), "--listen", f"unix:{state}/m.sock"]
    told = {**environment(home), "NOTIFY_SOCKET": name}
    process = subprocess.Popen([*COMMAND, "serve", *flags], env=told, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout.readline().startswith(b"listening on")
    finally:
        end(process)
