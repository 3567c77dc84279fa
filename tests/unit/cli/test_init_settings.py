"""The settings file that `memoryd init` writes, and the folders that it counts."""

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import json5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_providers import OllamaServer
from memoryd_server.cli.init_discovery import likely_folders, survey_folder
from memoryd_server.cli.init_embedding import (
    ConfiguredProvider,
    find_ollama_models,
    no_provider,
    ollama_provider,
    remote_provider,
)
from memoryd_server.cli.init_settings import (
    ALL_FILES,
    InitialSettings,
    includes_untrusted,
    keep_copy,
    write_settings,
)
from memoryd_server.errors import SettingsError
from memoryd_server.settings import ProviderAccess, load

NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0/"), min_size=1).filter(
    lambda name: name not in {".", ".."}
)


@given(NAMES, st.booleans(), st.sampled_from(["", "none", "local", "ollama"]), NAMES)
def test_any_folder_and_model_are_read_back(name, all_files, provider, model):
    paths = [(".", ALL_FILES)] if all_files else []
    content = json5.loads(InitialSettings(Path("/notes", name), paths, provider, model).text())
    assert content["agents"]["defaults"]["workspace"].replace("$${", "${") == f"/notes/{name}"
    search = content.get("memory", {}).get("search", {})
    assert search.get("provider", "") == provider
    assert ("extraPaths" in search) == all_files
    written = search.get("local", {}).get("modelPath") if provider == "local" else search.get("model")
    assert (written or "").replace("$${", "${") == model


def test_a_variable_in_a_name_is_not_replaced(tmp_path):
    write_settings(tmp_path / ".openclaw" / "memoryd.json5", InitialSettings(tmp_path / "${HOME}").text())
    assert load(environ={"HOME": "/x"}, home=tmp_path).agents["main"].workspace == tmp_path / "${HOME}"


def test_other_values_of_an_existing_file_are_kept():
    previous = {
        "memoryd": {"confirmAboveTokens": 10},
        "memory": {
            "search": {"provider": "openai", "model": "m", "local": {"modelCacheDir": "/c"}, "remote": {"a": 1}}
        },
        "agents": {"defaults": {"userTimezone": "UTC"}},
    }
    same = json5.loads(InitialSettings(provider="openai").text(previous))
    assert same == previous
    local = json5.loads(InitialSettings(Path("/n"), (), "local", "/m.gguf").text(previous))
    assert local["agents"] == {"defaults": {"userTimezone": "UTC", "workspace": "/n"}}
    # The model is that of the former provider.
    assert local["memory"]["search"] == {
        "provider": "local",
        "local": {"modelCacheDir": "/c", "modelPath": "/m.gguf"},
        "remote": {"a": 1},
    }
    assert previous["memory"]["search"]["model"] == "m"


def test_recall_of_untrusted_text_is_added_to_an_existing_block_and_explained():
    previous = {"memoryd": {"confirmAboveTokens": 10, "recall": {"maxTokens": 500}}}
    text = InitialSettings(include_untrusted=True).text(previous)
    written = json5.loads(text)
    assert written == {"memoryd": {"confirmAboveTokens": 10, "recall": {"maxTokens": 500, "includeUntrusted": True}}}
    assert "// memoryd.recall.includeUntrusted: " in text
    # A second run keeps the value and its explanation.
    assert InitialSettings().text(written) == text
    assert includes_untrusted(written) is True
    written["memoryd"]["recall"]["includeUntrusted"] = False
    assert includes_untrusted(written) is False
    assert "//" not in InitialSettings().text(written).partition("\n")[2]


@pytest.mark.parametrize("values", [None, {}, {"memoryd": 5}, {"memoryd": {"recall": []}}, {"memoryd": {"recall": {}}}])
def test_settings_without_the_key_do_not_say_whether_untrusted_text_is_recalled(values):
    assert includes_untrusted(values) is None


@pytest.mark.parametrize("older", [False, True])
def test_the_settings_are_in_force(tmp_path, older):
    state = tmp_path / ".openclaw"
    initial = InitialSettings(
        tmp_path / "notes", [(".", ALL_FILES)], provider="none", older=older, include_untrusted=True
    )
    write_settings(state / "memoryd.json5", initial.text())
    settings = load(environ={}, home=tmp_path)
    agent = settings.agents["main"]
    assert settings.warnings == ()
    assert (agent.workspace, agent.memory_search.provider) == (tmp_path / "notes", "none")
    assert [extra.pattern for extra in agent.memory_search.extra_paths] == ["**/*.md"]
    assert settings.layout == ("older" if older else "current")
    assert settings.service.recall.include_untrusted


