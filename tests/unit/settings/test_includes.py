"""`$include`: which files are read, how they are merged, and what follows if one of them cannot be read."""

import json
import os

import pytest

from memoryd_server.settings.layers import RefusedSettings
from memoryd_server.settings.loading import load


def blocked_by(loaded):
    return [blocker.where for blocker in loaded.remote_embeddings_blocked_by]


def workspaces(loaded):
    return {name: str(agent.workspace) for name, agent in loaded.agents.items()}


def write(home, name, content):
    return home.write(home.state / name, content)


def listed(*agents, **defaults):
    return {"list": list(agents), "defaults": defaults}


def test_a_file_takes_the_place_of_the_object_that_includes_it(home):
    file = write(
        home, "agents.json5", "{list: [{id: 'a', workspace: '/a'}], /* JSON5 */ defaults: {userTimezone: 'UTC'}}"
    )
    loaded = home.load({"agents": {"$include": "./agents.json5"}})
    assert workspaces(loaded) == {"a": "/a"}
    assert loaded.origins["agents.defaults.userTimezone"] == str(file)
    assert loaded.origins["agents.list[a].workspace"] == str(file)
    assert (loaded.warnings, blocked_by(loaded)) == ((), [])


def test_several_files_are_merged_in_order_and_keys_beside_them_over_the_result(home):
    write(home, "one.json5", listed(userTimezone="UTC", workspace="/one", memorySearch={"query": {"maxResults": 3}}))
    two = write(home, "two.json5", listed(workspace="/two", memorySearch={"query": {"minScore": 0.1}}))
    beside = {"workspace": "/beside"}
    loaded = home.load({"agents": {"$include": ["one.json5", "two.json5"], "defaults": beside}})
    agent = loaded.agent("")
    assert (agent.user_timezone, str(agent.workspace)) == ("UTC", "/beside")
    assert (agent.memory_search.query.max_results, agent.memory_search.query.min_score) == (3, 0.1)
    assert loaded.origins["agents.list[main].workspace"] == str(home.reference)
    assert loaded.origins["agents.list[main].memorySearch.query.minScore"] == str(two)


def test_arrays_of_included_files_are_concatenated(home):
    write(home, "one.json5", listed({"id": "a", "workspace": "/a"}, memorySearch={"extraPaths": ["/x"]}))
    two = write(home, "two.json5", listed({"id": "b", "workspace": "/b"}, memorySearch={"extraPaths": ["/y"]}))
    main = listed({"id": "c", "workspace": "/c"}, memorySearch={"extraPaths": ["/z"]})
    loaded = home.load({"agents": {"$include": ["one.json5", "two.json5"], **main}})
    assert workspaces(loaded) == {"a": "/a", "b": "/b", "c": "/c"}
    assert loaded.agent("a").memory_search.extra_paths == ("/x", "/y", "/z")
    assert loaded.origins["agents.list[b].workspace"] == str(two)
    origin = loaded.origins["agents.list[a].memorySearch.extraPaths"]
    assert origin == f"{home.state / 'one.json5'}, {two}, {home.reference}"


def test_headers_of_two_files_are_merged(home):
    write(home, "headers.json5", {"X-One": "1", "X-Two": "1"})
    headers = {"$include": "headers.json5", "X-Two": "2"}
    remote = {"baseUrl": "http://127.0.0.1:1", "headers": headers}
    search = {"provider": "openai", "remote": remote}
    access = home.load({"agents": {"defaults": {"memorySearch": search}}}).agent("").provider_access["openai"]
    assert {name: value.get_secret_value() for name, value in access.headers.items()} == {"x-one": "1", "x-two": "2"}


@pytest.mark.parametrize(
    "settings",
    [
        {"$include": "root.json5"},
        {"agents": {"defaults": {"$include": "defaults.json5"}}},
        {"agents": {"defaults": {"workspace": {"$include": "text.json5"}}}},
        {"agents": {"list": {"$include": "list.json5"}}},
        {"agents": {"list": [{"$include": "agent.json5"}]}},
        {"agents": {"list": [{"$include": "settings/nested.json5", "id": "main"}]}},
    ],
    ids=str,
)
def test_a_file_is_included_at_any_depth(home, settings):
    write(home, "text.json5", '"/w"')
    write(home, "defaults.json5", {"workspace": "/w"})
    write(home, "agent.json5", {"id": "main", "workspace": "/w"})
    write(home, "list.json5", [{"id": "main", "workspace": "/w"}])
    write(home, "root.json5", {"agents": {"$include": "agents.json5"}, "channels": {"$include": "gone.json5"}})
    write(home, "agents.json5", {"defaults": {"$include": "./defaults.json5"}})
    # Relative to the file that includes it.
    write(home, "settings/nested.json5", {"$include": "deeper/agent.json5"})
    write(home, "settings/deeper/agent.json5", {"workspace": "/w"})
    loaded = home.load(settings)
    assert (workspaces(loaded), blocked_by(loaded), loaded.warnings) == ({"main": "/w"}, [], ())


