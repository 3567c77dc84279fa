"""How a command finds a running daemon without being told its address or its state directory."""

import json
import os
import shlex
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from daemon_process import COMMAND, end, environment, memoryd, serving, start
from memoryd_server.cli.daemon_registry import (
    LastReload,
    endpoint_lock,
    register,
    running_daemon,
    running_state_dirs,
    write_endpoint_file,
)
from waiting import wait_until

REGISTRY = ".local/state/memoryd/daemons"


def workspace_of(folder, text):
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "note.md").write_text(text, "utf-8")
    return folder


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def ferry(tmp_path):
    return workspace_of(tmp_path / "ferry", "The ferry leaves at nine.")


@pytest.fixture
def crane(tmp_path):
    return workspace_of(tmp_path / "crane", "The crane lifts containers.")


def registered(home):
    return [json.loads(file.read_text("utf-8"))["state_dir"] for file in (home / REGISTRY).glob("*.json")]


@pytest.mark.slow
def test_a_command_without_flags_calls_the_daemon_of_another_state_directory(home, tmp_path, ferry):
    with serving(ferry, tmp_path / "state", home=home):
        (file,) = (home / REGISTRY).glob("*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        found = memoryd("search", "ferry", home=home)
        assert (found.returncode, found.stderr) == (0, "")
        assert "memory/note.md" in found.stdout
        assert memoryd("health", home=home).stdout == "SERVING\n"
        assert memoryd("reload", home=home).stdout == "no changes\n"
    assert registered(home) == []
    assert not (home / ".openclaw").exists(), "no command did the work itself"


@pytest.mark.slow
def test_of_several_daemons_the_last_started_one_is_called_and_the_others_are_named(home, tmp_path, ferry, crane):
    first, second = tmp_path / "first", tmp_path / "second"
    with serving(ferry, first, home=home), serving(crane, second, home=home):
        found = memoryd("search", "crane", home=home)
        assert "memory/note.md" in found.stdout
        assert found.stderr == (
            f"memoryd: 2 daemons are running; calling the one of {second}. Others: --state-dir {first}\n"
        )
        chosen = memoryd("search", "ferry", "--state-dir", first, home=home)
        assert ("memory/note.md" in chosen.stdout, chosen.stderr) == (True, "")


@pytest.mark.slow
def test_the_daemon_of_the_own_state_directory_is_preferred(home, tmp_path, ferry, crane):
    own, other = home / ".openclaw", tmp_path / "other"
    with serving(ferry, own, home=home), serving(crane, other, home=home):
        found = memoryd("search", "ferry", home=home)
        assert "memory/note.md" in found.stdout
        assert f"calling the one of {own}. Others: --state-dir {other}" in found.stderr


@pytest.mark.slow
def test_the_own_memory_is_not_replaced_by_a_running_daemon(home, tmp_path, ferry):
    own, state = home / ".openclaw", tmp_path / "the state"
    (own / "workspace").mkdir(parents=True)
    (own / "memoryd.json5").write_text("{}", "utf-8")
    process, lines = serve_with_example(home, ferry, state)
    try:
        found = memoryd("search", "ferry", home=home)
        appended = memoryd("append", "A note.", home=home)
        search = next(line for line in lines if " search " in line)
        assert f"search --state-dir '{state}' " in search
        done = subprocess.run(
            search, shell=True, env=environment(home), capture_output=True, text=True, timeout=60, check=True
        )
        assert "memory/note.md" in done.stdout
    finally:
        end(process)
    assert "No matches" in found.stdout
    note = f"memoryd: no daemon runs for the memory of {own}. To call another daemon: --state-dir '{state}'\n"
    assert (found.stderr, appended.stderr) == (note, note)
    assert len(list((own / "workspace" / "memory").iterdir())) == 1
    assert [file.name for file in (ferry / "memory").iterdir()] == ["note.md"]


@pytest.mark.slow
def test_a_killed_daemon_is_not_called_and_the_next_start_removes_it(home, tmp_path, ferry, crane):
    killed = start(ferry, tmp_path / "killed", home=home)
    end(killed.process, signal.SIGKILL)
    assert registered(home) == [str(tmp_path / "killed")]
    alone = memoryd("search", "ferry", home=home)
    assert "No matches" in alone.stdout
    assert memoryd("reload", home=home).returncode == 5
    with serving(crane, tmp_path / "state", home=home):
        wait_until(lambda: registered(home) == [str(tmp_path / "state")])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["variable", "flag", "workspace"])
