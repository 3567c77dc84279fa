"""`memoryd init`: from nothing to a first answer."""

import json
import shutil
import stat
import subprocess

import pytest

from daemon_process import COMMAND, environment, memoryd, serving
from fake_providers import OllamaServer, OpenAIServer
from terminal import converse


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def notes(tmp_path):
    """A folder of notes as people keep them: no MEMORY.md and no memory/."""
    folder = tmp_path / "my notes"
    (folder / "garden").mkdir(parents=True)
    (folder / "garden" / "tomato.md").write_text("# Garden\n\nTomatoes need water in July.\n", "utf-8")
    (folder / "bikes.md").write_text("# Bikes\n\nThe chain was replaced in May.\n", "utf-8")
    (folder / ".trash").mkdir()
    (folder / ".trash" / "old.md").write_text("Tomatoes were cheap.", "utf-8")
    return folder


def own_settings(home):
    return home / ".openclaw" / "memoryd.json5"


def init(*arguments, home, variables=()):
    return subprocess.run(
        [*COMMAND, "init", *map(str, arguments)],
        env={**environment(home), **dict(variables)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.slow
def test_a_folder_of_notes_is_found_indexed_and_searched(home, notes):
    done = init(notes, "--query", "when do tomatoes need water?", home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Found 2 Markdown files in {notes}." in done.stdout
    assert "garden/tomato.md:1-" in done.stdout
    for step in ("service install", "search", "OpenClaw:", "MCP:", "grpcurl -plaintext"):
        assert step in done.stdout.partition("Next:")[2]
    assert stat.S_IMODE(own_settings(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(own_settings(home).parent.stat().st_mode) == 0o700
    assert "MEMORY.md" not in {file.name for file in notes.iterdir()}, "no file of the user is written"
    # From now on, without any flag.
    assert "garden/tomato.md:1-" in memoryd("search", "tomatoes", home=home).stdout
    assert ".trash" not in memoryd("files", home=home).stdout
    # The owner of the folder has chosen it as the memory.
    assert f"set it to false in {own_settings(home)}." in done.stdout
    assert "Tomatoes need water in July." in memoryd("recall", "When do tomatoes need water?", home=home).stdout


@pytest.mark.slow
def test_existing_settings_are_used_and_replaced_only_by_force(home, notes):
    assert init(notes, home=home).returncode == 0
    before = own_settings(home).read_text("utf-8")
    again = init(home=home)
    assert (again.returncode, f"Using the settings in {own_settings(home)}." in again.stdout) == (0, True)
    refused = init(notes, home=home)
    assert refused.returncode == 2
    assert f"already sets up the workspace {notes}; for another memory, add --state-dir DIR" in refused.stderr
    assert own_settings(home).read_text("utf-8") == before
    # The folder and what is indexed of it stay, although notes that an agent wrote are there by now.
    (notes / "memory").mkdir()
    (notes / "memory" / "2026-01-01.md").write_text("The agent met Ilse.", "utf-8")
    forced = init("--force", "--embedding", "none", home=home)
    assert forced.returncode == 0
    assert own_settings(home).read_text("utf-8") == before
    assert "add --force, which keeps a copy" in refused.stderr
    (copy,) = own_settings(home).parent.glob("memoryd.json5.*.bak")
    assert copy.read_text("utf-8") == before


@pytest.mark.slow
def test_recall_of_the_files_of_a_folder_stays_off_if_its_owner_turned_it_off(home, notes):
    assert init(notes, home=home).returncode == 0
    text = own_settings(home).read_text("utf-8")
    off = text.replace('"includeUntrusted": true', '"includeUntrusted": false')
    assert off != text
    own_settings(home).write_text(off, "utf-8")
    forced = init("--force", home=home)
    assert (forced.returncode, "includeUntrusted" in forced.stdout) == (0, False)
    assert '"includeUntrusted": false' in own_settings(home).read_text("utf-8")
    silent = memoryd("recall", "When do tomatoes need water?", home=home)
    assert (silent.returncode, silent.stdout) == (0, "")
    assert "memoryd.recall.includeUntrusted is false" in silent.stderr
    # Settings without the key, of a folder of notes, get it.
    own_settings(home).write_text(off.replace('"includeUntrusted": false', ""), "utf-8")
    assert init("--force", home=home).returncode == 0
    assert own_settings(home).read_text("utf-8") == text


@pytest.mark.slow
def test_recall_leaves_out_the_other_files_of_the_workspace_of_an_agent(home, notes):
    (notes / "memory").mkdir()
    (notes / "memory" / "2026-01-01.md").write_text("The agent met Ilse at the harbour.", "utf-8")
    done = init(notes, "--all-files", home=home)
    assert done.returncode == 0
    assert f"To include the other files, set memoryd.recall.includeUntrusted to true in {own_settings(home)}." in (
        done.stdout
    )
    assert "includeUntrusted" not in own_settings(home).read_text("utf-8")
    assert "Tomatoes" in memoryd("search", "tomatoes water", home=home).stdout
    assert memoryd("recall", "When do tomatoes need water?", home=home).stdout == ""
    assert "Ilse" in memoryd("recall", "Who did the agent meet at the harbour?", home=home).stdout


@pytest.mark.slow
def test_without_a_folder_and_without_openclaw_an_empty_memory_is_created(home):
    done = init(home=home)
    assert (done.returncode, "includeUntrusted" in own_settings(home).read_text("utf-8")) == (0, False)
    workspace = home / ".openclaw" / "workspace"
    assert f"The memory is in {workspace} (no Markdown files)." in done.stdout
    assert "Add a note: " in done.stdout
    assert workspace.is_dir()
    assert memoryd("append", "The harbour master is called Ilse.", home=home).returncode == 0
    assert "Ilse" in memoryd("search", "harbour master", home=home).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "openclaw"),
    [
        ("older", {"agents": {"list": [{"id": "main"}]}}),
        ("current", {"agents": {"entries": {"main": {}}}}),
    ],
)
def test_openclaws_workspace_is_used_and_no_provider_is_chosen_for_it(home, layout, openclaw):
    state = home / ".openclaw"
    (state / "workspace" / "memory").mkdir(parents=True)
    (state / "workspace" / "memory" / "a.md").write_text("# Falcon launch\n\nOn Monday.\n", "utf-8")
    file = state / "openclaw.json"
    file.write_text(json.dumps(openclaw), "utf-8")
    # With the older layout, `auto` would use the key.
    done = init(home=home, variables={"OPENAI_API_KEY": "sk-of-this-test"})
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Found OpenClaw: {file}" in done.stdout
    assert "search 'Falcon launch'" in done.stdout
    assert json.loads(file.read_text("utf-8")) == openclaw
    assert "includeUntrusted" not in own_settings(home).read_text("utf-8")
    shown = json.loads(memoryd("config", "--json", home=home).stdout)["settings"]
    (provider,) = [each for each in shown if each["key"].endswith("memorySearch.provider")]
    assert (provider["value"], provider["layout"]) == ("none", layout)


@pytest.fixture
def openclaw_with_provider(home):
    """An OpenClaw home whose `openai` is a server on loopback."""
    server = OpenAIServer()
    state = home / ".openclaw"
    (state / "workspace" / "memory").mkdir(parents=True)
    (state / "workspace" / "memory" / "a.md").write_text("The heron nests by the weir.", "utf-8")
    settings = {"agents": {"entries": {"main": {}}}, "models": {"providers": {"openai": {"baseUrl": server.url}}}}
    (state / "openclaw.json").write_text(json.dumps(settings), "utf-8")
    yield server
    server.close()


KEY = {"OPENAI_API_KEY": "sk-of-this-test"}


@pytest.mark.slow
def test_a_chosen_provider_is_called_once_and_then_written(home, openclaw_with_provider):
    done = init("--embedding", "openai", "--json", home=home, variables=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["written"], report["embedding"]["provider"], report["embedding"]["dimensions"] > 0) == (
        True,
        "openai",
        True,
    )
    assert report["search"]["info"]["servedMode"] == "SEARCH_MODE_HYBRID"
    assert KEY["OPENAI_API_KEY"] not in own_settings(home).read_text("utf-8")
    assert openclaw_with_provider.asked["The heron nests by the weir."] == 1


def test_a_provider_that_does_not_work_is_not_written(home, openclaw_with_provider):
    openclaw_with_provider.keys.add("another-key")
    done = init("--embedding", "openai", home=home, variables=KEY)
    assert done.returncode == 1
    assert "openai does not work: " in done.stderr
    assert "Nothing was written" in done.stderr
    assert sorted(file.name for file in own_settings(home).parent.iterdir()) == ["openclaw.json", "workspace"]
    assert "The heron nests by the weir." not in openclaw_with_provider.asked


def test_at_a_terminal_a_key_is_used_only_after_a_yes(home, openclaw_with_provider):
    host = openclaw_with_provider.url.removeprefix("http://").removesuffix("/v1")
    answers = [
        ("Which one?", "3"),
        (
            f"This sends notes, session transcripts and queries to {host}, with the key in OPENAI_API_KEY. Continue?",
            "n",
        ),
        ("Which one?", "1"),
        ("Search for", "heron"),
    ]
    code, shown = converse("init", home=home, answers=answers, variables=KEY)
    assert code == 0
    assert "see the prices of the provider" in shown
    assert "memory/a.md:1-" in shown
    assert openclaw_with_provider.requests == []
    assert '"none"' in own_settings(home).read_text("utf-8")


@pytest.mark.slow
def test_at_a_terminal_the_folder_is_asked_for_until_it_exists(home, notes):
    likely = home / "notes"
    likely.mkdir()
    (likely / "a.md").write_text("short", "utf-8")
    question = f"Enter a number from 1 to 1, or a folder; empty starts a new memory in {home}/.openclaw/workspace"
    answers = [(question, home / "nots"), (question, notes), ("Which one?", ""), ("Search for", "")]
    code, shown = converse("init", home=home, answers=answers)
    assert code == 0
    assert f"1. {likely}: 1 Markdown file" in shown
    assert f"{home}/nots is not a folder." in shown
    assert f"Wrote {own_settings(home)}." in shown


@pytest.mark.slow
def test_a_setting_that_sends_nothing_stays_when_the_settings_are_changed(home, openclaw_with_provider):
    assert init(home=home, variables=KEY).returncode == 0
    done = init("--force", home=home, variables=KEY)
    assert done.returncode == 0
    assert "Embedding provider: none, as in the settings." in done.stdout
    assert openclaw_with_provider.requests == []


@pytest.mark.slow
def test_what_openclaw_indexes_is_neither_widened_nor_narrowed(home, tmp_path):
    state = home / ".openclaw"
    for name in ("memory/a.md", "public/p.md", "private/s.md"):
        (state / "workspace" / name).parent.mkdir(parents=True, exist_ok=True)
        (state / "workspace" / name).write_text(f"# Heron {name}\n", "utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "o.md").write_text("# Heron elsewhere\n", "utf-8")
    paths = [{"path": ".", "pattern": "public/**/*.md"}, str(tmp_path / "other")]
    search = {"provider": "none", "extraPaths": paths}
    (state / "openclaw.json").write_text(json.dumps({"memory": {"search": search}}), "utf-8")
    assert init(home=home).returncode == 0
    listed = json.loads(memoryd("files", "--json", home=home).stdout)
    assert sorted(file["path"].rpartition("/")[2] for file in listed) == ["a.md", "o.md", "p.md"]


@pytest.mark.slow
def test_an_ollama_on_another_address_is_named_and_confirmed(home):
    server = OllamaServer()
    try:
        state = home / ".openclaw"
        (state / "workspace" / "memory").mkdir(parents=True)
        (state / "workspace" / "memory" / "a.md").write_text("The heron nests by the weir.", "utf-8")
        providers = {"ollama": {"baseUrl": server.url, "models": []}}
        settings = {"agents": {"entries": {"main": {}}}, "models": {"providers": providers}}
        (state / "openclaw.json").write_text(json.dumps(settings), "utf-8")
        done = init("--embedding", "ollama", "--json", home=home)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["embedding"]["model"] == "nomic-embed-text"
        assert sum(text.endswith("The heron nests by the weir.") for text in server.texts) == 1
    finally:
        server.close()


@pytest.mark.parametrize("name", ["MEMORYD_WORKSPACE", "MEMORYD_ADDRESS"])
def test_a_variable_that_overrides_the_new_settings_is_refused(home, notes, name):
    done = init(notes, home=home, variables={name: str(notes)})
    assert done.returncode == 2
    assert f"{name} is set and overrides what init sets up; unset it" in done.stderr
    assert not own_settings(home).exists()


@pytest.mark.slow
def test_a_daemon_that_serves_another_workspace_is_no_success(home, notes, tmp_path):
    (tmp_path / "ferry" / "memory").mkdir(parents=True)
    with serving(tmp_path / "ferry", home / ".openclaw", home=home):
        done = init(notes, home=home)
    assert done.returncode == 2
    assert f"the running daemon serves {tmp_path / 'ferry'} for agent main" in done.stderr


@pytest.mark.slow
def test_a_settings_file_of_another_name_is_created_and_named_in_the_next_steps(home, notes, tmp_path):
    file = tmp_path / "mine.json5"
    done = init(notes, "--config", file, home=home)
    assert done.returncode == 0, done.stderr
    assert file.exists()
    assert f"search --config {file}" in done.stdout


@pytest.mark.slow
def test_a_linked_settings_file_stays_a_link(home, notes, tmp_path):
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "memoryd.json5").write_text("{memoryd: {log: {level: 'error'}}}", "utf-8")
    own_settings(home).parent.mkdir()
    own_settings(home).symlink_to(tmp_path / "dotfiles" / "memoryd.json5")
    assert init(notes, "--force", home=home).returncode == 0
    assert own_settings(home).is_symlink()
    assert '"level": "error"' in (tmp_path / "dotfiles" / "memoryd.json5").read_text("utf-8")


@pytest.mark.slow
def test_a_long_heading_and_control_characters_do_not_disturb(home, notes):
    (notes / "zzz.md").write_text("# " + "long \x1b[31m heading " * 2000, "utf-8")
    done = init(notes, home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_odd_answers_and_closed_streams_are_no_crash(home, notes):
    question = "Where are your notes?"
    answers = [(question, "\u00b2"), (question, "~nobody-with-this-name/x"), (question, "x" * 300), (question, notes)]
    code, shown = converse(
        "init", home=home, answers=[*answers, ("Which one?", "\u00b2"), ("Which one?", "1"), ("for", "")]
    )
    assert (code, "Traceback" in shown) == (0, False)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "init"],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_failed_setup_leaves_no_workspace(home, openclaw_with_provider):
    openclaw_with_provider.keys.add("another-key")
    workspace = home / ".openclaw" / "workspace"
    shutil.rmtree(workspace)
    assert init("--embedding", "openai", home=home, variables=KEY).returncode == 1
    assert not workspace.exists()


MISTAKES = {
    "no such folder": (["{tmp}/nots"], "nots does not exist; give the folder that contains your Markdown files"),
    "a file": (["{tmp}/my notes/bikes.md"], "Directory '{tmp}/my notes/bikes.md' is a file."),
    "no key": (["{tmp}/my notes", "--embedding", "voyage"], "there is no key; set VOYAGE_API_KEY"),
    "a missing model": (
        ["{tmp}/my notes", "--embedding", "local", "--model", "{tmp}/none.gguf"],
        "none.gguf is missing. Nothing was written",
    ),
    "a model without a provider": (["--model", "x"], "--model requires --embedding with a provider"),
    "two folders": (["{tmp}", "--workspace", "{tmp}/my notes"], "FOLDER and --workspace name two folders"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained_and_writes_nothing(home, notes, tmp_path, mistake):
    arguments, expected = MISTAKES[mistake]
    if "local" in arguments:
        pytest.importorskip("llama_cpp", reason="`make setup-local` installs llama.cpp")
    done = init(*(each.format(tmp=tmp_path) for each in arguments), home=home)
    assert done.returncode in {1, 2}
    assert expected.format(tmp=tmp_path) in done.stderr
    assert not own_settings(home).exists()


@pytest.mark.slow
def test_a_running_daemon_uses_the_new_settings_immediately(home, notes):
    with serving(None, home / ".openclaw", home=home):
        done = init(notes, "--query", "tomatoes", home=home)
        assert done.returncode == 0
        assert "garden/tomato.md:1-" in done.stdout
        assert "service install" not in done.stdout


@pytest.mark.slow
def test_openclaws_workspace_is_not_replaced_by_another_folder(home, notes):
    state = home / ".openclaw"
    state.mkdir()
    (state / "openclaw.json").write_text("{}", "utf-8")
    done = init(notes, home=home)
    assert done.returncode == 2
    assert f"sets the workspace {state}/workspace; to search {notes} as well, add it to" in done.stderr
