"""SecretRefs in the settings: where they are read, and what happens if one has no value."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd_server.settings import load
from memoryd_server.settings.layers import KeyPlace
from memoryd_server.settings.resolved import changed_keys
from openclaw_rows import put_secret
from properties import examples

SECRET = "sk-of-the-test"
OTHER = "sk-of-another-place"


def ref(name, source="env", provider="default"):
    return {"source": source, "provider": provider, "id": name}


def settings_of(home, *, remote=None, blocks=None, secrets=None, provider="openai", **search):
    own = {"provider": provider, **search, **({"remote": remote} if remote else {})}
    return home.load(
        {
            "agents": {"defaults": {"memorySearch": own}},
            **({"models": {"providers": blocks}} if blocks else {}),
            **({"secrets": secrets} if secrets is not None else {}),
        }
    )


def access(home, **given):
    return settings_of(home, **given).agent("").provider_access[given.get("provider", "openai")]


def keys(found):
    return [key.get_secret_value() for key in found.keys]


def headers(found):
    return {name: value.get_secret_value() for name, value in found.headers.items()}


PLACES = {
    "remote": lambda value: {"remote": {"apiKey": value}},
    "block": lambda value: {"blocks": {"openai": {"apiKey": value}}},
}


@pytest.mark.parametrize("place", PLACES)
def test_a_reference_is_the_key(home, place):
    home.environ.update({"MY_KEY": SECRET, "OPENAI_API_KEY": OTHER})
    loaded = settings_of(home, **PLACES[place](ref("MY_KEY")))
    assert keys(loaded.agent("").provider_access["openai"]) == [SECRET]
    assert loaded.warnings == ()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (ref("UNSET"), "the variable UNSET is not set"),
        (ref("UNSET", "store"), "OpenClaw's secret store has no UNSET"),
        (ref("/x", "file", "vault"), "secrets.providers.vault is not configured"),
        (ref("x", "exec", "vault"), "secrets.providers.vault is not configured"),
        ({"source": "env", "id": "OPENAI_API_KEY"}, 'it has no "provider"'),
        ({}, 'its "source" is not env, file, exec or store'),
    ],
    ids=str,
)
def test_no_other_key_takes_the_place_of_one_that_does_not_resolve(home, place, value, reason):
    home.environ["OPENAI_API_KEY"] = OTHER
    home.write(
        home.state / "agents" / "main" / "agent" / "auth-profiles.json",
        {"profiles": {"x": {"type": "api_key", "provider": "openai", "key": OTHER}}},
    )
    loaded = settings_of(home, **PLACES[place](value))
    found = loaded.agent("").provider_access["openai"]
    assert (found.keys, found.base_url, found.headers) == ((), "", {})
    path = "agents.defaults.memorySearch.remote.apiKey" if place == "remote" else "models.providers.openai.apiKey"
    assert str(found.missing) == f"{path} is a SecretRef that does not resolve: {reason}"
    (told,) = loaded.warnings
    assert told == (
        f"{home.reference}: {path}: a SecretRef that does not resolve: {reason}; "
        "agent main cannot use openai until it does, and uses no other key"
    )
    shown = {entry["key"]: entry["value"] for entry in loaded.describe()}
    assert shown["agents.list[main].access.openai"] == {"problem": str(found.missing)}
    json.dumps(loaded.describe())


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(["env", "default", "OPENAI_API_KEY"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.sampled_from(["source", "provider", "id"]) | st.text(max_size=3), anything, max_size=4)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(objects, st.sampled_from(sorted(PLACES)))
def test_no_object_in_the_place_of_a_key_is_replaced_by_another_key(home, raw, place):
    home.environ["OPENAI_API_KEY"] = OTHER
    found = access(home, **PLACES[place](raw))
    well_formed = raw == ref("OPENAI_API_KEY")
    assert (keys(found), found.missing is None) == (([OTHER], True) if well_formed else ([], False))


def test_the_key_of_one_agent_affects_no_other(home):
    home.environ["OPENAI_API_KEY"] = OTHER
    bird = {"id": "bird", "memorySearch": {"remote": {"apiKey": ref("UNSET")}}}
    loaded = home.load(
        {"agents": {"defaults": {"memorySearch": {"provider": "openai"}}, "list": [{"id": "main"}, bird]}}
    )
    assert keys(loaded.agent("main").provider_access["openai"]) == [OTHER]
    missing = loaded.agent("bird").provider_access["openai"].missing
    assert missing.place == KeyPlace(
        str(home.reference), ("agents", "list", "[bird]", "memorySearch", "remote", "apiKey")
    )
    assert loaded.remote_embeddings_blocked_by == ()


def test_a_reference_replaces_the_one_of_an_earlier_layer_as_a_whole(home):
    home.environ["OPENAI_API_KEY"] = OTHER
    search = {"agents": {"defaults": {"memorySearch": {"provider": "openai"}}}}
    reference = {**search, "models": {"providers": {"openai": {"apiKey": ref("UNSET")}}}}
    own = {"models": {"providers": {"openai": {"apiKey": {"source": "env"}}}}}
    assert 'no "provider"' in str(home.load(reference, own).agent("").provider_access["openai"].missing)
    own = {"models": {"providers": {"openai": {"apiKey": "text"}}}}
    assert keys(home.load(reference, own).agent("").provider_access["openai"]) == ["text"]


def test_a_secret_is_read_from_the_store_and_again_at_the_next_load(home):
    put_secret(home.state, "MY_KEY", SECRET)
    given = {"blocks": {"openai": {"apiKey": ref("MY_KEY", "store")}}}
    before = settings_of(home, **given)
    assert keys(before.agent("").provider_access["openai"]) == [SECRET]
    put_secret(home.state, "MY_KEY", OTHER)
    after = settings_of(home, **given)
    assert keys(after.agent("").provider_access["openai"]) == [OTHER]
    assert changed_keys(before, after) == ("agents.list[main].access.openai",)


def test_a_secret_that_resolves_again_is_a_change(home):
    given = {"blocks": {"openai": {"apiKey": ref("MY_KEY")}}}
    before = settings_of(home, **given)
    home.environ["MY_KEY"] = SECRET
    after = settings_of(home, **given)
    assert changed_keys(before, after) == changed_keys(after, before) == ("agents.list[main].access.openai",)


# Headers


def test_headers_of_a_block_may_be_references_and_variables(home):
    home.environ.update({"TEAM": "red", "OPENAI_API_KEY": OTHER, "LITERAL": "${TEAM}"})
    headers = {"X-A": ref("TEAM"), "X-B": "$TEAM", "X-C": "the ${TEAM} one", "X-D": "$100", "X-E": ref("LITERAL")}
    found = access(home, blocks={"openai": {"headers": headers}})
    assert {name: value.get_secret_value() for name, value in found.headers.items()} == {
        "x-a": "red",
        "x-b": "red",
        "x-c": "the red one",
        "x-d": "$100",
        # A secret is not a template.
        "x-e": "${TEAM}",
    }


@pytest.mark.parametrize("value", [ref("UNSET"), "$UNSET"], ids=str)
def test_a_header_without_a_value_sends_nothing(home, value):
    home.environ["OPENAI_API_KEY"] = OTHER
    found = access(home, blocks={"openai": {"headers": {"Authorization": value}}})
    assert (found.keys, found.headers) == ((), {})
    assert "UNSET" in found.problem or "UNSET" in str(found.missing)


@pytest.mark.parametrize("value", ["$UNSET", "${UNSET}", " $UNSET "])
@pytest.mark.parametrize("layout", ["older", "current"])
@pytest.mark.parametrize("block", [{"headers": {"X-Team": None}}, {"apiKey": None}], ids=["header", "key"])
def test_a_variable_that_is_not_set_is_never_sent_as_text(home, value, layout, block):
    filled = {key: {"X-Team": value} if key == "headers" else value for key in block}
    search = {"memory": {"search": {"provider": "openai"}}} if layout == "current" else {}
    search = search or {"agents": {"defaults": {"memorySearch": {"provider": "openai"}}}}
    home.environ["OPENAI_API_KEY"] = OTHER
    found = home.load({**search, "models": {"providers": {"openai": filled}}}).agent("").provider_access["openai"]
    assert (found.keys, found.headers) == ((), {})
    assert "UNSET" in (found.problem or found.no_key or str(found.missing))


def test_a_name_in_lower_case_is_text_in_the_current_layout_and_a_variable_in_the_older_one(home):
    home.environ.update({"team": "red", "my_key": SECRET})
    given = {"provider": "openai", "remote": {"apiKey": "${my_key}", "headers": {"X-A": "${team}"}}}
    blocks = {"models": {"providers": {"openai": {"headers": {"X-B": "${team}"}}}}}
    older = home.load({"agents": {"defaults": {"memorySearch": given}}, **blocks}).agent("").provider_access["openai"]
    assert (keys(older), headers(older)) == ([SECRET], {"x-a": "red", "x-b": "red"})
    current = home.load({"memory": {"search": given}, **blocks}).agent("").provider_access["openai"]
    assert (keys(current), headers(current)) == (["${my_key}"], {"x-a": "${team}", "x-b": "${team}"})


def test_a_secret_of_entries_alone_is_read(home):
    home.environ["MY_KEY"] = SECRET
    plugins = {
        "slots": {"memory": "memory-lancedb"},
        "entries": {"memory-lancedb": {"config": {"embedding": {"provider": "openai"}}}},
    }
    blocks = {"openai": {"apiKey": ref("MY_KEY")}}
    settings = {"memory": {"search": {"provider": "none"}}, "plugins": plugins, "models": {"providers": blocks}}
    assert keys(home.load(settings).agent("").entry_access) == [SECRET]
    del home.environ["MY_KEY"]
    assert "MY_KEY is not set" in str(home.load(settings).agent("").entry_access.missing)


def recording_command(home):
    """Return settings with a key from a command, the permission to run it, and the file that the command writes."""
    mark = home.path / "was-read"
    command = home.write(home.path / "vault", f"#!/bin/sh\ntouch {mark}\n")
    command.chmod(0o700)
    settings = {
        "models": {"providers": {"openai": {"apiKey": ref("x", "exec", "vault")}}},
        "secrets": {"providers": {"vault": {"source": "exec", "command": str(command)}}},
    }
    return settings, {"memoryd": {"secrets": {"exec": True}}}, mark


def test_no_secret_is_read_for_an_agent_whose_workspace_is_not_known(home):
    settings, own, mark = recording_command(home)
    settings |= {"memory": {"search": {"provider": "openai"}}, "agents": {"defaults": {"workspace": "/w/${UNSET}"}}}
    home.load(settings, own)
    assert not mark.exists()
    home.environ["UNSET"] = "x"
    home.load(settings, own)
    assert mark.exists()


def test_a_key_that_is_not_sent_to_another_address_is_not_read(home):
    settings, own, mark = recording_command(home)
    search = {"provider": "openai", "remote": {"baseUrl": "https://elsewhere.invalid/v1"}}
    settings["memory"] = {"search": search}
    found = home.load(settings, own).agent("").provider_access["openai"]
    assert (found.keys, "its own key (models.providers.openai.apiKey) is not sent there" in found.problem) == ((), True)
    assert not mark.exists()
    del search["remote"]
    home.load(settings, own)
    assert mark.exists()


@pytest.mark.parametrize("layout", ["older", "current"])
def test_a_reference_as_the_key_of_remote_is_sent_to_its_address(home, layout):
    home.environ.update({"MY_KEY": SECRET, "OPENAI_API_KEY": OTHER})
    search = {"provider": "openai", "remote": {"baseUrl": "https://elsewhere.invalid/v1", "apiKey": ref("MY_KEY")}}
    current, older = {"memory": {"search": search}}, {"agents": {"defaults": {"memorySearch": search}}}
    settings = current if layout == "current" else older
    found = home.load(settings).agent("").provider_access["openai"]
    assert (keys(found), found.base_url) == ([SECRET], "https://elsewhere.invalid/v1")
    del home.environ["MY_KEY"]
    found = home.load(settings).agent("").provider_access["openai"]
    assert (found.keys, "MY_KEY is not set" in str(found.missing)) == ((), True)


def test_headers_of_remote_are_texts(home):
    remote = {"headers": {"X": ref("TEAM")}}
    complaint = "agents.defaults.memorySearch.remote.headers.X: expected a string, found an object"
    assert complaint in home.refused({"agents": {"defaults": {"memorySearch": {"remote": remote}}}})
    home.environ["TEAM"] = "red"
    found = access(home, remote={"headers": {"X": "$TEAM"}})
    assert found.headers["x"].get_secret_value() == "$TEAM"


# Sources


def test_an_allowlist_applies_to_a_variable_in_a_text_too(home):
    home.environ.update({"MY_KEY": SECRET, "OPENAI_API_KEY": OTHER})
    secrets = {"providers": {"default": {"source": "env", "allowlist": ["OPENAI_API_KEY"]}}}
    for key in ("${MY_KEY}", "$MY_KEY", ref("MY_KEY")):
        found = access(home, blocks={"openai": {"apiKey": key}}, secrets=secrets)
        assert "is not in secrets.providers.default.allowlist" in str(found.missing)


@pytest.mark.parametrize("secrets", [5, {"providers": []}, {"defaults": "x"}, {"$include": "./s.json5"}])
def test_sources_that_cannot_be_read_provide_nothing(home, secrets):
    home.environ.update({"MY_KEY": SECRET, "OPENAI_API_KEY": OTHER})
    found = access(home, blocks={"openai": {"apiKey": ref("MY_KEY")}}, secrets=secrets)
    assert "cannot be read" in str(found.missing)


def test_a_default_alias_is_used_by_variables_in_texts(home):
    home.environ["MY_KEY"] = SECRET
    secrets = {"providers": {"mine": {"source": "env", "allowlist": []}}, "defaults": {"env": "mine"}}
    found = access(home, blocks={"openai": {"apiKey": "${MY_KEY}"}}, secrets=secrets)
    assert "secrets.providers.mine.allowlist" in str(found.missing)


def test_only_the_secrets_of_providers_in_use_are_read(home):
    """The file of the other secret would be refused with a warning."""
    secrets = {"providers": {"file": {"source": "file", "path": str(home.path)}}}
    blocks = {
        "anthropic": {"apiKey": ref("/x", "file", "file")},
        "openai": {"apiKey": ref("/x", "file", "file")},
    }
    loaded = settings_of(home, provider="gemini", remote={"apiKey": "k"}, blocks=blocks, secrets=secrets)
    assert loaded.warnings == ()


# Commands


def counting_command(home):
    """A command that counts its runs."""
    file = home.path / "vault"
    file.parent.mkdir(parents=True, exist_ok=True)
    answer = json.dumps({"protocolVersion": 1, "values": {"a": SECRET, "b": OTHER}})
    file.write_text(f"#!/bin/sh\necho run >> '{home.path}/runs'\ncat > /dev/null\necho '{answer}'\n")
    file.chmod(0o700)
    blocks = {
        "openai": {"apiKey": ref("a", "exec", "vault"), "headers": {"X": ref("b", "exec", "vault")}},
        "mistral": {"apiKey": ref("b", "exec", "vault")},
    }
    agents = [{"id": "main"}, {"id": "bird", "memorySearch": {"fallback": "mistral"}}]
    return {
        "agents": {"defaults": {"memorySearch": {"provider": "openai"}}, "list": agents},
        "models": {"providers": blocks},
        "secrets": {"providers": {"vault": {"source": "exec", "command": str(file)}}},
    }


def runs(home):
    file = home.path / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


ALLOWED = {"memoryd": {"secrets": {"exec": True}}}


def test_a_command_runs_only_if_memoryds_own_file_allows_it_and_once_per_load(home):
    reference = counting_command(home)
    assert "memoryd.secrets.exec" in str(home.load(reference).agent("").provider_access["openai"].missing)
    assert runs(home) == 0
    loaded = home.load(reference, ALLOWED)
    assert [keys(loaded.agent(name).provider_access["openai"]) for name in ("main", "bird")] == [[SECRET]] * 2
    assert keys(loaded.agent("bird").fallback_access) == [OTHER]
    assert (runs(home), loaded.warnings) == (1, ())
    named = home.write(home.path / "elsewhere" / "own.json5", ALLOWED)
    home.own.unlink()
    assert keys(home.load(reference, config=named).agent("").provider_access["openai"]) == [SECRET]


def test_openclaws_file_and_variables_do_not_allow_commands(home):
    reference = counting_command(home)
    loaded = home.load({**reference, **ALLOWED})
    assert loaded.agent("").provider_access["openai"].missing is not None
    assert any("memoryd.secrets.exec: this key counts only in memoryd's own" in text for text in loaded.warnings)
    assert loaded.service.secrets.exec is False
    home.environ["MEMORYD_SECRETS__EXEC"] = "true"
    assert home.load(reference).agent("").provider_access["openai"].missing is not None
    # The file with OpenClaw's settings is not memoryd's own, even if it is named as such.
    loaded = home.load({**reference, **ALLOWED}, config=home.reference)
    assert loaded.agent("").provider_access["openai"].missing is not None
    assert runs(home) == 0


def test_a_command_is_not_run_for_settings_that_are_refused_or_read_without_secrets(home):
    reference = counting_command(home)
    home.refused({**reference, "memory": {"citations": 5}}, ALLOWED)
    home.load(reference, ALLOWED)
    assert runs(home) == 1
    load(environ=home.environ, home=home.path, read_secrets=False)
    assert runs(home) == 1


def test_a_command_is_not_run_for_an_agent_whose_memory_is_off(home):
    reference = counting_command(home)
    reference["agents"]["defaults"]["memorySearch"]["enabled"] = False
    loaded = home.load(reference, ALLOWED)
    assert (runs(home), loaded.warnings) == (0, ())


def test_no_secret_shows_in_the_settings(home):
    loaded = home.load(counting_command(home), ALLOWED)
    for text in (repr(loaded), json.dumps(loaded.describe())):
        assert SECRET not in text
        assert OTHER not in text
