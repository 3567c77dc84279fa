"""The current layout of OpenClaw's settings, the older one, and both in the same files."""

import json

import pytest

from memoryd_server.errors import AgentNotFound


def entries(*ids, search=None, **more):
    """Settings in the current layout; the value of an agent may be given as `(id, keys)`."""
    by_id = dict(each if isinstance(each, tuple) else (each, {}) for each in ids)
    agents = {"entries": by_id, **more}
    return {"agents": agents, **({} if search is None else {"memory": {"search": search}})}


def older(*agents, **search):
    return {"agents": {"defaults": {"memorySearch": search}, **({"list": list(agents)} if agents else {})}}


def own_search(**keys):
    return {"memory": {"search": keys}}


# Recognition

MARKS = [
    (own_search(), {}, "current"),
    (entries("main"), {}, "current"),
    ({"agents": {"entries": {}}}, {}, "current"),
    ({}, own_search(), "current"),
    ({**own_search(), **older(provider="openai")}, {}, "current"),
    ({"meta": {"lastTouchedVersion": "2026.9.6"}}, {}, "current"),
    ({"meta": {"lastTouchedVersion": "2026.10.1-beta.1"}}, {}, "current"),
    ({"meta": {"lastTouchedVersion": "2027.1.1"}}, older(sync={"watch": False}), "current"),
    ({"meta": {"lastTouchedVersion": "2026.9.6"}, **older(provider="auto")}, {}, "older"),
    ({"meta": {"lastTouchedVersion": "2026.9.6"}, "memory": {"backend": "builtin"}}, {}, "older"),
    ({"meta": {"lastTouchedVersion": "2026.2.3"}}, {}, "older"),
    ({"meta": {"lastTouchedVersion": "latest"}}, {}, "older"),
    ({"meta": {"lastTouchedVersion": 2026.9}}, {}, "older"),
    ({"meta": "2026.9.6"}, {}, "older"),
    (own_search(), {"memory": {"search": None}}, "current"),
    (own_search(), {"memory": {"search": {"provider": None}}}, "current"),
    ({}, {}, "older"),
    (None, None, "older"),
    (None, older(provider="auto"), "older"),
]


@pytest.mark.parametrize(("reference", "own", "layout"), MARKS, ids=str)
def test_the_layout_is_recognized(home, reference, own, layout):
    home.environ["OPENAI_API_KEY"] = "k"
    loaded = home.load(reference, own)
    assert loaded.layout == layout
    if loaded.agent("").memory_search.provider == "none":
        assert layout == "current"


def test_the_database_of_a_current_openclaw_marks_the_current_layout(home):
    home.write(home.state / "state" / "openclaw.sqlite", "")
    assert (home.load().layout, home.load({}).layout) == ("current", "current")
    assert home.load(older(provider="auto")).layout == "older"


# What the layouts differ in


def test_an_unset_provider_selects_none_in_the_current_layout_and_names_the_setting(home):
    home.environ.update(OPENAI_API_KEY="k", GEMINI_API_KEY="k")
    agent = home.load(own_search(model="text-embedding-3-large", fallback="gemini")).agent("")
    assert (agent.memory_search.provider, list(agent.provider_access)) == ("none", ["none"])
    assert 'memory.search.provider is not set; set it to "openai"' in agent.no_provider
    for named in ("none", "openai", "local", "auto"):
        assert home.load(own_search(provider=named)).agent("").no_provider == ""


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_provider_counts_as_unset(home, blank):
    assert home.load(own_search(provider=blank)).agent("").memory_search.provider == "none"


def test_auto_means_openai_in_the_current_layout_alone(home):
    home.environ["GEMINI_API_KEY"] = "k"
    current, before = home.load(own_search(provider="auto")), home.load(older(provider="auto"))
    assert current.agent("").memory_search.provider == "openai"
    assert before.agent("").memory_search.provider == "auto"


def test_auto_of_memoryds_own_older_key_means_openai_too(home):
    settings = home.load(own_search(), older(provider="auto"))
    assert settings.agent("").memory_search.provider == "openai"


def test_an_unknown_provider_is_kept_so_that_no_other_one_is_used(home):
    home.environ["OPENAI_API_KEY"] = "k"
    settings = home.load(own_search(provider="opnai"))
    assert list(settings.agent("").provider_access) == ["opnai"]
    assert any('memory.search.provider: "opnai" is not known' in warning for warning in settings.warnings)


