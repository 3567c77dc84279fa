"""Which agents are configured, where the memory of each is, and which have none."""

import pytest

from memoryd_server.errors import AgentNotFound


def listed(*agents, **defaults):
    return {"agents": {"defaults": defaults, "list": list(agents)}}


def check_workspaces(home, own, **expected):
    agents = home.load(own=own).agents
    assert {agent_id: str(agent.workspace) for agent_id, agent in agents.items()} == {
        agent_id: path.format(home=home.path, state=home.state) for agent_id, path in expected.items()
    }


def test_the_default_agent_has_the_plain_workspace_and_others_one_by_id(home):
    check_workspaces(home, listed({"id": "a"}, {"id": "b"}), a="{state}/workspace", b="{state}/workspace-b")


def test_the_shared_workspace_is_the_default_agents_alone(home):
    own = listed({"id": "a"}, {"id": "b", "default": True}, workspace="~/notes")
    check_workspaces(home, own, a="{state}/workspace-a", b="{home}/notes")


def test_an_agents_own_workspace_counts_over_the_shared_one(home):
    own = listed({"id": "a", "workspace": "~/own/../mine"}, {"id": "b", "workspace": "rel"}, workspace="/shared")
    check_workspaces(home, own, a="{home}/mine", b="{state}/rel")


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_workspace_counts_as_none(home, blank):
    check_workspaces(home, listed({"id": "a", "workspace": blank}, workspace=blank), a="{state}/workspace")


def test_a_workspace_by_flag_or_variable_is_the_default_agents(home):
    own = listed({"id": "a", "workspace": "/own"}, {"id": "b", "workspace": "/b"})
    home.environ["MEMORYD_WORKSPACE"] = "/variable"
    by_variable = home.load(own=own)
    assert str(by_variable.agents["a"].workspace) == "/variable"
    assert str(by_variable.agents["b"].workspace) == "/b"
    assert by_variable.origins["agents.list[a].workspace"] == "env MEMORYD_WORKSPACE"
    by_flag = home.load(own=own, workspace="/flag")
    assert str(by_flag.agents["a"].workspace) == "/flag"
    assert by_flag.origins["agents.list[a].workspace"] == "flag --workspace"


def test_a_relative_workspace_by_flag_starts_at_the_working_directory(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert home.load(workspace="notes").agent("").workspace == tmp_path / "notes"


@pytest.mark.parametrize(
    ("agents", "default", "unnamed"),
    [
        ([{"id": "a"}, {"id": "b"}], "a", "a"),
        ([{"id": "a"}, {"id": "b", "default": True}], "b", "b"),
        ([{"id": "a", "default": True}, {"id": "Main"}], "a", "main"),
        ([{"id": "a", "default": False}], "a", "a"),
        ([], "main", "main"),
    ],
)
def test_an_unnamed_agent_is_main_or_else_the_default(home, agents, default, unnamed):
    settings = home.load(own=listed(*agents))
    assert settings.default_agent == default
    assert [agent.agent_id for agent in settings.agents.values() if agent.default] == [default]
    assert settings.agent("").agent_id == unnamed


def test_several_default_agents_are_reported_and_the_first_is_used(home):
    settings = home.load(own=listed({"id": "a", "default": True}, {"id": "b", "default": True}))
    assert settings.default_agent == "a"
    assert any("several agents are marked as the default; a is used" in warning for warning in settings.warnings)


def test_an_id_is_found_in_any_case(home):
    settings = home.load(own=listed({"id": "Work-1"}))
    assert list(settings.agents) == ["work-1"]
    assert settings.agent(" WORK-1 ").agent_id == "work-1"


def test_an_unknown_agent_is_refused_with_those_that_there_are(home):
    settings = home.load(own=listed({"id": "a"}, {"id": "b"}))
    with pytest.raises(AgentNotFound, match="configured agents: a, b") as caught:
        settings.agent("x" * 1000)
    assert caught.value.metadata == {"agent_id": "x" * 64}


@pytest.mark.parametrize("agent_id", ["", "-", "..", "é", " ", 5, None, ["a"]])
def test_an_id_that_is_none_is_refused(home, agent_id):
    assert "agents.list[0].id: expected 1 to 64 letters" in home.refused(own=listed({"id": agent_id}))


def test_an_id_given_twice_is_refused(home):
    message = home.refused(own=listed({"id": "a"}, {"id": "A"}))
    assert f'{home.own}: agents.list[1].id: another agent has the id "a"' in message


def test_two_files_speak_of_the_same_agent_by_its_id(home):
    reference = listed({"id": "a", "workspace": "/a", "name": "A"}, {"id": "b"})
    own = listed({"id": "b", "memorySearch": {"query": {"maxResults": 2}}}, {"id": "c"})
    settings = home.load(reference, own)
    assert list(settings.agents) == ["a", "b", "c"]
    assert str(settings.agent("a").workspace) == "/a"
    assert settings.agent("b").memory_search.query.max_results == 2


def test_an_agents_keys_count_over_the_defaults_one_by_one(home):
    defaults = {"query": {"maxResults": 2, "minScore": 0.5}, "extraPaths": ["x"], "chunking": {"tokens": 10}}
    own = {"query": {"maxResults": 4}, "extraPaths": ["y", "x"], "chunking": {"overlap": 50}}
    settings = home.load(own=listed({"id": "a", "memorySearch": own}, {"id": "b"}, memorySearch=defaults))
    a, b = settings.agent("a").memory_search, settings.agent("b").memory_search
    assert (a.query.max_results, a.query.min_score, a.extra_paths) == (4, 0.5, ("x", "y"))
    assert (a.chunking.tokens, a.chunking.overlap) == (10, 9)
    assert (b.query.max_results, b.extra_paths) == (2, ("x",))


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"plugins": {"slots": {"memory": "none"}}}, 'plugins.slots.memory is "none"'),
        (listed(memorySearch={"enabled": False}), "agents.defaults.memorySearch.enabled is false"),
        (
            listed({"id": "main", "memorySearch": {"enabled": False}}),
            "agents.list[main].memorySearch.enabled is false",
        ),
    ],
)
def test_memory_that_is_switched_off_says_by_what(home, own, reason):
    settings = home.load(own=own)
    agent = settings.agent("")
    assert (agent.enabled, agent.disabled_reason) == (False, reason)
    assert settings.origins["agents.list[main].enabled"] == str(home.own)


