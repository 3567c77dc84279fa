"""An agent's configuration: which changes an open memory takes over, and what a failed reload keeps."""

import json
from dataclasses import replace

import pytest

from memoryd_server.app.config import agent_config
from memoryd_server.entries.model import EntryConfig
from memoryd_server.qmd.config import QmdConfig
from memoryd_server.settings.loading import load


@pytest.fixture
def config_of(tmp_path):
    def config_of(**blocks):
        state = tmp_path / "state"
        state.mkdir(exist_ok=True)
        (state / "memoryd.json5").write_text(json.dumps(blocks), "utf-8")
        flags = {"workspace": str(tmp_path / "workspace"), "state_dir": str(state)}
        settings = load(environ={}, home=tmp_path, flags=flags)
        return agent_config(settings.agents["main"], settings)

    return config_of


QMD = {"backend": "qmd"}
ENTRIES = {"entries": {"enabled": True}}


def test_every_agent_has_the_configuration_of_entries_and_only_one_with_qmd_that_of_qmd(config_of):
    builtin, qmd = config_of(), config_of(memory=QMD)
    assert isinstance(EntryConfig.from_plugins(builtin.plugins), EntryConfig)
    assert QmdConfig.of(builtin.plugins) is None
    assert builtin.backend is None
    assert QmdConfig.of(qmd.plugins) is qmd.backend is not None


def test_an_open_memory_takes_over_an_extension_and_no_other_search_backend(config_of):
    builtin, qmd = config_of(), config_of(memory=QMD)
    assert builtin.can_become(config_of(memoryd=ENTRIES))
    assert qmd.can_become(config_of(memory=QMD, memoryd=ENTRIES))
    assert not qmd.can_become(config_of(memory={**QMD, "qmd": {"limits": {"maxResults": 3}}}))
    assert not qmd.can_become(builtin)
    assert not builtin.can_become(qmd)


def test_old_settings_with_new_providers_keep_their_search_backend(config_of):
    old, new = config_of(memory=QMD), config_of(memoryd=ENTRIES)
    kept = old.with_providers_of(new)
    assert kept.backend == old.backend
    assert (
        EntryConfig.from_plugins(kept.plugins)
        == EntryConfig.from_plugins(new.plugins)
        != EntryConfig.from_plugins(old.plugins)
    )
    assert replace(kept, plugins=old.plugins, embedding=old.embedding) == old
    assert new.with_providers_of(old).backend is None