@pytest.mark.parametrize(
    ("reference", "enabled"),
    [
        (own_search(), False),
        (own_search(remote={"batch": {}}), False),
        (own_search(remote={"batch": {"enabled": True}}), True),
        (own_search(remote={"apiKey": "k"}), False),
        (entries(("a", {"memory": {"search": {"remote": {"batch": {"enabled": True}}}}})), True),
        (older(), True),
        (older(remote={"batch": {"enabled": False}}), False),
    ],
    ids=str,
)
def test_batch_jobs_are_off_by_default_in_the_current_layout(home, reference, enabled):
    assert home.load(reference).agent("").memory_search.remote.batch.enabled is enabled


SESSIONS = ("memory", "sessions")
MEMORY = ("memory",)
REMEMBERED = [
    # settings, what is indexed, what a search finds
    (own_search(), SESSIONS, MEMORY),
    ({**own_search(), "session": {"dmScope": "main"}}, SESSIONS, MEMORY),
    ({**own_search(), "session": {"store": "/x"}, "bindings": [{"agentId": "a", "match": {}}]}, SESSIONS, MEMORY),
    ({**own_search(), "session": {"dmScope": "per-peer"}}, MEMORY, MEMORY),
    ({**own_search(), "session": {"dmScope": 5}}, MEMORY, MEMORY),
    ({**own_search(), "session": {"dmScope": "${SCOPE}"}}, MEMORY, MEMORY),
    ({**own_search(), "session": {"$include": "./s.json5"}}, MEMORY, MEMORY),
    ({**own_search(), "session": "main"}, MEMORY, MEMORY),
    ({**own_search(), "bindings": [{"session": {"dmScope": "main"}}]}, MEMORY, MEMORY),
    ({**own_search(), "bindings": [{"session": "x"}]}, MEMORY, MEMORY),
    ({**own_search(), "bindings": [5]}, MEMORY, MEMORY),
    ({**own_search(), "bindings": [{"$include": "./b.json5"}]}, MEMORY, MEMORY),
    ({**own_search(), "bindings": {"$include": "./b.json5"}}, MEMORY, MEMORY),
    ({**own_search(rememberAcrossConversations=True), "session": {"dmScope": "per-peer"}}, SESSIONS, MEMORY),
    (own_search(rememberAcrossConversations=False), MEMORY, MEMORY),
    (own_search(sources=["memory", "sessions"]), SESSIONS, SESSIONS),
    (own_search(sources=["sessions"]), ("sessions",), ("sessions",)),
    (own_search(sources=["memory", "sessions"], rememberAcrossConversations=False), MEMORY, MEMORY),
    (
        own_search(sources=SESSIONS, rememberAcrossConversations=False, experimental={"sessionMemory": True}),
        SESSIONS,
        SESSIONS,
    ),
    (entries(("a", {"memory": {"search": {"rememberAcrossConversations": False}}})), MEMORY, MEMORY),
    (older(), MEMORY, MEMORY),
    (older(sources=["memory", "sessions"]), MEMORY, MEMORY),
]


@pytest.mark.parametrize(("reference", "indexed", "searched"), REMEMBERED, ids=lambda each: json.dumps(each)[:60])
def test_which_sources_are_indexed_and_which_are_searched(home, reference, indexed, searched):
    search = home.load(reference).agent("").memory_search
    assert (search.indexed_sources, search.sources) == (indexed, searched)


def test_sessions_that_are_ignored_are_a_warning_that_names_the_keys_of_the_layout(home):
    settings = home.load(own_search(sources=["memory", "sessions"], rememberAcrossConversations=False))
    (warning,) = settings.warnings
    assert warning == (
        f'{home.reference}: memory.search.sources: "sessions" is ignored, because neither '
        "experimental.sessionMemory nor rememberAcrossConversations is true; only memory is indexed"
    )


# Both layouts


def test_within_one_file_the_current_layout_counts_key_by_key_with_a_warning(home):
    reference = {
        "memory": {"search": {"provider": "none", "query": {"maxResults": 3}}},
        "agents": {"defaults": {"memorySearch": {"provider": "openai", "query": {"maxResults": 4, "minScore": 0.5}}}},
    }
    settings = home.load(reference)
    search = settings.agent("").memory_search
    assert (search.provider, search.query.max_results, search.query.min_score) == ("none", 3, 0.5)
    assert settings.warnings == tuple(
        f"{home.reference}: agents.defaults.memorySearch.{key}: the file also has memory.search.{key}, which is used "
        "instead"
        for key in ("provider", "query.maxResults")
    )


