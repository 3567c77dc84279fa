"""Which settings disable remote embeddings because memoryd does not understand them, and which do not."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.settings.layers import Blocker, RefusedSettings
from memoryd_server.settings.loading import load
from memoryd_server.settings.resolved import changed_keys
from properties import examples

SECRET = {"source": "env", "provider": "default", "id": "X"}
ENTRIES = "memory-lancedb"


@pytest.fixture(autouse=True)
def keys(home):
    """Every provider that `auto` may choose could be used."""
    home.environ.update({f"{name}_API_KEY": "k" for name in ("OPENAI", "GEMINI", "VOYAGE", "MISTRAL")})


def blocked_by(loaded):
    return [blocker.where for blocker in loaded.remote_embeddings_blocked_by]


def defaults(**keys):
    return {"agents": {"defaults": keys}}


def search(**keys):
    return defaults(memorySearch=keys)


def provider(name, **block):
    return {"models": {"providers": {name: block}}}


def plugin(name, entry, **more):
    return {"plugins": {"entries": {name: entry}, **more}}


BLOCKING = [
    # The current layout
    ({"agents": {"entries": {"a": {"memorySearch": {}}}}}, "agents.entries.a.memorySearch"),
    ({"agents": {"entries": {"a": {"enabled": False}}}}, "agents.entries.a.enabled"),
    ({"agents": {"entries": {"a": {"provider": "none"}}}}, "agents.entries.a.provider"),
    ({"agents": {"entries": {"a": {"memroy": {}}}}}, "agents.entries.a.memroy"),
    ({"agents": {"entries": {"$include": "./a.json5"}}}, "agents.entries.$include"),
    ({"agents": {"entries": {"a": {"$include": "./a.json5"}}}}, "agents.entries.a.$include"),
    ({"agents": {"entries": {"a": {"memory": {"$include": "./a"}}}}}, "agents.entries.a.memory.$include"),
    ({"memory": {"search": {"$include": "./a.json5"}}}, "memory.search.$include"),
    # Other places
    ({"memorySearch": {"provider": "none"}}, "memorySearch"),
    ({"memory_search": {"provider": "none"}}, "memory_search"),
    ({"embedding": {"provider": "none"}}, "embedding"),
    ({"agents": {"memorySearch": {}}}, "agents.memorySearch"),
    ({"agents": {"main": {"memorySearch": {}}}}, "agents.main.memorySearch"),
    ({"agents": {"enabled": False}}, "agents.enabled"),
    (defaults(memory={"search": {}}), "agents.defaults.memory"),
    (defaults(Memory={"search": {}}), "agents.defaults.Memory"),
    (defaults(PROVIDER="none"), "agents.defaults.PROVIDER"),
    (defaults(Enabled=False), "agents.defaults.Enabled"),
    (defaults(disabled=True), "agents.defaults.disabled"),
    (defaults(provider="none"), "agents.defaults.provider"),
    (defaults(enabled="no"), "agents.defaults.enabled"),
    ({"agents": {"list": [{"id": "a", "memory": {}}]}}, "agents.list[a].memory"),
    ({"agents": {"list": [{"id": "a", "enabled": False}]}}, "agents.list[a].enabled"),
    # Included files
    ({"$include": "./a.json5"}, "$include"),
    ({"memory": {"$include": "./a.json5"}}, "memory.$include"),
    ({"agents": {"$include": ["./a.json5"]}}, "agents.$include"),
    (defaults(**{"$include": "./a.json5"}), "agents.defaults.$include"),
    ({"agents": {"list": [{"id": "a", "$include": "x"}]}}, "agents.list[a].$include"),
    ({"models": {"$include": "./a.json5"}}, "models.$include"),
    ({"models": {"providers": {"$include": "./a.json5"}}}, "models.providers.$include"),
    (provider("openai", **{"$include": "./a.json5"}), "models.providers.openai.$include"),
    ({"plugins": {"slots": {"$include": "./a.json5"}}}, "plugins.slots.$include"),
    # Misspelt
    ({"memroy": {"search": {}}}, "memroy"),
    ({"Agents": {}}, "Agents"),
    ({"agent": {"memorySearch": {}}}, "agent"),
    ({"agents": {"entires": {}}}, "agents.entires"),
    (defaults(memorysearch={}), "agents.defaults.memorysearch"),
    (defaults(workspce="/w"), "agents.defaults.workspce"),
    ({"agents": {"list": [{"id": "a", "memorySerch": {}}]}}, "agents.list[a].memorySerch"),
    ({"models": {"provider": {}}}, "models.provider"),
    (provider("open-ai", baseUrl="http://x"), "models.providers.open-ai"),
    (provider("Google", baseUrl="http://x"), "models.providers.Google"),
    (provider("openai", baseURl="http://x"), "models.providers.openai.baseURl"),
    (provider("mistral", base_url="http://x"), "models.providers.mistral.base_url"),
    (plugin("memory_lancedb", {}), "plugins.entries.memory_lancedb"),
    (provider("openai", Enabled=False), "models.providers.openai.Enabled"),
    # Switches of providers
    (provider("openai", enabled=False), "models.providers.openai.enabled"),
    (provider("google", enabled="false"), "models.providers.google.enabled"),
    (provider("mistral", disabled=True), "models.providers.mistral.disabled"),
    ({"models": {"enabled": False}}, "models.enabled"),
    # Plugins
    ({"plugins": False}, "plugins"),
    ({"plugins": {"slots": "none"}}, "plugins.slots"),
    ({"plugins": {"slots": {"memory": ["none"]}}}, "plugins.slots.memory"),
    ({"plugins": {"slots": {"memory": "None"}}}, "plugins.slots.memory"),
    ({"plugins": {"enabled": False}}, "plugins.enabled"),
    ({"plugins": {"deny": ["memory-core"]}}, "plugins.deny"),
    ({"plugins": {"slots": {"memory": "memory-wiki"}}}, "plugins.slots.memory"),
    ({"plugins": {"slots": {"memory": "Memory-Core"}}}, "plugins.slots.memory"),
    ({"plugins": {"slots": {"memory": ""}}}, "plugins.slots.memory"),
    ({"plugins": {"deny": ["voyage"]}}, "plugins.deny"),
    ({"plugins": {"deny": ["*"]}}, "plugins.deny"),
    ({"plugins": {"deny": ["memory-*"]}}, "plugins.deny"),
    ({"plugins": {"deny": [" Memory-Core"]}}, "plugins.deny"),
    ({"plugins": {"deny": ["OpenAI"]}}, "plugins.deny"),
    ({"plugins": {"deny": [{"id": "memory-core"}]}}, "plugins.deny"),
    ({"plugins": {"deny": [ENTRIES], "slots": {"memory": ENTRIES}}}, "plugins.deny"),
    ({"plugins": {"allow": ["anthropic"]}}, "plugins.allow"),
    ({"plugins": {"allow": []}}, "plugins.allow"),
    ({"plugins": {"allow": "memory-core"}}, "plugins.allow"),
    ({"plugins": {"allow": ["Memory-Core"], "slots": {"memory": "memory-core"}}}, "plugins.allow"),
    ({"plugins": {"alow": ["memory-core"]}}, "plugins.alow"),
    ({"plugins": {"disabled": True}}, "plugins.disabled"),
    (plugin("memory-core", {"disabled": True}), "plugins.entries.memory-core.disabled"),
    (plugin("memory-core", {"embedding": {"provider": "none"}}), "plugins.entries.memory-core.embedding"),
    (plugin("memory-core", {"config": "none"}), "plugins.entries.memory-core.config"),
    *(
        (plugin("memory-core", {"config": {key: {}}}), f"plugins.entries.memory-core.config.{key}")
        for key in ("embedding", "provider", "search", "memorySearch", "memory", "Search", "$include")
    ),
    (plugin("memory-core", {"config": {"enabled": False}}), "plugins.entries.memory-core.config.enabled"),
    (plugin("memory-core", {"enabled": False}), "plugins.entries.memory-core.enabled"),
    (plugin("google", {"enabled": False}), "plugins.entries.google.enabled"),
    (plugin(ENTRIES, {"enabled": "false"}), f"plugins.entries.{ENTRIES}.enabled"),
]


@pytest.mark.parametrize(("reference", "key"), BLOCKING, ids=[key for _, key in BLOCKING])
def test_an_unknown_setting_that_may_restrict_providers_disables_them(home, reference, key):
    loaded = home.load(reference)
    where = f"{home.reference}: {key}"
    assert blocked_by(loaded) == [where]
    (told,) = [warning for warning in loaded.warnings if "remote embeddings are disabled" in warning]
    assert told.startswith(f"{where}: ")


@pytest.mark.parametrize(("own", "key"), BLOCKING, ids=[key for _, key in BLOCKING])
def test_the_same_holds_for_memoryds_own_file(home, own, key):
    assert blocked_by(home.load(own=own)) == [f"{home.own}: {key}"]


HARMLESS = [
    {},
    {"gateway": {"port": 1}, "env": {"vars": {}}, "secrets": {"providers": {}}, "channels": {"$include": "./c.json5"}},
    {"memory": {"search": {}}},
    {"memory": {"search": {"enabled": False, "store": {"fts": {"tokenizer": "trigram"}}}, "citations": "on"}},
    {"agents": {"entries": {}, "ownership": "explicit"}},
    {"agents": {"entries": {"main": {"workspace": "/w", "memory": {"search": {"provider": "openai"}}}}}},
    {"agents": {"entries": {"a": {"agentDir": "/d", "identity": {}, "contextLimits": {}, "tools": {}}}}},
    search(store={"fts": {"tokenizer": "trigram"}}, inputType="x", multimodal={"enabled": False}),
    search(extraPaths=[{"path": "x", "pattern": "**"}], qmd={"extraCollections": []}),
    {"memory": {"qmd": {"rerank": False, "searchTool": "x"}}},
    defaults(contextLimits={"memoryGetMaxChars": 5}, userTimezon="UTC", compaction={"memoryFlush": {"model": "x"}}),
    {"agents": {"ownership": "explicit", "list": [{"id": "a", "name": "A", "identity": {}, "tools": {}}]}},
    provider("anthropic", apiKey=SECRET),
    {"models": {"providers": {"openai": {"apiKey": "k"}, "openai2": {"apiKey": "k"}, "openai-codex": {}}}},
    provider("openai", api="openai-responses", auth="api-key", models=[], request={}),
    provider("openai", enabled=True, disabled=False),
    provider("anthropic", enabled=False),
    search(provider=None),
    {"plugins": {"allow": ["memory-core", "telegram"], "deny": ["telegram", "memory-wiki"]}},
    {"plugins": {"allow": ["openclaw-memoryd"], "slots": {"memory": "openclaw-memoryd"}}},
    {"plugins": {"allow": ["memoryd"]}},
    {"plugins": {"allow": [ENTRIES], "slots": {"memory": ENTRIES}}},
    plugin("memory-core", {"config": {"dreaming": {"enabled": False, "model": "x"}, "memoryPolicy": {}}}),
    {**search(provider="gemini"), **provider("openai", apiKey=SECRET, baseurl="x")},
    {**search(provider="openai", remote={"apiKey": "k"}), **provider("openai", apiKey=SECRET)},
    {"plugins": {"enabled": True, "slots": {"memory": "none"}, "allow": ["x"], "deny": ["x"]}},
    plugin("memory-core", {"enabled": False}, slots={"memory": "memoryd"}),
    plugin("memory-core", {"enabled": True, "config": {}}),
    plugin("anthropic", {"enabled": False}),
    plugin(ENTRIES, {"enabled": False}, slots={"memory": ENTRIES}),
]


@pytest.mark.parametrize("reference", HARMLESS, ids=str)
def test_an_unknown_setting_that_cannot_widen_sending_disables_nothing(home, reference):
    assert blocked_by(home.load(reference)) == []


@pytest.mark.parametrize(("reference", "key"), BLOCKING, ids=[key for _, key in BLOCKING])
def test_a_null_in_the_later_file_takes_it_away(home, reference, key):
    assert blocked_by(home.load(reference, nulled(reference, key))) == []


def nulled(value, key):
    """The same objects, with null in the place of the setting that is named."""
    if isinstance(value, list):
        return [nulled(item, key) for item in value]
    if not isinstance(value, dict):
        return value
    last = key.rpartition(".")[2].partition("[")[0]
    return {
        name: None if name == last else inner if name == "id" else nulled(inner, key) for name, inner in value.items()
    }


# Settings that are refused


def refused(home, reference=None, own=None):
    with pytest.raises(RefusedSettings) as caught:
        home.load(reference, own)
    return [blocker.where for blocker in caught.value.blockers]


REFUSED = [
    ({"memory": {"search": "none"}}, "memory.search"),
    ({"memory": {"search": {"provder": "none"}}}, "memory.search.provder"),
    ({"agents": {"entries": 5}}, "agents.entries"),
    ({"agents": {"entries": {"a": "none"}}}, "agents.entries.a"),
    ({"agents": {"entries": {"..": {}}}}, "agents.entries..."),
    ({"agents": {"entries": {"a": {"memory": {"serch": {}}}}}}, "agents.entries.a.memory.serch"),
    (search(qurey={}), "agents.defaults.memorySearch.qurey"),
    (defaults(memorySearch=False), "agents.defaults.memorySearch"),
    (search(provider=["none"]), "agents.defaults.memorySearch.provider"),
    ({"memory": "none"}, "memory"),
    ({"memory": {"provider": "none"}}, "memory.provider"),
    ({"agents": "none"}, "agents"),
    ({"agents": {"list": {"main": {"memorySearch": {"provider": "none"}}}}}, "agents.list"),
    ({"agents": {"list": ["main"]}}, "agents.list[0]"),
    ({"agents": {"list": [{"id": "-", "memorySearch": {"provider": "none"}}]}}, "agents.list[0].id"),
    ({"models": False}, "models"),
    ({"models": {"providers": "none"}}, "models.providers"),
    (provider("openai", baseUrl=5), "models.providers.openai.baseUrl"),
    ({"models": {"providers": {"openai": False}}}, "models.providers.openai"),
    (plugin(ENTRIES, {"config": {"embeding": {}}}), f"plugins.entries.{ENTRIES}.config.embeding"),
]


@pytest.mark.parametrize(("reference", "key"), REFUSED, ids=[key for _, key in REFUSED])
def test_problem_with_a_setting_about_providers_disables_them(home, reference, key):
    assert refused(home, reference) == [f"{home.reference}: {key}"]


@pytest.mark.parametrize("text", ['{"memory": {"search": {"provider": "none"', "", "[]", "[" * 5000, b"\xff"])
def test_file_that_cannot_be_read_disables_providers(home, text):
    home.write(home.reference, "")
    home.reference.write_bytes(text if isinstance(text, bytes) else text.encode())
    (where,) = refused(home)
    assert where.startswith(str(home.reference))


def test_problem_in_the_memoryd_block_disables_no_providers_and_hides_no_blocker(home):
    listen = {"memoryd": {"listen": 5}}
    assert refused(home, {}, listen) == []
    assert refused(home, provider("openai", enabled=False), listen) == [
        f"{home.reference}: models.providers.openai.enabled"
    ]


def test_problem_with_an_agents_own_key_is_named_to_its_callers_alone(home):
    listed = [{"id": "main"}, {"id": "bird", "memorySearch": False}]
    with pytest.raises(RefusedSettings) as caught:
        home.load({"agents": {"list": listed}})
    (blocker,) = caught.value.blockers
    assert blocker == Blocker(f"{home.reference}: agents.list[bird].memorySearch", "bird")


@pytest.mark.parametrize(
    ("reference", "own", "key"),
    [
        (defaults(memorySearch=False), search(sync={}), "agents.defaults.memorySearch"),
        ({"memory": "none"}, {"memory": {"citations": "on"}}, "memory"),
        ({"models": {"providers": {"openai": False}}}, provider("openai", apiKey="k"), "models.providers.openai"),
        ({"plugins": False}, {"plugins": {"slots": {}}}, "plugins"),
    ],
    ids=["memorySearch", "memory", "provider", "plugins"],
)
def test_value_of_a_wrong_type_under_an_object_of_the_later_file_disables_providers(home, reference, own, key):
    assert blocked_by(home.load(reference, own)) == [f"{home.reference}: {key}"]
    assert blocked_by(home.load({"channels": 5}, {"channels": {}})) == []


anything = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner | st.none(), max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(anything)
def test_the_current_layout_uses_no_provider_that_it_does_not_name(home, value):
    try:
        loaded = home.load({"memory": {"search": value}, "agents": {"entries": value}})
    except RefusedSettings as error:
        allowed, used = {"memory", "agents"}, {blocker.where.split(": ")[1].split(".")[0] for blocker in error.blockers}
    else:
        # A null is no setting.
        allowed = {"auto" if value is None else "none"}
        used = {agent.memory_search.provider for agent in loaded.agents.values()}
    assert used
    assert used <= allowed


# Profiles


def profiles(home, content, agent="main"):
    home.write(home.state / "agents" / agent / "agent" / "auth-profiles.json", content)
    return f"{home.state}/agents/{agent}/agent/auth-profiles.json"


def test_profiles_that_cannot_be_read_are_not_replaced_by_a_variable(home):
    file = profiles(home, "{")
    key = home.environ.pop("OPENAI_API_KEY")
    assert blocked_by(home.load(own=search(provider="openai"))) == []
    home.environ["OPENAI_API_KEY"] = key
    assert blocked_by(home.load(own=search(provider="openai"))) == [file]


def test_a_dollar_name_is_the_variable_and_no_other_key_takes_its_place(home):
    home.environ.update({"OPENAI_API_KEY": "other", "MY_KEY": "mine"})

    def access(key):
        return home.load(own=search(provider="openai", remote={"apiKey": key})).agent("").provider_access["openai"]

    assert [key.get_secret_value() for key in access("$MY_KEY").keys] == ["mine"]
    assert (access("$UNSET").keys, "UNSET, which is not set" in access("$UNSET").no_key) == ((), True)


# Variables and files


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENCLAW_WORKSPACE_DIR", "relative"),
        ("OPENCLAW_PROFILE", "../work"),
        ("MEMORYD_PROVIDER", "none"),
        ("MEMORYD_EMBEDDING__PROVIDER", "none"),
        ("MEMORYD_MEMORY_SEARCH__FALLBACK", "none"),
        ("MEMORYD_CONFG", "/x.json5"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
    ],
)
def test_a_variable_that_is_not_read_and_may_restrict_disables_providers(home, name, value):
    assert blocked_by(home.load()) == []
    home.environ[name] = value
    assert blocked_by(home.load()) == [f"env {name}"]
    home.environ[name] = " "
    assert blocked_by(home.load()) == []


@pytest.mark.parametrize(
    "environ",
    [
        {"OPENCLAW_CONFIG_PATH": "~/.openclaw/openclaw.json"},
        {"OPENCLAW_CONFIG_PATH": "~/x.json", "MEMORYD_CONFIG": "~/x.json"},
        {"OPENCLAW_HOME": "~"},
        {"OPENCLAW_HOME": "/other", "OPENCLAW_STATE_DIR": "~/.openclaw"},
        {"OPENCLAW_HOME": "undefined", "OPENCLAW_PROFILE": "default"},
        {"OPENCLAW_WORKSPACE_DIR": "/other", "MEMORYD_WORKSPACE": "/mine"},
        {"OPENCLAW_PROFILE": "work", "OPENCLAW_STATE_DIR": "~/.openclaw-work"},
        {"MEMORYD_PORT_7777_TCP": "tcp://10.0.0.1:7777", "MEMORYD_SERVICE_HOST": "10.0.0.1", "MEMORYD_VERSION": "1"},
        {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": ""},
    ],
    ids=str,
)
def test_a_variable_that_changes_nothing_disables_nothing(home, environ):
    home.environ.update(environ)
    home.write(home.path / "x.json", {})
    assert blocked_by(home.load()) == []


def test_an_address_that_is_configured_counts_and_its_variable_does_not(home):
    home.environ["OPENAI_BASE_URL"] = "http://127.0.0.1:1/v1"
    assert blocked_by(home.load(provider("openai", baseUrl="http://127.0.0.1:2/v1"))) == []


def test_a_settings_file_of_the_oldest_name_disables_providers_where_there_is_no_newer_one(home):
    file = home.write(home.path / ".openclaw/moltbot.json", {})
    assert blocked_by(home.load()) == [str(file)]
    assert blocked_by(home.load({})) == []


def test_a_settings_file_that_links_to_nothing_is_refused(home):
    home.state.mkdir(parents=True)
    home.reference.symlink_to(home.path / "gone.json")
    assert f"{home.reference}: the file is a link, and its target does not exist" in home.refused()


# What is shown


def test_an_agents_own_key_is_named_to_its_callers_alone(home):
    listed = [{"id": "main"}, {"id": "bird", "enabled": False}]
    loaded = home.load({"agents": {"list": listed}})
    assert loaded.blocked_by("bird") == (f"{home.reference}: agents.list[bird].enabled",)
    assert loaded.blocked_by("main") == ("a setting of another agent",)


def test_the_reason_for_disabled_providers_is_shown_and_is_a_change(home):
    before = home.load({})
    after = home.load({"memorySearch": {}})
    shown = {entry["key"]: entry["value"] for entry in after.describe()}
    assert shown["remoteEmbeddingsBlockedBy"] == [f"{home.reference}: memorySearch"]
    assert changed_keys(before, after) == changed_keys(after, before) == ("remoteEmbeddingsBlockedBy",)
    assert "remoteEmbeddingsBlockedBy" not in {entry["key"] for entry in before.describe()}


def test_a_key_of_a_file_is_shown_without_control_characters(home):
    loaded = load(environ={}, home=home.path, flags={"config": home.write(home.own, {"\x1bmemory": {}})})
    (where,) = blocked_by(loaded)
    assert "\x1b" not in where
