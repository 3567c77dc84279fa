"""What a migration by `openclaw doctor --fix` changes in the settings of memoryd, and that it changes nothing else.

`doctor_fix.json` has documents before and after a run of OpenClaw 2026.9.6; only keys that do not concern memory were
removed from them.
"""

import json
from pathlib import Path

import pytest

CASES = json.loads(Path(__file__).with_name("doctor_fix.json").read_text(encoding="utf-8"))

# Where OpenClaw has no such setting any more, memoryd's default counts; memoryd.json5 can set the key.
REMOVED = {
    "remote.batch.wait": (False, True),
    "remote.batch.concurrency": (4, 2),
    "remote.batch.pollIntervalMs": (500, 2000),
    "remote.batch.timeoutMinutes": (5, 60),
    "remote.nonBatchConcurrency": (2, None),
    "local.modelCacheDir": ("{home}/models", None),
    "store.path": ("{home}/index/{agent}.sqlite", "{state}/memory/{agent}.memoryd.sqlite"),
    "chunking.tokens": (200, 400),
    "chunking.overlap": (20, 80),
    "sync.onSearch": (False, True),
    "sync.watch": (False, True),
    "sync.watchDebounceMs": (100, 1500),
    "sync.intervalMinutes": (5, 0),
    "query.hybrid.vectorWeight": (0.5, 0.7),
    "query.hybrid.textWeight": (0.5, 0.3),
    "query.hybrid.candidateMultiplier": (8, 4),
    "cache.maxEntries": (100, 50_000),
}
REMEMBERS = {"rememberAcrossConversations": (False, True)}
# OpenClaw uses OpenAI; memoryd waits for a provider that is named.
NO_PROVIDER = {**REMEMBERS, "provider": ("auto", "none"), "remote.batch.enabled": (True, False)}


def of_agents(table, *agents):
    return {f"agents.list[{agent}].memorySearch.{key}": row for agent in agents for key, row in table.items()}


TABLES = {
    "every key": {
        **of_agents({**REMOVED, **REMEMBERS}, "main", "work", "home"),
        "agents.defaults.compaction.reserveTokensFloor": (10_000, None),
        "agents.defaults.compaction.memoryFlush.prompt": ("Write notes.", None),
        "agents.defaults.compaction.memoryFlush.systemPrompt": ("Be brief.", None),
        # The rule of OpenClaw for an agent without a workspace has changed.
        "agents.list[home].workspace": ("{state}/workspace-home", "{home}/notes/home"),
    },
    "qmd and auto": {
        "memory.backend": ("qmd", "builtin"),
        "memory.qmd.paths": (
            [
                {"path": "~/q", "pattern": "**/*.md", "name": "q"},
                {"path": "~/r", "pattern": "**/*.md", "name": None},
            ],
            [],
        ),
        "memory.qmd.sessions.enabled": (True, False),
        **of_agents(
            {
                **REMEMBERS,
                "experimental.sessionMemory": (False, True),
                "sources": (["memory"], ["memory", "sessions"]),
                "provider": ("auto", "openai"),
                "model": ("", "text-embedding-3-small"),
                "remote.batch.enabled": (True, False),
            },
            "third-one",
        ),
    },
    "no provider and no default agent": {
        **of_agents(NO_PROVIDER, "alpha", "beta"),
        # A request that names no agent is refused.
        "agents.list[alpha].default": (True, False),
        "agents.list[alpha].access.openai": ({"keys": ["***"]}, None),
        "agents.list[beta].access.openai": ({"keys": ["***"]}, None),
    },
}


def filled(home, key, value):
    if not isinstance(value, str):
        return value
    agent = key.partition("[")[2].partition("]")[0]
    return value.replace("{home}", str(home.path)).replace("{state}", str(home.state)).replace("{agent}", agent)


@pytest.mark.parametrize("name", CASES)
def test_doctor_changes_the_settings_of_the_table_and_no_others(home, name):
    home.environ.update(OPENAI_TEST_KEY="k")
    if name != "every key":
        home.environ["OPENAI_API_KEY"] = "k"
    before, after = (
        {entry["key"]: entry["value"] for entry in home.load(CASES[name][when]).describe()}
        for when in ("before", "after")
    )
    changed = {
        key: (before.get(key), after.get(key)) for key in {**before, **after} if before.get(key) != after.get(key)
    }
    moved = changed.pop("agents.list[third-one].memorySearch.extraPaths", ([], ["~/r"]))
    assert "~/r" in str(moved[1])
    assert changed == {key: tuple(filled(home, key, value) for value in row) for key, row in TABLES[name].items()}


@pytest.mark.parametrize("name", CASES)
def test_doctor_changes_the_layout_and_blocks_nothing(home, name):
    home.environ.update(OPENAI_TEST_KEY="k")
    before, after = (home.load(CASES[name][when]) for when in ("before", "after"))
    assert (before.layout, after.layout) == ("older", "current")
    assert list(before.agents) == list(after.agents)
    assert after.remote_embeddings_blocked_by == ()