def test_a_relative_path_in_an_included_file_starts_at_the_folder_of_the_main_file(home):
    write(home, "deep/agents.json5", {"defaults": {"workspace": "notes"}})
    assert workspaces(home.load({"agents": {"$include": "deep/agents.json5"}})) == {"main": str(home.state / "notes")}


def test_memoryds_own_file_may_include_files_too(home):
    write(home, "log.json5", {"level": "debug"})
    loaded = home.load(own={"memoryd": {"log": {"$include": "log.json5"}}})
    assert loaded.service.log.level == "debug"
    assert loaded.origins["memoryd.log.level"] == str(home.state / "log.json5")


def failed(home, settings, key="agents.$include"):
    """Return the reason for an include that failed: nothing is sent, and the settings are not refused."""
    loaded = home.load(settings)
    assert blocked_by(loaded) == [f"{home.reference}: {key}"]
    (warning,) = loaded.warnings
    return warning


def agents(include):
    return {"agents": {"$include": include}}


@pytest.mark.parametrize(
    ("include", "reason"),
    [
        ("gone.json5", "gone.json5 cannot be read: No such file"),
        ("broken.json5", "broken.json5:1:"),
        ("latin1.json5", "not UTF-8 at byte 1"),
        ("null.json5", "found null"),
        ("folder", "cannot be read"),
        ("fifo", "is not a regular file"),
        ("../outside.json5", "outside.json5 is not in"),
        ("/etc/hostname", "is not in"),
        ("link.json5", "which is not in"),
        ("linked-folder/outside.json5", "which is not in"),
        ("dangling.json5", "cannot be read"),
        ("hard.json5", "has further hard links"),
        ("large.json5", "is larger than 2097152 bytes"),
        ("self.json5", "includes itself"),
        ("circle-1.json5", "includes itself"),
        ("deep.json5", "nested too deeply"),
        ("a\0b", "not a usable file name"),
        ("x" * 5000, "not a usable file name"),
        ("x" * 300, "cannot be read"),
        (5, "found a number"),
        (["one.json5", 5], "found a number in the array"),
        ({"file": "one.json5"}, "found an object"),
        (["one.json5", "gone.json5"], "gone.json5 cannot be read"),
    ],
    ids=str,
)
def test_an_include_that_cannot_be_read_disables_providers_and_does_not_end_the_start(home, include, reason):
    outside = home.write(home.path / "outside.json5", {"defaults": {"workspace": "/w"}})
    write(home, "one.json5", {})
    os.mkfifo(home.state / "fifo")
    (home.state / "folder").mkdir()
    (home.state / "link.json5").symlink_to(outside)
    (home.state / "linked-folder").symlink_to(home.path)
    (home.state / "dangling.json5").symlink_to(home.state / "nowhere")
    os.link(write(home, "target.json5", {}), home.state / "hard.json5")
    write(home, "broken.json5", "{a: ")
    write(home, "null.json5", "null")
    (home.state / "latin1.json5").write_bytes(b'"\xff"')
    write(home, "large.json5", '"' + "x" * 2**21 + '"')
    write(home, "deep.json5", "[" * 200 + "]" * 200)
    assert reason in failed_anywhere(home, agents(include))


def failed_anywhere(home, settings):
    write(home, "self.json5", {"defaults": {"$include": "self.json5"}})
    write(home, "circle-1.json5", {"defaults": {"$include": "circle-2.json5"}})
    write(home, "circle-2.json5", {"memorySearch": {"$include": "circle-1.json5"}})
    loaded = home.load(settings)
    (where,) = blocked_by(loaded)
    (warning,) = loaded.warnings
    assert warning.startswith(where)
    assert where.endswith("$include")
    return warning


def test_a_link_inside_the_folder_may_be_included(home):
    write(home, "real/agents.json5", {"defaults": {"workspace": "/w"}})
    (home.state / "agents.json5").symlink_to("real/agents.json5")
    assert workspaces(home.load(agents("agents.json5"))) == {"main": "/w"}


def test_the_folder_of_the_main_file_may_be_a_link(home):
    real = home.path / "real"
    home.write(real / "openclaw.json", agents("agents.json5"))
    home.write(real / "agents.json5", {"defaults": {"workspace": "/w"}})
    home.state.symlink_to(real)
    assert workspaces(home.load()) == {"main": "/w"}


@pytest.mark.parametrize("roots", ["~/shared", "/nowhere: ~/shared :", "HOME/shared"])
def test_files_in_the_folders_of_a_variable_may_be_included(home, roots):
    file = home.write(home.path / "shared" / "agents.json5", {"defaults": {"workspace": "/w"}})
    assert "is not in" in failed(home, agents(str(file)))
    home.environ["OPENCLAW_INCLUDE_ROOTS"] = roots.replace("HOME", str(home.path))
    assert workspaces(home.load(agents("../shared/agents.json5"))) == {"main": "/w"}


def chain(home, levels):
    for level in range(levels):
        write(home, f"{level}.json5", {"$include": f"{level + 1}.json5"})
    write(home, f"{levels}.json5", {"defaults": {"workspace": "/w"}})