@pytest.mark.parametrize(("reference", "own"), [(own_search, older), (older, own_search)], ids=["own older", "own new"])
def test_the_later_file_counts_in_either_layout(home, reference, own):
    settings = home.load(reference(provider="openai", model="a"), own(provider="none"))
    search = settings.agent("").memory_search
    assert (search.provider, search.model, settings.warnings) == ("none", "a", ())


def test_an_agents_own_keys_count_over_the_shared_ones_in_either_layout(home):
    reference = entries(("a", {"memory": {"search": {"query": {"maxResults": 2}, "extraPaths": ["y", "x"]}}}), "b")
    reference["memory"] = {"search": {"query": {"maxResults": 5, "minScore": 0.5}, "extraPaths": ["x"]}}
    settings = home.load(reference, {"agents": {"list": [{"id": "b", "memorySearch": {"query": {"maxResults": 9}}}]}})
    a, b = (settings.agent(each).memory_search for each in "ab")
    assert (a.query.max_results, a.query.min_score, a.extra_paths) == (2, 0.5, ("x", "y"))
    assert (b.query.max_results, b.query.min_score, b.extra_paths) == (9, 0.5, ("x",))


def test_headers_are_not_mixed_from_both_layouts(home):
    reference = {
        "memory": {"search": {"remote": {"headers": {"X-New": "1"}}}},
        "agents": {"defaults": {"memorySearch": {"remote": {"headers": {"X-Old": "1"}}}}},
    }
    assert list(home.load(reference).agent("").memory_search.remote.headers) == ["X-New"]


def test_input_types_are_resolved_in_both_layouts(home):
    given = {"inputType": "text", "queryInputType": "query", "documentInputType": "passage"}
    for reference in (own_search(**given), older(**given)):
        search = home.load(reference).agent("").memory_search
        assert (search.input_type, search.query_input_type, search.document_input_type) == ("text", "query", "passage")


def test_the_length_of_a_read_is_shared_or_an_agents_own(home):
    reference = entries("a", ("b", {"contextLimits": {"memoryGetMaxChars": 10}}))
    reference["agents"]["defaults"] = {"contextLimits": {"memoryGetMaxChars": 20, "other": "x"}}
    settings = home.load(reference)
    assert [settings.agent(each).memory_get_max_chars for each in "ab"] == [20, 10]
    assert home.load({}).agent("").memory_get_max_chars is None


# Agents


def check_workspaces(home, reference, **expected):
    settings = home.load(reference)
    assert {agent_id: str(agent.workspace) for agent_id, agent in settings.agents.items()} == {
        agent_id: path.format(home=home.path, state=home.state) for agent_id, path in expected.items()
    }
    return settings.default_agent


def test_the_only_entry_has_the_shared_workspace(home):
    assert check_workspaces(home, entries("ops"), ops="{state}/workspace") == "ops"
    shared = {"defaults": {"workspace": "~/notes"}}
    assert check_workspaces(home, entries("ops", **shared), ops="{home}/notes") == "ops"
    assert check_workspaces(home, entries(("ops", {"workspace": "/own"}), **shared), ops="/own") == "ops"


def test_of_several_entries_none_has_the_shared_workspace_itself(home):
    given = entries("main", "ops", ("own", {"workspace": "/own"}), ownership="explicit", defaults={"workspace": "/w"})
    assert check_workspaces(home, given, main="/w/main", ops="/w/ops", own="/own") == ""


def test_of_several_entries_without_a_shared_workspace_each_has_one_by_its_id(home):
    given = entries("main", "ops", ownership="explicit")
    assert check_workspaces(home, given, main="{state}/workspace-main", ops="{state}/workspace-ops") == ""


def test_the_marked_entry_has_the_shared_workspace_and_is_the_default(home):
    given = entries("main", ("ops", {"default": True}), defaults={"workspace": "/w"})
    assert check_workspaces(home, given, main="/w/main", ops="/w") == "ops"
    assert check_workspaces(
        home, entries("a", ("b", {"default": True})), a="{state}/workspace-a", b="{state}/workspace"
    )


