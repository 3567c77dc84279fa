"""The command prints how to approve a cost: the exact command, with the options that were given."""

import json
import shlex
import subprocess

import pytest

from daemon_process import COMMAND, environment, memoryd, serving
from fake_providers import embedding_server

pytestmark = pytest.mark.slow

NOTE = "the red ferry sails at dawn"
LINE = "memoryd: work: to approve the cost, run: "


@pytest.fixture
def provider(monkeypatch):
    """A provider at the address of another machine."""
    with embedding_server() as server:
        monkeypatch.setenv(*server.behind_proxy("embeddings.example"))
        yield server


@pytest.fixture
def options(tmp_path, provider):
    """The options of a command on two agents whose notes cost more than the limit; one has a space in its path."""
    workspace = tmp_path / "the workspace"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "a.md").write_text(NOTE)
    remote = {"baseUrl": provider.url, "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    listed = [{"id": "work", "default": True}, {"id": "other", "workspace": str(tmp_path / "other")}]
    config = tmp_path / "c.json5"
    settings = {"agents": {"defaults": {"memorySearch": search}, "list": listed}, "memoryd": {"confirmAboveTokens": 1}}
    config.write_text(json.dumps(settings))
    return ["--config", config, "--state-dir", tmp_path / "s", "--workspace", workspace]


def approve(command, home):
    """Run a printed command in a shell."""
    words = shlex.split(command)
    assert words[: len(COMMAND)] == list(COMMAND)
    return subprocess.run(
        ["/bin/sh", "-c", command], env=environment(home), capture_output=True, text=True, timeout=60, check=False
    )


def printed(done):
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(LINE)]
    return line.removeprefix(LINE)


@pytest.mark.parametrize("arguments", [["index", "--agent", "work"], ["status", "--index", "--agent", "work"]])
def test_the_printed_command_approves_the_cost_of_the_agent(tmp_path, options, provider, arguments):
    done = memoryd(*arguments, *options, home=tmp_path)
    assert done.returncode == 1, done.stderr
    command = printed(done)
    given = ["index", "--agent", "work", "--force", *map(str, options)]
    assert shlex.split(command) == [*COMMAND, *given]
    assert NOTE not in provider.texts
    approved = approve(command, tmp_path)
    assert (approved.returncode, approved.stderr) == (0, "")
    assert NOTE in provider.texts
    again = memoryd(*arguments, *options, home=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")


def test_the_reasons_in_json_contain_the_command(tmp_path, options):
    done = memoryd("index", "--agent", "work", "--json", *options, home=tmp_path)
    (degradation,) = json.loads(done.stdout.splitlines()[-1])["completed"]["degradations"]
    command = shlex.join([*COMMAND, "index", "--agent", "work", "--force", *map(str, options)])
    assert f"call Sync with mode FULL ({command}) to go ahead" in degradation["reason"]
    assert done.stderr == ""
    done = memoryd("status", "--index", "--agent", "work", "--json", *options, home=tmp_path)
    (report,) = json.loads(done.stdout)
    for degradations in (report["sync"]["degradations"], report["status"]["degradations"]):
        assert command in degradations[0]["reason"]


def test_a_search_without_a_daemon_prints_the_command(tmp_path, options):
    done = memoryd("search", "red ferry", "--agent", "work", *options, home=tmp_path)
    assert done.returncode == 0, done.stderr
    command = shlex.join([*COMMAND, "index", "--agent", "work", "--force", *map(str, options)])
    assert command in done.stderr
    done = memoryd("search", "red ferry", "--agent", "work", "--json", *options, home=tmp_path)
    assert command in json.loads(done.stdout)["info"]["degradations"][0]["reason"]


def test_the_command_names_the_daemon_that_was_called(tmp_path, options):
    config, state, workspace = options[1], options[3], options[5]
    state.mkdir()
    with serving(workspace, state, "--config", config, home=tmp_path) as daemon:
        done = memoryd("index", "--agent", "work", "--address", daemon.address, home=tmp_path)
        command = printed(done)
        assert shlex.split(command)[len(COMMAND) :] == [
            "index",
            "--agent",
            "work",
            "--force",
            "--address",
            daemon.address,
        ]
        assert approve(command, tmp_path).returncode == 0