def test_ten_levels_are_read_and_eleven_are_not(home):
    chain(home, 9)
    assert workspaces(home.load(agents("0.json5"))) == {"main": "/w"}
    chain(home, 10)
    loaded = home.load()
    assert blocked_by(loaded) == [f"{home.state / '9.json5'}: agents.$include"]
    assert "more than 10 levels deep" in loaded.warnings[0]


def test_files_that_include_each_other_many_times_are_bounded(home):
    for level in range(9):
        write(home, f"{level}.json5", {"$include": [f"{level + 1}.json5"] * 10})
    write(home, "9.json5", {"defaults": {"memorySearch": {"extraPaths": ["x"] * 100}}})
    loaded = home.load(agents("0.json5"))
    assert blocked_by(loaded)
    assert "more than 100 files are included" in "".join(loaded.warnings)


def test_the_total_size_of_included_files_is_bounded(home):
    write(home, "a.json5", json.dumps("x" * (2**21 - 100)))
    loaded = home.load(agents(["a.json5"] * 5))
    assert "8388608 bytes in total" in loaded.warnings[0]


@pytest.mark.parametrize("section", ["session", "bindings", "models", "secrets", "env", "memory", "x-unknown", "proxy"])
def test_a_section_that_may_restrict_disables_providers(home, section):
    assert "cannot be read" in failed(home, {section: {"$include": "gone.json5"}}, f"{section}.$include")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"$include": "gone.json5"}, "$include"),
        ({"$include": "gone.json5", "memory": {"citations": "on"}}, "$include"),
        ({"$include": "array.json5"}, "$include"),
        ({"memory": {"citations": {"$include": "gone.json5"}}}, "memory.citations.$include"),
        ({"memory": {"qmd": {"paths": [{"$include": "gone.json5"}]}}}, "memory.qmd.$include"),
        (
            {"models": {"providers": {"x": {"models": [{"id": "m", "$include": "gone.json5"}]}}}},
            "models.providers.x.models[0].$include",
        ),
        ({"agents": {"list": {"$include": "gone.json5"}}}, "agents.$include"),
        ({"agents": {"list": [{"$include": "gone.json5", "workspace": "/w"}]}}, "agents.$include"),
        ({"agents": {"defaults": {"memorySearch": {"extraPaths": {"$include": "x.json5"}}}}}, None),
        ({"models": {"providers": {"anthropic": {"$include": "gone.json5"}}}}, None),
    ],
    ids=str,
)
def test_an_include_that_fails_never_ends_the_start(home, settings, key):
    write(home, "array.json5", "[1]")
    loaded = home.load(settings)
    (where,) = blocked_by(loaded)
    assert key is None or where == f"{home.reference}: {key}"
    assert "remote embeddings are disabled" in loaded.warnings[0]


@pytest.mark.parametrize("roots", ["a\0b", "\0", "x" * 5000])
def test_a_folder_that_cannot_exist_includes_nothing(home, roots):
    home.environ["OPENCLAW_INCLUDE_ROOTS"] = roots
    write(home, "agents.json5", {"defaults": {"workspace": "/w"}})
    assert workspaces(home.load(agents("agents.json5"))) == {"main": "/w"}
    assert "is not in" in failed(home, agents("/etc/hostname"))


def test_keys_beside_an_include_that_fails_and_other_agents_are_kept(home):
    others = [{"id": "a", "workspace": "/a"}, {"id": "b", "$include": "gone.json5", "workspace": "/b"}]
    loaded = home.load({"agents": listed(*others, userTimezone="UTC")})
    assert workspaces(loaded) == {"a": "/a", "b": "/b"}
    assert blocked_by(loaded) == [f"{home.reference}: agents.list[b].$include"]
    assert loaded.blocked_by("a") == ("a setting of another agent",)


def test_an_include_that_fails_in_a_section_that_memoryd_does_not_read_disables_nothing(home):
    loaded = home.load({"channels": {"$include": "gone.json5"}, "gateway": {"token": {"$include": "gone.json5"}}})
    assert (blocked_by(loaded), loaded.warnings) == ([], ())


def test_a_mistake_in_an_included_file_is_reported_with_that_file(home):
    file = write(home, "memory.json5", {"citatons": "on"})
    with pytest.raises(RefusedSettings) as caught:
        home.load({"memory": {"$include": "memory.json5"}})
    assert f"{file}: memory.citatons: unknown key" in caught.value.message
    assert [blocker.where for blocker in caught.value.blockers] == [f"{file}: memory.citatons"]


def test_a_change_of_an_included_file_is_read_by_the_next_load(home):
    write(home, "agents.json5", {"defaults": {"workspace": "/one"}})
    assert workspaces(home.load(agents("agents.json5"))) == {"main": "/one"}
    write(home, "agents.json5", {"defaults": {"workspace": "/two"}})
    assert workspaces(load(environ=home.environ, home=home.path)) == {"main": "/two"}
