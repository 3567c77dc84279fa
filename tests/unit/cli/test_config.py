"""`memoryd config` shows from which file, key and layout a setting comes."""

import json

import pytest
from click.testing import CliRunner

from memoryd_server.cli.status import config


@pytest.fixture
def run(tmp_path):
    search = {"memory": {"search": {"provider": "none"}}, "memoryd": {"reconcileSeconds": 30}}
    (tmp_path / "openclaw.json").write_text(json.dumps(search))
    (tmp_path / "memoryd.json5").write_text('{agents: {defaults: {memorySearch: {model: "m"}}}}')

    def run(*arguments):
        done = CliRunner().invoke(config, ["--state-dir", str(tmp_path), *arguments], env={"MEMORYD_CONFIG": None})
        assert done.exit_code == 0
        return done.stdout

    return run


def test_each_line_names_the_file_the_key_and_the_layout(run, tmp_path):
    lines = {line.split()[0]: line for line in run().splitlines() if line.strip()}
    provider = lines["agents.list[main].memorySearch.provider"]
    assert provider.endswith(f"none  ({tmp_path}/openclaw.json, memory.search.provider, current layout)")
    model = lines["agents.list[main].memorySearch.model"]
    assert model.endswith(f"m  ({tmp_path}/memoryd.json5, agents.defaults.memorySearch.model, older layout)")
    assert lines["memoryd.reconcileSeconds"].endswith(f"30.0  ({tmp_path}/openclaw.json)")


def test_json_has_the_key_in_the_file_and_the_layout(run, tmp_path):
    shown = {entry["key"]: entry for entry in json.loads(run("--json"))["settings"]}
    assert shown["agents.list[main].memorySearch.provider"] == {
        "key": "agents.list[main].memorySearch.provider",
        "value": "none",
        "origin": f"{tmp_path}/openclaw.json",
        "writtenAs": "memory.search.provider",
        "layout": "current",
    }
