"""`memoryd config` shows every effective value and hides every secret."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from memoryd_server.settings.memory_search import RemoteSettings
from memoryd_server.settings.resolved import mask

SECRET = "s3cr3t-value"


def as_table(settings):
    return {entry["key"]: (entry["value"], entry["origin"]) for entry in settings.describe()}


def test_values_are_shown_with_who_set_them(home):
    home.environ["MEMORYD_RECONCILE_SECONDS"] = "30"
    own = {"agents": {"defaults": {"userTimezone": "UTC"}, "list": [{"id": "work", "default": True}]}}
    table = as_table(home.load(own=own, token_file="/tokens"))
    assert table["memoryd.reconcileSeconds"] == (30.0, "env MEMORYD_RECONCILE_SECONDS")
    assert table["memoryd.tokenFile"] == ("/tokens", "flag --token-file")
    assert table["agents.defaults.userTimezone"] == ("UTC", str(home.own))
    assert table["agents.list[work].default"] == (True, str(home.own))
    assert table["agents.list[work].workspace"] == (f"{home.state}/workspace", "default")
    assert table["memory.citations"] == ("auto", "default")


def test_a_value_that_agents_inherit_is_said_to_come_from_the_defaults_file(home):
    reference = {"agents": {"defaults": {"memorySearch": {"chunking": {"tokens": 99}}, "workspace": "/w"}}}
    own = {"agents": {"list": [{"id": "a"}, {"id": "b"}]}}
    table = as_table(home.load(reference, own))
    assert table["agents.list[b].memorySearch.chunking.tokens"] == (99, str(home.reference))
    assert table["agents.list[a].workspace"] == ("/w", str(home.reference))
    assert table["agents.list[b].workspace"] == (f"{home.state}/workspace-b", "default")


def test_the_state_directory_is_shown_with_who_set_it(home):
    home.environ["OPENCLAW_STATE_DIR"] = "/elsewhere"
    assert as_table(home.load())["stateDir"] == ("/elsewhere", "env OPENCLAW_STATE_DIR")


def test_every_entry_is_ready_for_json_and_has_an_origin(home):
    settings = home.load()
    entries = settings.describe()
    assert json.loads(json.dumps(entries)) == entries
    assert {entry["key"] for entry in entries} == set(settings.origins)
    assert len({entry["key"] for entry in entries}) == len(entries)


REMOTES = [
    {"apiKey": SECRET},
    {"headers": {"Authorization": f"Bearer {SECRET}"}},
    {"baseUrl": f"https://user:{SECRET}@host/v1"},
    {"baseUrl": f"https://host/v1?key={SECRET}&x=1"},
]


@pytest.mark.parametrize("remote", REMOTES)
def test_a_secret_is_masked_wherever_it_stands(home, remote):
    settings = home.load(own={"agents": {"defaults": {"memorySearch": {"remote": remote}}}})
    shown = json.dumps(settings.describe())
    assert SECRET not in shown
    assert "***" in shown


@pytest.mark.parametrize("remote", REMOTES[:2])
def test_a_secret_is_in_no_repr(home, remote):
    assert SECRET not in repr(home.load(own={"agents": {"defaults": {"memorySearch": {"remote": remote}}}}))


@pytest.mark.parametrize(
    "remote", [{"apiKey": [SECRET]}, {"headers": SECRET}, {"headers": {"X": [SECRET]}}, {"batch": SECRET}, SECRET]
)
def test_a_secret_in_the_wrong_place_is_in_no_complaint(home, remote):
    assert SECRET not in home.refused(own={"agents": {"defaults": {"memorySearch": {"remote": remote}}}})


@given(st.dictionaries(st.text(max_size=5), st.text(min_size=8).filter(str.strip)), st.text(min_size=8))
def test_masking_never_lets_a_secret_through(headers, key):
    remote = RemoteSettings(api_key=SecretStr(key), headers={name: SecretStr(value) for name, value in headers.items()})
    shown = mask(remote)
    assert shown["apiKey"] in ("***", None)
    assert set(shown["headers"].values()) <= {"***"}


def test_paths_and_nested_arrays_are_shown_as_text():
    assert mask((Path("/a"), [SecretStr("x")], {"k": 1})) == ["/a", ["***"], {"k": 1}]