def test_the_system_agent_is_the_default_agent_but_has_a_workspace_of_its_own(home):
    defaults = {"workspace": "/w", "systemAgent": {"agentId": " OPS "}}
    assert check_workspaces(home, entries("work", "ops", defaults=defaults), work="/w/work", ops="/w/ops") == "ops"


def test_an_unknown_system_agent_is_a_warning(home):
    settings = home.load(entries("a", "b", defaults={"systemAgent": {"agentId": "c"}}))
    assert settings.default_agent == ""
    (warning,) = settings.warnings
    assert "agents.defaults.systemAgent.agentId: no agent with this id is configured" in warning


def test_without_a_default_agent_an_empty_id_is_no_agent_and_a_workspace_by_flag_is_reported(home):
    settings = home.load(entries("main", "ops"), workspace="/flag")
    with pytest.raises(AgentNotFound, match="configured agents: main, ops"):
        settings.agent("")
    assert "/flag" not in {str(agent.workspace) for agent in settings.agents.values()}
    assert settings.warnings == ("flag --workspace: it is ignored, because there is no default agent",)


def test_the_agents_of_both_layouts_are_all_there_under_the_rules_of_entries(home):
    reference = {"agents": {"entries": {"a": {}}, "list": [{"id": "b", "default": True}]}}
    assert check_workspaces(home, reference, a="{state}/workspace-a", b="{state}/workspace") == "b"


def test_a_list_keeps_the_rules_of_the_older_layout(home):
    reference = {"agents": {"list": [{"id": "a"}, {"id": "b"}], "defaults": {"workspace": "/w"}}}
    assert check_workspaces(home, reference, a="/w", b="{state}/workspace-b") == "a"


@pytest.mark.parametrize(
    ("name", "agent_id"),
    [
        ("Third One", "third-one"),
        ("OPS", "ops"),
        ("_a", "_a"),
        ("-a-", "a"),
        ("a/../b", "a-b"),
        ("ä b", "b"),
        ("a" * 70, "a" * 64),
    ],
)
def test_a_name_is_converted_to_an_id_in_both_layouts(home, name, agent_id):
    for reference, where in (
        (entries((name, {"workspace": "/own"})), f"agents.entries.{name}"),
        ({"agents": {"list": [{"id": name, "workspace": "/own"}]}}, "agents.list[0].id"),
    ):
        settings = home.load(reference)
        assert {each: str(agent.workspace) for each, agent in settings.agents.items()} == {agent_id: "/own"}
        told = [warning for warning in settings.warnings if f'the agent has the id "{agent_id}"' in warning]
        assert len(told) == (0 if name.lower() == agent_id else 1)
        assert all(where in warning for warning in told)


def test_two_names_of_one_id_are_refused(home):
    message = home.refused(entries("Third One", "third-one"))
    assert 'agents.entries.third-one: another agent has the id "third-one"' in message
    message = home.refused({"agents": {"list": [{"id": "Third One"}, {"id": "third-one"}]}})
    assert 'agents.list[1].id: another agent has the id "third-one"' in message


def test_two_files_name_the_same_entry(home):
    settings = home.load(entries(("a", {"workspace": "/a"})), entries(("A", own_search(query={"maxResults": 2}))))
    assert (list(settings.agents), str(settings.agent("a").workspace)) == (["a"], "/a")
    assert settings.agent("a").memory_search.query.max_results == 2


@pytest.mark.parametrize("agent_id", ["scope", "headers"])
def test_any_id_is_merged_over_files(home, agent_id):
    settings = home.load(entries((agent_id, own_search(provider="none"))), entries((agent_id, {"workspace": "/a"})))
    assert settings.agent(agent_id).memory_search.provider == "none"


def test_the_agent_folder_moves_the_auth_profiles_alone(home):
    profile = {"profiles": {"a": {"type": "api_key", "provider": "openai", "key": "of-the-folder"}}}
    home.write(home.path / "elsewhere" / "auth-profiles.json", profile)
    agent = home.load(entries(("a", {"agentDir": "~/elsewhere"}), search={"provider": "openai"})).agent("a")
    assert [key.get_secret_value() for key in agent.provider_access["openai"].keys] == ["of-the-folder"]
    assert (agent.agent_dir, agent.index_path) == (home.path / "elsewhere", home.state / "memory" / "a.memoryd.sqlite")


