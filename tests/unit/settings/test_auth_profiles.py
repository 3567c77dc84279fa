"""Keys in OpenClaw's auth profiles: rows of its databases and the older file, and which key counts."""

import json

import pytest

from openclaw_rows import (
    agent_file,
    open_state,
    put_own_profiles,
    put_secret,
    put_shared_profiles,
    state_file,
)

SEARCH = {"agents": {"defaults": {"memorySearch": {"provider": "openai"}}}}
CURRENT = {**SEARCH, "memory": {"search": {"provider": "openai"}}}


def profile(key, provider="openai", **more):
    return {"type": "api_key", "provider": provider, "key": key, **more}


def referring(name, source="env"):
    return {"type": "api_key", "provider": "openai", "keyRef": {"source": source, "provider": "default", "id": name}}


def put_file(home, profiles, agent="main", folder=None):
    folder = folder or home.state / "agents" / agent / "agent"
    return home.write(folder / "auth-profiles.json", {"profiles": profiles})


def access(home, own=SEARCH, agent=""):
    return home.load(own=own).agent(agent).provider_access["openai"]


def keys(found):
    return [key.get_secret_value() for key in found.keys]


def test_an_agents_own_row_precedes_the_shared_one_and_the_file(home):
    home.environ["OPENAI_API_KEY"] = "environment"
    assert keys(access(home)) == ["environment"]
    put_file(home, {"c": profile("file")})
    assert (keys(access(home)), access(home).key_from) == (["file"], "auth-profiles.json")
    put_shared_profiles(home.state, {"b": profile("shared")})
    assert (keys(access(home)), access(home).key_from) == (["shared"], "auth profiles in openclaw.sqlite")
    put_own_profiles(home.state, {"a": profile("own")})
    assert (keys(access(home)), access(home).key_from) == (["own"], "auth profiles in openclaw-agent.sqlite")


def test_a_profile_hides_others_of_its_id(home):
    put_own_profiles(home.state, {"x": profile("mistral", "mistral")})
    put_shared_profiles(home.state, {"x": profile("hidden"), "y": profile("shared")})
    assert keys(access(home)) == ["shared"]


def test_each_agent_has_its_own_rows_and_the_shared_ones(home):
    put_shared_profiles(home.state, {"openai:default": profile("shared")})
    put_own_profiles(home.state, {"openai:default": profile("of bird")}, "bird")
    own = {"agents": {**SEARCH["agents"], "list": [{"id": "main"}, {"id": "bird"}]}}
    assert [keys(access(home, own, name)) for name in ("main", "bird")] == [["shared"], ["of bird"]]


def test_agent_dir_moves_the_file_and_not_the_database(home):
    own = {"agents": {**SEARCH["agents"], "list": [{"id": "main", "agentDir": "elsewhere"}]}}
    put_file(home, {"x": profile("usual place")})
    assert keys(access(home, own)) == []
    put_file(home, {"x": profile("elsewhere")}, folder=home.state / "elsewhere")
    assert keys(access(home, own)) == ["elsewhere"]
    put_own_profiles(home.state, {"x": profile("database")})
    assert keys(access(home, own)) == ["database"]


@pytest.mark.parametrize(
    "unusable",
    [
        profile("k", setup={}),
        profile("k", "anthropic"),
        {**profile("k"), "type": "oauth"},
        {**profile("k"), "type": "token", "token": "k"},
        profile(" "),
        profile(None),
        {"type": "api_key", "key": "k"},
        None,
        "k",
    ],
    ids=str,
)
def test_other_profiles_do_not_count(home, unusable):
    put_shared_profiles(home.state, {"a": unusable, "b": profile("usable")})
    assert keys(access(home)) == ["usable"]


# References


def test_a_profile_may_refer_to_its_key(home):
    home.environ.update({"MY_KEY": "variable", "OPENAI_API_KEY": "other"})
    put_secret(home.state, "MY_KEY", "stored")
    for raw, key in (
        (referring("MY_KEY"), "variable"),
        (referring("MY_KEY", "store"), "stored"),
        # The reference counts, as in OpenClaw.
        ({**referring("MY_KEY"), "key": "text"}, "variable"),
        ({"type": "api_key", "provider": "openai", "keyRef": {"source": "env", "id": "MY_KEY"}}, "variable"),
        (profile({"source": "env", "provider": "default", "id": "MY_KEY"}), "variable"),
        ({"type": "api_key", "provider": "openai", "keyRef": "${MY_KEY}"}, "variable"),
    ):
        put_shared_profiles(home.state, {"x": raw})
        assert keys(access(home)) == [key]