def test_a_settings_file_is_replaced_in_one_step_and_its_copy_is_private(tmp_path):
    file = tmp_path / "s" / "memoryd.json5"
    write_settings(file, "{}\n")
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    copy = keep_copy(file, time)
    write_settings(file, "{memoryd: {}}\n")
    second = keep_copy(file, time)
    assert (copy.name, copy.read_text("utf-8")) == ("memoryd.json5.20260102-030405.bak", "{}\n")
    assert (second.name, second.read_text("utf-8")) == ("memoryd.json5.20260102-030405-2.bak", "{memoryd: {}}\n")
    assert {stat.S_IMODE(each.stat().st_mode) for each in (file, copy, second)} == {0o600}
    assert {each.name for each in file.parent.iterdir()} == {file.name, copy.name, second.name}


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "s").write_text("a file", "utf-8")
    with pytest.raises(SettingsError, match=r"cannot write .*memoryd\.json5"):
        write_settings(tmp_path / "s" / "memoryd.json5", "{}")


def test_markdown_files_are_counted_by_what_indexes_them(tmp_path):
    files = {
        "MEMORY.md": 8,
        "memory/2026-01-01.md": 400,
        "memory/deep/a.md": 40,
        "projects/a.md": 4000,
        "MEMORY.txt": 1,
        ".obsidian/b.md": 1,
        "node_modules/x/README.md": 1,
    }
    for name, size in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * size, "utf-8")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = survey_folder(tmp_path)
    assert (found.memory_files, found.other_files, found.has_memory, found.complete) == (3, 2, True, True)
    assert (found.tokens(all_files=False), found.tokens(all_files=True)) == (112, 1112)
    assert found.text() == "5 Markdown files"


def test_folders_in_which_people_keep_notes_are_found_once(tmp_path):
    for name, file in {"notes": "a.md", "Documents/Notes": "b.md", "Notes": "c.txt"}.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / file).touch()
    assert likely_folders(tmp_path) == [tmp_path / "notes", tmp_path / "Documents" / "Notes"]
    assert likely_folders(tmp_path / "missing") == []


def test_ollamas_models_are_listed_without_sending_a_text():
    server = OllamaServer()
    try:
        server.pulled = {"llama3:8b", "nomic-embed-text"}
        models = find_ollama_models(server.url)
        assert ollama_provider(models).model == "nomic-embed-text"
        assert (ollama_provider(models).problem, server.texts) == ("", [])
        server.pulled = {"llama3:8b"}
        assert "ollama pull nomic-embed-text" in ollama_provider(find_ollama_models(server.url)).problem
        assert not ollama_provider(models, server.url).leaves_machine
    finally:
        server.close()
    assert find_ollama_models(server.url) is None
    assert "no Ollama answers" in ollama_provider(None).problem


@pytest.mark.parametrize("address", ["http://192.0.2.1:11434", "http://ollama.example:11434"])
def test_an_ollama_on_another_machine_or_a_cloud_model_has_to_be_confirmed(address):
    remote = ollama_provider(["nomic-embed-text:latest"], address)
    assert remote.leaves_machine
    assert remote.sends == f"notes, session transcripts and queries to {address.removeprefix('http://')}"
    assert ollama_provider(["some-embed:cloud"]).leaves_machine


def test_an_answer_that_is_not_ollamas_is_no_ollama():
    server = OllamaServer()
    try:
        assert find_ollama_models(f"{server.url}/elsewhere") is None
    finally:
        server.close()


@pytest.mark.parametrize(
    ("tokens", "cost"),
    [
        (120_000, "less than $0.01 for these notes ($0.02 per million tokens)"),
        (9_000_000, "about $0.18 for these notes ($0.02 per million tokens)"),
    ],
)
def test_a_remote_provider_says_its_cost_and_where_it_sends_what(tokens, cost):
    access = ProviderAccess(keys=("k",), key_from="env OPENAI_API_KEY")
    choice = remote_provider("openai", ConfiguredProvider(access, ""), tokens)
    assert (choice.cost, choice.leaves_machine) == (cost, True)
    assert choice.sends == "notes, session transcripts and queries to api.openai.com, with the key in OPENAI_API_KEY"
    access = ProviderAccess(base_url="https://me:secret@proxy.example/v1", keys=("k",))
    elsewhere = remote_provider("openai", ConfiguredProvider(access, "text-embedding-3-large"), tokens)
    assert elsewhere.sends == "notes, session transcripts and queries to proxy.example"
    assert (elsewhere.model, elsewhere.cost) == ("text-embedding-3-large", "see the prices of the provider")
    assert json.dumps([no_provider().sends, no_provider().cost]) == '["nothing", "free"]'


def test_a_remote_provider_without_a_key_names_the_variable():
    assert (
        remote_provider("voyage", ConfiguredProvider(ProviderAccess(), ""), 1).problem
        == "there is no key; set VOYAGE_API_KEY"
    )