def test_memory_that_is_disabled_names_the_key_of_its_layout(home):
    settings = home.load(entries(("a", own_search(enabled=False)), "b", search={"enabled": False}))
    assert [agent.disabled_reason for agent in settings.agents.values()] == [
        "agents.entries.a.memory.search.enabled is false",
        "memory.search.enabled is false",
    ]


def test_two_entries_never_share_an_index(home):
    message = home.refused(entries("a", "b", search={"store": {"path": "~/one.sqlite"}}))
    assert 'agent "a" has the same index' in message


# What is shown


def test_each_value_is_shown_with_its_file_its_key_and_its_layout(home):
    reference = entries(("a", {"workspace": "/a", **own_search(query={"maxResults": 2})}), search={"provider": "none"})
    own = older(query={"minScore": 0.5})
    shown = {entry.pop("key"): entry for entry in home.load(reference, own).describe()}

    def check(key, value, **written):
        assert shown[f"agents.list[a].{key}"] == {"value": value, **written}

    host, layout = str(home.reference), {"layout": "current"}
    check("memorySearch.provider", "none", origin=host, writtenAs="memory.search.provider", **layout)
    check(
        "memorySearch.query.maxResults",
        2,
        origin=host,
        writtenAs="agents.entries.a.memory.search.query.maxResults",
        **layout,
    )
    key = "agents.defaults.memorySearch.query.minScore"
    check("memorySearch.query.minScore", 0.5, origin=str(home.own), writtenAs=key, layout="older")
    check("workspace", "/a", origin=host, writtenAs="agents.entries.a.workspace", **layout)
    check("memorySearch.cache.enabled", True, origin="default")


# Included files and variables


def included(home, **files):
    for name, content in files.items():
        home.write(home.state / f"{name}.json5", content)


def test_layout_is_found_in_included_files(home):
    included(home, memory={"search": {"provider": "gemini"}}, agents={"entries": {"a": {}, "b": {}}})
    loaded = home.load({"memory": {"$include": "./memory.json5"}, "agents": {"$include": "./agents.json5"}})
    assert (loaded.layout, list(loaded.agents), loaded.default_agent) == ("current", ["a", "b"], "")
    assert loaded.agent("a").memory_search.provider == "gemini"
    shown = {entry["key"]: entry for entry in loaded.describe()}["agents.list[a].memorySearch.provider"]
    assert (shown["origin"], shown["layout"]) == (str(home.state / "memory.json5"), "current")


def test_layout_is_the_current_one_if_the_file_with_its_keys_cannot_be_included(home):
    assert home.load({"memory": {"search": {"$include": "./missing.json5"}}}).layout == "current"


@pytest.mark.parametrize("place", ["main file", "included file"])
def test_key_of_the_current_layout_counts_within_a_file_wherever_it_is_included_from(home, place):
    older_keys, current_keys = {"memorySearch": {"provider": "gemini"}}, {"provider": "voyage"}
    included(home, older=older_keys, current=current_keys)
    in_file = place == "main file"
    reference = {
        "memory": {"search": current_keys if in_file else {"$include": "./current.json5"}},
        "agents": {"defaults": {"$include": "./older.json5"} if in_file else older_keys},
    }
    loaded = home.load(reference)
    assert loaded.agent("").memory_search.provider == "voyage"
    assert len([warning for warning in loaded.warnings if "which is used instead" in warning]) == 1


def test_memoryds_own_file_takes_precedence_over_files_that_openclaws_file_includes(home):
    included(home, current={"provider": "voyage"})
    loaded = home.load({"memory": {"search": {"$include": "./current.json5"}}}, older(provider="gemini"))
    assert loaded.agent("").memory_search.provider == "gemini"
    assert not [warning for warning in loaded.warnings if "which is used instead" in warning]


def test_a_file_that_memoryds_own_file_includes_takes_precedence_over_openclaws_file(home):
    included(home, older={"memorySearch": {"provider": "gemini"}})
    loaded = home.load(own_search(provider="voyage"), {"agents": {"defaults": {"$include": "./older.json5"}}})
    assert loaded.agent("").memory_search.provider == "gemini"


def test_two_names_of_one_id_in_several_included_files_are_refused(home):
    included(home, more={"third-one": {"workspace": "/b"}})
    entries_of_both = {"$include": "./more.json5", "Third One": {"workspace": "/a"}}
    assert 'another agent has the id "third-one"' in home.refused({"agents": {"entries": entries_of_both}})


