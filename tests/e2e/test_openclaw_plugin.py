"""The plugin as users install it: packed, in a real OpenClaw, with a real daemon."""

import contextlib
import json
import signal
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from daemon_process import end, start
from openclaw_host import NODE, PLUGIN, ModelServer, OpenClawHome, pack_plugin, require_openclaw
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUERY = "what is the staging database called"
NOTES = {
    "MEMORY.md": "# Long-term memory\n\n- The staging database is called quokka.\n",
    "USER.md": "The user is called Ana and prefers short answers.\n",
    "memory/2026-02-08.md": "# Log\n\nThe deployment moved to Thursday.\n",
}
MEMORYD = Path(sys.executable).parent / "memoryd"


class Installed:
    """A home of OpenClaw with the packed plugin, a model, and a daemon of the same home."""

    def __init__(self, folder, package):
        self.model = ModelServer(QUERY)
        model = {"primary": "mock/m1"}
        self.home = OpenClawHome(
            folder / "openclaw",
            {
                "defaults": {"model": model},
                "models": {"providers": {"mock": self.model.provider}},
                "tools": {"toolSearch": {"enabled": False}},
            },
        )
        for path, text in NOTES.items():
            (self.home.workspace / path).write_text(text)
        self.home.install(package)
        self.home.set("plugins.entries.memory-core.enabled", False)
        self.daemon = None
        self.start_daemon()

    def start_daemon(self):
        self.daemon = start(None, self.home.state, home=self.home.folder, listen=f"unix:{self.home.state}/m.sock")

    def memoryd(self, *arguments):
        done = self.daemon.memoryd(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self):
        end(self.daemon.process)
        self.model.close()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    require_openclaw()
    return pack_plugin(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory, package):
    installed = Installed(tmp_path_factory.mktemp("installed"), package)
    yield installed
    installed.close()


@pytest.fixture(scope="module")
def gateway(installed):
    with installed.home.gateway():
        yield installed.home


def test_installing_selects_the_plugin(installed):
    inspected = installed.home.json("plugins", "inspect", "memoryd", "--runtime", "--json")
    assert installed.home.slot() == "memoryd"
    text = json.dumps(inspected)
    assert '"status": "loaded"' in text
    assert '"memorySlotSelected": true' in text
    assert all(tool in text for tool in ("memory_search", "memory_get", "memory_append"))


def test_the_commands_search_index_and_show_the_status(installed):
    home = installed.home
    (home.workspace / "memory" / "2026-02-09.md").write_text("The numbat cluster is new.\n")
    indexed = home.run("memory", "index", "--force")
    assert "main: 4 files indexed" in indexed.stdout
    assert "4/4 files" in installed.memoryd("status")
    found = home.json("memory", "search", QUERY, "--json")["results"]
    own = json.loads(installed.memoryd("search", QUERY, "--json"))["results"]
    assert found
    assert [(hit["citation"], hit["score"]) for hit in found] == [(hit["citation"], hit["score"]) for hit in own]
    assert "keyword search only" in home.run("memory", "status").stdout
    assert home.run("memory", "get", "../../etc/passwd", check=False).returncode == 1


def test_openclaws_own_status_shows_the_plugins_memory(installed):
    # The command includes the memory only if no gateway runs, for which it waits. The default timeout is a minute.
    status = installed.home.json("status", "--json", "--all", "--timeout", "5000")
    assert status["memoryPlugin"]["slot"] == "memoryd"
    assert status["memory"]["provider"] == "none"
    # The test before this one adds a note, unless another worker runs it.
    assert status["memory"]["files"] == 2 + len(list((installed.home.workspace / "memory").iterdir()))


def test_the_gateway_answers_from_the_daemon(installed, gateway):
    (hit, *_) = gateway.call("memory.search", query="staging database")["results"]
    assert hit["path"] == "MEMORY.md"
    embedding = gateway.call("doctor.memory.status", deep=True)["embedding"]
    assert embedding["checked"]
    details = gateway.invoke("memory_search", query=QUERY, maxResults=3)
    assert details["results"][0]["path"] == "MEMORY.md"
    assert details["provider"] == "none"
    assert gateway.invoke("memory_get", path="MEMORY.md")["text"] == NOTES["MEMORY.md"]
    assert gateway.invoke("memory_get", path="memory/none.md")["status"] == "not_found"
    refused = gateway.invoke("memory_get", path="../../etc/passwd")
    assert (refused["status"], refused["code"]) == ("error", "MEMORY_PATH_NOT_ALLOWED")
    log = gateway.gateway_log()
    assert "memoryd" in log
    assert "tool name conflict" not in log
    assert "ANOTHER MEMORY" not in log