@pytest.mark.parametrize("raw", [referring("UNSET"), {**profile("text"), "keyRef": 5}, {**profile("t"), "keyRef": "x"}])
def test_a_reference_without_a_value_is_replaced_by_no_variable_and_no_later_profile(home, raw):
    home.environ["OPENAI_API_KEY"] = "other"
    put_own_profiles(home.state, {"openai:default": raw})
    put_shared_profiles(home.state, {"b": profile("shared")})
    settings = home.load(own=SEARCH)
    found = settings.agent("").provider_access["openai"]
    assert (keys(found), found.missing.place.key) == ([], ("profiles", "openai:default", "keyRef"))
    (told,) = settings.warnings
    assert told.startswith(f"{agent_file(home.state)}: profiles.openai:default.keyRef: a SecretRef that does not")


def test_another_profile_of_the_same_store_may_have_the_key(home):
    put_own_profiles(home.state, {"a": referring("UNSET"), "b": profile("usable")})
    assert keys(access(home)) == ["usable"]


# What cannot be read


@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"profiles": []}', '{"profiles": "x"}', "[" * 3000])
@pytest.mark.parametrize("put", [put_own_profiles, put_shared_profiles])
def test_a_row_that_cannot_be_read_is_a_warning_and_is_replaced_by_no_variable(home, put, text):
    put(home.state, text)
    settings = home.load(own=SEARCH)
    file = agent_file(home.state) if put is put_own_profiles else state_file(home.state)
    (told,) = settings.warnings
    assert told.startswith(f"{file}: the auth profiles are not ")
    assert settings.remote_embeddings_blocked_by == ()
    home.environ["OPENAI_API_KEY"] = "other"
    assert [blocker.where for blocker in home.load(own=SEARCH).remote_embeddings_blocked_by] == [str(file)]


def test_a_database_of_a_newer_version_ends_no_start(home):
    open_state(home.state, version=19).close()
    put_own_profiles(home.state, {"x": profile("k")})
    settings = home.load(own=SEARCH)
    assert keys(settings.agent("").provider_access["openai"]) == ["k"]
    assert any("its schema has version 19, and memoryd knows up to 18" in text for text in settings.warnings)
    assert settings.remote_embeddings_blocked_by == ()


def test_a_file_that_is_too_large_or_not_regular_is_a_warning(home):
    file = put_file(home, {"x": profile("k" * 2**20)})
    (told,) = home.load(own=SEARCH).warnings
    assert told == f"{file}: not a regular file of at most 1048576 bytes; its keys are not used"
    file.unlink()
    file.mkdir()
    assert len(home.load(own=SEARCH).warnings) == 1


def test_databases_are_not_opened_if_no_provider_needs_a_key(home):
    state_file(home.state).parent.mkdir(parents=True)
    state_file(home.state).write_bytes(b"no database" * 100)
    for provider in ("local", "none"):
        own = {"agents": {"defaults": {"memorySearch": {"provider": provider}}}}
        assert home.load(own=own).warnings == ()
    assert home.load(own=SEARCH).warnings != ()


# Which key counts


def block(**values):
    return {"models": {"providers": {"openai": values}}}


@pytest.mark.parametrize(
    ("reference", "key"),
    [
        ({**SEARCH, **block(apiKey="text")}, "text"),
        ({**CURRENT, **block(apiKey="text")}, "profile"),
        ({**CURRENT, **block(apiKey="text", auth="api-key")}, "text"),
        ({**CURRENT, **block(apiKey="${MY_KEY}")}, "mine"),
        ({**CURRENT, **block(apiKey="$MY_KEY")}, "mine"),
        ({**CURRENT, **block(apiKey={"source": "env", "provider": "default", "id": "MY_KEY"})}, "mine"),
        ({**CURRENT, **block(apiKey="openai:second")}, "second"),
        ({**SEARCH, **block(apiKey="openai:second")}, "second"),
    ],
    ids=json.dumps,
)
def test_the_key_of_a_block_precedes_profiles_by_its_form(home, reference, key):
    home.environ.update({"MY_KEY": "mine", "OPENAI_API_KEY": "environment"})
    put_shared_profiles(home.state, {"openai:default": profile("profile"), "openai:second": profile("second")})
    assert keys(home.load(reference).agent("").provider_access["openai"]) == [key]


def test_in_the_current_layout_the_text_of_a_block_is_the_last_source(home):
    home.environ["OPENAI_API_KEY"] = "environment"
    own = {**CURRENT, **block(apiKey="text")}
    assert keys(access(home, own)) == ["environment"]
    del home.environ["OPENAI_API_KEY"]
    assert keys(access(home, own)) == ["text"]


def test_in_the_current_layout_an_unset_variable_is_a_missing_secret(home):
    home.environ["OPENAI_API_KEY"] = "environment"
    assert access(home, {**SEARCH, **block(apiKey="${UNSET}")}).no_key
    found = access(home, {**CURRENT, **block(apiKey="${UNSET}")})
    assert (keys(found), found.missing.reason) == ([], "the variable UNSET is not set")