def test_the_keys_of_an_agent_may_be_in_several_files(home):
    included(home, agent={"memory": {"search": {"provider": "gemini"}}})
    home.environ["NAME"] = "x"
    loaded = home.load({"agents": {"entries": {"Third One": {"$include": "./agent.json5", "workspace": "/w/${NAME}"}}}})
    agent = loaded.agent("third-one")
    assert (str(agent.workspace), agent.memory_search.provider) == ("/w/x", "gemini")
    assert len([warning for warning in loaded.warnings if 'has the id "third-one"' in warning]) == 1


@pytest.mark.parametrize("agent_id", ["headers", "scope"])
def test_an_id_that_is_the_name_of_a_key_is_an_agent(home, agent_id):
    home.environ["NAME"] = "x"
    included(home, agent={"workspace": "/w/${NAME}"})
    loaded = home.load({"agents": {"entries": {agent_id: {"$include": "./agent.json5", "default": True}, "b": {}}}})
    assert (str(loaded.agent(agent_id).workspace), loaded.default_agent) == ("/w/x", agent_id)
    shown = {entry["key"]: entry for entry in loaded.describe()}[f"agents.list[{agent_id}].workspace"]
    assert shown["origin"] == f"{home.state / 'agent.json5'}, ${{NAME}} from env NAME"


def test_workspace_of_an_entry_with_an_unset_variable_disables_the_memory_of_its_agent(home):
    loaded = home.load(entries(("a", {"workspace": "/w/${UNSET}"}), "b"))
    assert [agent.memory_enabled for agent in loaded.agents.values()] == [False, True]
    assert "UNSET" in loaded.agent("a").disabled_reason


def test_only_entry_and_a_marked_one_have_the_default_workspace_of_openclaw(home):
    home.environ["OPENCLAW_WORKSPACE_DIR"] = "/notes"
    only = home.load(entries("a"))
    assert str(only.agent("a").workspace) == "/notes"
    assert only.origins["agents.list[a].workspace"] == "env OPENCLAW_WORKSPACE_DIR"
    loaded = home.load(entries(("a", {"default": True}), "b"))
    assert str(loaded.agent("a").workspace) == "/notes"
    assert str(loaded.agent("b").workspace) == str(home.state / "workspace-b")
    assert loaded.origins["agents.list[b].workspace"] == "default"


@pytest.mark.parametrize(
    "settings",
    [
        {"session": {"$include": "./missing.json5"}},
        {"bindings": {"$include": "./missing.json5"}},
        {"bindings": [{"$include": "./missing.json5"}]},
        {"bindings": [{"agentId": "a", "session": {"$include": "./missing.json5"}}]},
        {"$include": "./missing.json5"},
        {"session": {"dmScope": "${SCOPE}"}},
    ],
    ids=str,
)
def test_transcripts_are_not_indexed_if_a_file_about_sessions_cannot_be_read(home, settings):
    indexed = home.load({**own_search(), **settings}).agent("").memory_search.indexed_sources
    assert indexed == ("memory",)


def test_transcripts_are_indexed_if_the_included_file_about_sessions_isolates_none(home):
    included(home, session={"dmScope": "main"}, isolated={"dmScope": "per-peer"})
    for name, expected in (("session", ("memory", "sessions")), ("isolated", ("memory",))):
        loaded = home.load({**own_search(), "session": {"$include": f"./{name}.json5"}})
        assert loaded.agent("").memory_search.indexed_sources == expected


def test_a_server_without_a_model_sends_nothing_in_the_current_layout(home):
    given = {"provider": "openai-compatible", "remote": {"baseUrl": "http://127.0.0.1:9/v1"}}
    assert home.load(own_search(**given)).agent("").memory_search.model == ""
    assert home.load(own_search(**given, model="m")).agent("").memory_search.model == "m"
    assert home.load(older(**given), {"memory": None}).agent("").memory_search.model == "text-embedding-3-small"


def test_an_id_of_models_providers_may_be_the_provider_of_an_entry(home):
    blocks = {"models": {"providers": {"mine": {"baseUrl": "http://127.0.0.1:9/v1"}}}}
    loaded = home.load({**entries(("a", own_search(provider="mine", model="m"))), **blocks})
    assert (loaded.warnings, loaded.agent("a").memory_search.provider) == ((), "mine")