def test_a_selected_memory_is_not_replaced_by_a_running_daemon(home, tmp_path, ferry, crane, how):
    flags = {"flag": ["--state-dir", tmp_path / "own"], "workspace": ["--workspace", crane], "variable": []}[how]
    variables = {"MEMORYD_WORKSPACE": str(crane)} if how == "variable" else {}
    with serving(ferry, tmp_path / "state", home=home):
        done = subprocess.run(
            [*COMMAND, "search", "ferry", *map(str, flags)],
            env={**environment(home), **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert "No matches" in done.stdout


@pytest.mark.slow
def test_a_registry_that_makes_no_sense_is_ignored(home, tmp_path, ferry):
    folder = home / REGISTRY
    folder.mkdir(parents=True)
    for name, text in {"a": "{", "b": "[]", "c": '{"state_dir": 7}', "d": '{"state_dir": "relative"}'}.items():
        (folder / f"{name}.json").write_text(text, "utf-8")
    (folder / "e.json").mkdir()
    with serving(ferry, tmp_path / "state", home=home):
        assert "memory/note.md" in memoryd("search", "ferry", home=home).stdout


@pytest.mark.slow
def test_a_daemon_whose_registry_cannot_be_written_serves(home, tmp_path, ferry):
    (home / ".local").write_text("a file, not a folder", "utf-8")
    with serving(ferry, tmp_path / "state", home=home) as daemon:
        assert "memory/note.md" in daemon.memoryd("search", "ferry").stdout


@pytest.mark.slow
def test_a_workspace_that_the_running_daemon_does_not_serve_is_refused(home, tmp_path, ferry, crane):
    with serving(ferry, tmp_path / "state", home=home) as daemon:
        done = daemon.memoryd("search", "crane", "--workspace", crane)
        assert done.returncode == 2
        assert f"the running daemon serves {ferry}, not {crane}" in done.stderr
        assert "memory/note.md" in daemon.memoryd("search", "ferry", "--workspace", ferry).stdout


def serve_with_example(home, workspace, state):
    """Start a daemon that prints commands to try; return the process and what it printed."""
    command = [*COMMAND, "serve", "--workspace", workspace, "--state-dir", state, "--listen", f"unix:{state}/m"]
    process = subprocess.Popen(
        [*map(str, command), "--example-query", "when's the ferry?"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    printed = []
    for line in iter(process.stdout.readline, ""):
        printed.append(line.rstrip("\n"))
        if line.startswith("Press Ctrl-C"):
            break
    return process, printed


@pytest.mark.slow
def test_the_printed_commands_work_as_they_are(home, tmp_path, ferry):
    process, printed = serve_with_example(home, ferry, tmp_path / "s")
    try:
        search, status, grpcurl = (line.strip() for line in printed if line.startswith("  "))
        for line, expected in ((search, "memory/note.md"), (status, "Agent main")):
            done = subprocess.run(
                line, shell=True, env=environment(home), capture_output=True, text=True, timeout=60, check=True
            )
            assert expected in done.stdout
        words = shlex.split(grpcurl)
        assert json.loads(words[words.index("-d") + 1]) == {"query": "when's the ferry?"}
        assert words[-2:] == [f"unix:{tmp_path}/s/m", "memoryd.v1.MemoryService/MemorySearch"]
    finally:
        end(process)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MEMORYD_WORKSPACE", "MEMORYD_CONFIG", "OPENCLAW_WORKSPACE_DIR"])
def test_a_note_is_not_written_to_another_workspace_than_a_variable_selects(home, tmp_path, ferry, crane, name):
    config = tmp_path / "crane.json5"
    config.write_text(json.dumps({"agents": {"defaults": {"workspace": str(crane)}}}), "utf-8")
    with serving(ferry, home / ".openclaw", home=home):
        done = subprocess.run(
            [*COMMAND, "append", "A note."],
            env={**environment(home), name: str(config if name == "MEMORYD_CONFIG" else crane)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert f"the running daemon serves {ferry}, not {crane}" in done.stderr
    assert [file.name for file in (ferry / "memory").iterdir()] == ["note.md"]


def test_a_registry_that_other_users_can_write_is_not_used(tmp_path):
    registry = tmp_path / "memoryd" / "daemons"
    register(registry, tmp_path / "state")
    assert list(registry.glob("*.json")) != []
    for folder in (registry, registry.parent):
        folder.chmod(0o777)
        with pytest.raises(PermissionError, match="other users can write this folder"):
            register(registry, tmp_path / "state")
        assert running_state_dirs(registry) == []
        folder.chmod(0o700)


def test_a_link_in_place_of_a_registration_is_not_followed(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("precious", "utf-8")
    registry = tmp_path / "memoryd" / "daemons"
    register(registry, tmp_path / "state")
    (file,) = registry.glob("*.json")
    file.unlink()
    for name in (file.name, f"{file.stem}.tmp"):
        (registry / name).symlink_to(precious)
    register(registry, tmp_path / "state")
    assert precious.read_text("utf-8") == "precious"
    assert not file.is_symlink()


def test_a_state_directory_that_does_not_answer_stops_no_command(tmp_path):
    registry, state = tmp_path / "memoryd" / "daemons", tmp_path / "state"
    state.mkdir()
    register(registry, state)
    os.mkfifo(state / "memoryd.endpoint.lock")
    assert running_state_dirs(registry) == []


def test_concurrent_probes_do_not_take_each_other_for_a_daemon(tmp_path):
    write_endpoint_file(tmp_path, ["unix:/m.sock"], LastReload())
    (tmp_path / "memoryd.endpoint.lock").touch()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: running_daemon(tmp_path), range(2000))) == {None}
    with endpoint_lock(tmp_path):
        assert running_daemon(tmp_path).pid == os.getpid()


@pytest.fixture
def notes(tmp_path):
    """A folder of notes as people keep them: no MEMORY.md and no memory/."""
    folder = tmp_path / "notes"
    (folder / "garden").mkdir(parents=True)
    (folder / "garden" / "tomato.md").write_text("# Garden\n\nTomatoes need water in July.\n", "utf-8")
    (folder / ".trash").mkdir()
    (folder / ".trash" / "old.md").write_text("Tomatoes were cheap.", "utf-8")
    return folder


def test_a_folder_of_notes_is_searched_without_a_daemon_and_without_settings(home, notes):
    done = memoryd("search", "--workspace", notes, "tomatoes", home=home)
    assert done.returncode == 0
    assert "garden/tomato.md:1-" in done.stdout
    assert ".trash" not in done.stdout
    assert f"init {notes}" in done.stderr
    assert not (home / ".openclaw").exists(), "the index of the user's own memory is not touched"


@pytest.mark.slow
def test_the_search_of_a_folder_sends_nothing_to_a_provider_of_the_own_memory(home, notes):
    own = home / ".openclaw"
    own.mkdir()
    # Nothing listens at this port, so that a call to it would be reported.
    remote = {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "remote": remote}
    (own / "memoryd.json5").write_text(json.dumps({"memory": {"search": search}}), "utf-8")
    done = memoryd("search", "--json", "--workspace", notes, "tomatoes", home=home)
    info = json.loads(done.stdout)["info"]
    assert (info["servedMode"], info["degradations"]) == ("SEARCH_MODE_KEYWORD", [])


@pytest.mark.slow
def test_the_search_of_a_folder_replaces_no_index(home, notes, tmp_path):
    workspace = workspace_of(home / ".openclaw" / "workspace", "The ferry leaves at nine.")
    memoryd("index", home=home)
    index = home / ".openclaw" / "memory" / "main.memoryd.sqlite"
    before = index.read_bytes()
    (home / "notes").symlink_to(notes)
    # A shell leaves the tilde in an option.
    for options in (["--workspace=~/notes"], ["--workspace", notes, "--state-dir", home / ".openclaw"]):
        assert "garden/tomato.md:1-" in memoryd("search", *options, "tomatoes", home=home).stdout
    assert index.read_bytes() == before
    assert "memory/note.md" in memoryd("search", "ferry", home=home).stdout
    folders = home / ".local" / "state" / "memoryd" / "folders"
    assert stat.S_IMODE(folders.stat().st_mode) == 0o700
    assert workspace.is_dir()


@pytest.mark.slow
def test_the_search_of_a_folder_sends_nothing_to_a_reranker(home, notes):
    # Nothing listens at this port, so that a call to it would be reported.
    variables = {"MEMORYD_RERANK__PROVIDER": "http", "MEMORYD_RERANK__BASE_URL": "http://127.0.0.1:9/rerank"}
    done = subprocess.run(
        [*COMMAND, "search", "--json", "--workspace", str(notes), "tomatoes"],
        env={**environment(home), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    info = json.loads(done.stdout)["info"]
    assert (info["degradations"], "reranking" in info) == ([], False)


@pytest.mark.slow
def test_the_search_of_a_folder_uses_no_database_of_the_own_memory(home, notes):
    # No server listens there.
    variables = {"MEMORYD_STORE__URL": f"postgresql://memoryd@/memoryd?host={notes}"}
    done = subprocess.run(
        [*COMMAND, "search", "--workspace", str(notes), "tomatoes"],
        env={**environment(home), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "garden/tomato.md:1-" in done.stdout


def test_a_wrong_workspace_is_an_error(home, tmp_path):
    done = memoryd("search", "--workspace", tmp_path / "nots", "tomatoes", home=home)
    assert done.returncode == 2
    assert "nots is not a folder; give the folder of your notes" in done.stderr


@pytest.mark.slow
def test_serve_warns_of_a_workspace_of_which_nothing_is_indexed(home, tmp_path, notes):
    (notes / "bikes.md").write_text("The chain was replaced.", "utf-8")
    with serving(notes, tmp_path / "state", home=home):
        log = (home / "daemon.log").read_text("utf-8")
    assert "has no MEMORY.md, USER.md or memory/" in log
    assert f"init {notes}" in log