def test_memory_recovers_without_a_reload(installed, gateway):
    end(installed.daemon.process, signal.SIGKILL)
    details = gateway.invoke("memory_search", query=QUERY)
    assert (details["disabled"], details["unavailable"], details["results"]) == (True, True, [])
    assert "UNAVAILABLE" in details["error"]
    assert gateway.call("doctor.memory.status", deep=True)["embedding"]["ok"] is False
    installed.start_daemon()
    assert gateway.invoke("memory_search", query=QUERY)["results"][0]["path"] == "MEMORY.md"


def test_memory_files_stay_in_the_prompt_of_an_agent_that_searches(installed, gateway):
    done = gateway.run("agent", "--message", "What is the staging database called?", "--agent", "main", "--json")
    assert "quokka" in done.stdout
    prompt = "\n".join(installed.model.prompts())
    assert "The staging database is called quokka." in prompt
    assert "The user is called Ana" in prompt
    assert "call memory_search with a question in plain words" in prompt
    (result, *_) = installed.model.tool_results()
    assert "MEMORY.md#L" in result
    assert "excluding automatic memory context" not in gateway.gateway_log()


def test_a_tool_call_adds_little_to_the_grpc_call(installed):
    """The first call includes the connection. The medians are those of pairs in one process, with a wide margin."""
    script = PLUGIN / "build" / "test" / "latency.js"
    command = [str(NODE), str(script), installed.daemon.address]
    environment = installed.home.environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    times = json.loads(done.stdout)
    assert times["firstMs"] <= 2_000
    pairs = zip(times["toolMs"], times["grpcMs"], strict=True)
    assert statistics.median(tool - grpc for tool, grpc in pairs) <= 10


def test_a_second_memory_is_a_loud_warning(tmp_path, package):
    home = OpenClawHome(tmp_path / "openclaw")
    home.install(package)
    with home.gateway():
        wait_until(lambda: "ANOTHER MEMORY MAY ANSWER" in home.gateway_log())
        home.invoke("memory_search", query=QUERY)
        # The line that must not be in the log of a gateway without memory-core.
        assert "tool name conflict" in home.gateway_log()


@pytest.fixture
def autostarting(tmp_path, package):
    """Two homes whose gateways start the same daemon, which is ended after the test."""
    homes = [OpenClawHome(tmp_path / name) for name in ("one", "two")]
    for home in homes:
        home.install(package)
        settings = json.loads(home.config.read_text())
        settings["plugins"]["entries"]["memory-core"] = {"enabled": False}
        own = {"address": f"unix:{tmp_path}/m.sock", "autostart": True, "command": str(MEMORYD)}
        settings["plugins"]["entries"]["memoryd"]["config"] = own
        home.config.write_text(json.dumps(settings))
        (home.workspace / "MEMORY.md").write_text(NOTES["MEMORY.md"])
    yield homes
    for daemon in daemons_of(homes):
        daemon.terminate()
        daemon.wait(60)


def daemons_of(homes):
    """Return the processes of the daemons that run with the state of one of the homes."""
    states = {str(home.state) for home in homes}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "serve" in (process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("OPENCLAW_STATE_DIR") in states:
                    found.append(process)
    return found


def test_two_gateways_that_start_a_daemon_end_with_one(autostarting):
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda home: stack.enter_context(home.gateway()), autostarting))
        for home in autostarting:
            assert home.invoke("memory_search", query=QUERY)["results"][0]["path"] == "MEMORY.md"
        logs = [home.state / "logs" / "memoryd.log" for home in autostarting]
        assert sum("listening on" in log.read_text() for log in logs if log.exists()) == 1
        (daemon,) = wait_until(lambda: len(found := daemons_of(autostarting)) == 1 and found)
    # It outlives the gateways.
    assert daemon.is_running()


def test_an_uninstallation_gives_the_slot_back(tmp_path, package):
    home = OpenClawHome(tmp_path / "openclaw")
    home.install(package)
    assert home.slot() == "memoryd"
    home.run("plugins", "uninstall", "memoryd", "--force")
    assert home.slot() == "memory-core"
