"""`memoryd doctor` against a real daemon, and where none can run: what it finds, and how it ends."""

import json
import signal
import socket

import pytest

from daemon_process import end, memoryd, serving, start

# Another a moment later.
MOVING = {"free space", "clock", "inotify"}


def found(done):
    return json.loads(done.stdout)


def by_name(checks):
    return {check["name"]: check for check in checks}


@pytest.mark.slow
def test_a_healthy_daemon_is_explained_line_by_line(places):
    home, workspace, state = places
    with serving(workspace, state, home=home) as served:
        served.memoryd("index")
        done = served.memoryd("doctor", "--json")
        told = served.memoryd("doctor").stdout
    checks = found(done)
    assert done.returncode == 0
    assert {"failed"} & {check["verdict"] for check in checks} == set()
    wanted = {
        "settings",
        "state directory",
        "free space",
        "file system",
        "inotify",
        "open files",
        "SQLite",
        "sqlite-vec",
        "socket",
        "clock",
        "daemon",
        "metrics",
        "memory of main",
    }
    assert wanted <= set(by_name(checks))
    assert any("a process listens at" in check["detail"] for check in checks)
    assert any("1 files" in check["detail"] for check in checks)
    for check in checks:
        assert (check["verdict"] == "ok") == (not check["advice"]) == (not check["meaning"])
        assert check["detail"] in told or check["name"] in MOVING


@pytest.mark.slow
def test_a_socket_that_a_killed_daemon_left_is_reported_and_is_no_failure(places):
    home, workspace, state = places
    served = start(workspace, state, home=home)
    end(served.process, signal.SIGKILL)
    done = memoryd("doctor", "--json", "--workspace", workspace, "--state-dir", state, home=home)
    assert done.returncode == 0
    (socket_check,) = [check for check in found(done) if check["name"] == "socket" and check["verdict"] != "ok"]
    assert "no process listens" in socket_check["detail"]
    assert "not running" in by_name(found(done))["daemon"]["detail"]


@pytest.mark.slow
def test_a_provider_that_does_not_answer_fails_and_says_which(places):
    home, workspace, state = places
    # Nobody listens at a port of the reserved ones.
    remote = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    (state / "memoryd.json5").write_text(json.dumps({"agents": {"defaults": {"memorySearch": search}}}))
    done = memoryd("doctor", "--json", "--workspace", workspace, "--state-dir", state, home=home)
    assert done.returncode == 1
    (failed,) = [check for check in found(done) if check["verdict"] == "failed"]
    assert "openai-compatible words does not answer" in failed["detail"]
    assert "sk-of-this-test" not in done.stdout


def with_metrics_at(state, port):
    (state / "memoryd.json5").write_text(json.dumps({"memoryd": {"metrics": {"listen": f"127.0.0.1:{port}"}}}))


@pytest.mark.slow
def test_the_figures_of_a_daemon_are_fetched(places):
    home, workspace, state = places
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(workspace, state, home=home) as served:
        assert by_name(found(served.memoryd("doctor", "--json")))["metrics"]["detail"].startswith("disabled")
        with_metrics_at(state, port)
        late = by_name(found(served.memoryd("doctor", "--json")))["metrics"]
    assert late["verdict"] == "warning"
    assert "restart the daemon" in late["advice"]
    with serving(workspace, state, home=home) as served:
        done = served.memoryd("doctor", "--json")
    assert done.returncode == 0
    assert f"http://127.0.0.1:{port}/metrics answers" in by_name(found(done))["metrics"]["detail"]


@pytest.mark.slow
def test_a_port_that_another_has_fails_where_no_daemon_runs_and_keeps_no_command_from_its_work(places):
    home, workspace, state = places
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with_metrics_at(state, taken.getsockname()[1])
        done = memoryd("doctor", "--json", "--workspace", workspace, "--state-dir", state, home=home)
    checks = by_name(found(done))
    assert done.returncode == 1
    assert "does not start while another program has its address" in checks["metrics"]["meaning"]
    assert "not running" in checks["daemon"]["detail"]
    assert checks["memory of main"]["verdict"] == "ok"