@pytest.mark.parametrize("plugins", [5, {"slots": 5}, {"slots": {"memory": 5}}, {"slots": {"memory": "memory-core"}}])
def test_other_plugins_leave_memory_on(home, plugins):
    assert home.load(own={"plugins": plugins}).agent("").enabled


def test_an_agent_can_have_memory_where_the_others_have_none(home):
    own = listed({"id": "a", "memorySearch": {"enabled": True}}, {"id": "b"}, memorySearch={"enabled": False})
    settings = home.load(own=own)
    assert settings.agent("a").enabled
    assert not settings.agent("b").enabled


def test_two_agents_never_share_an_index(home):
    store = {"store": {"path": "~/one.sqlite"}}
    message = home.refused(own=listed({"id": "a"}, {"id": "b"}, memorySearch=store))
    assert 'agents.list[b].memorySearch.store.path: agent "a" has the same index' in message
    off = {"id": "b", "memorySearch": {"enabled": False}}
    assert home.load(own=listed({"id": "a"}, off, memorySearch=store)).agent("a").index_path == home.path / "one.sqlite"


def test_the_index_path_names_each_agent(home):
    own = listed({"id": "a"}, {"id": "b"}, memorySearch={"store": {"path": "i/{agentId}/{agentId}.db"}})
    settings = home.load(own=own)
    assert settings.agent("b").index_path == home.state / "i" / "b" / "b.db"


@pytest.mark.parametrize("zone", ["Europe/Paris", "UTC", None])
def test_a_time_zone_is_kept(home, zone):
    assert home.load(own=listed(userTimezone=zone)).agent("").user_timezone == zone


@pytest.mark.parametrize(
    ("zone", "complaint"),
    [
        ("Europe/Pariss", 'unknown time zone (did you mean "Europe/Paris"?)'),
        ("europe/paris ", "unknown time zone"),
        ("../etc/passwd", "unknown time zone"),
        ("America", "unknown time zone"),
        ("\0", "unknown time zone"),
    ],
)
def test_an_unknown_time_zone_is_a_warning_and_the_host_s_is_used(home, zone, complaint):
    settings = home.load(own=listed(userTimezone=zone))
    assert settings.agent("").user_timezone is None
    (warning,) = settings.warnings
    assert warning.startswith(f"{home.own}: agents.defaults.userTimezone: {complaint}")
    assert warning.endswith("; the host's time zone is used")


def test_a_time_zone_of_a_wrong_type_is_refused(home):
    complaint = "agents.defaults.userTimezone: expected a string, found a number"
    assert complaint in home.refused(own=listed(userTimezone=5))
