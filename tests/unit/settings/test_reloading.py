"""What of settings that are read again comes into force, and what waits for a restart."""

import pytest

from memoryd_server.errors import SettingsError
from memoryd_server.settings.loading import find_locations
from memoryd_server.settings.resolved import changed_keys, keep_until_restart


def check(home, before, after, *, changed=(), waiting=()):
    """Of the way from one file to the other, these keys are in force at once, and those wait."""
    old, loaded = home.load(own=before), home.load(own=after)
    new = keep_until_restart(old, loaded)
    assert changed_keys(old, new) == tuple(changed)
    assert changed_keys(new, loaded) == tuple(waiting)
    return new


def agents(*ids, **defaults):
    return {"agents": {"list": [{"id": agent_id} for agent_id in ids], "defaults": {"memorySearch": defaults}}}


def test_the_same_settings_change_nothing(home):
    check(home, {}, {})


@pytest.mark.parametrize(
    ("block", "key"),
    [
        ({"log": {"level": "debug"}}, "log.level"),
        ({"limits": {"maxConcurrentCalls": 3}}, "limits.maxConcurrentCalls"),
        ({"limits": {"shutdownGraceSeconds": 3}}, "limits.shutdownGraceSeconds"),
        ({"limits": {"defaultDeadlineSeconds": 3}}, "limits.defaultDeadlineSeconds"),
        ({"limits": {"maxFileBytes": 3}}, "limits.maxFileBytes"),
        ({"limits": {"tokenCallsPerSecond": 3}}, "limits.tokenCallsPerSecond"),
        ({"reconcileSeconds": 3}, "reconcileSeconds"),
        ({"watcher": {"mode": "polling"}}, "watcher.mode"),
        ({"decayFloor": 0.1}, "decayFloor"),
        ({"confirmAboveTokens": 3}, "confirmAboveTokens"),
        ({"vectorMemoryBytes": 3}, "vectorMemoryBytes"),
    ],
)
def test_settings_that_can_change_at_run_time_do(home, block, key):
    check(home, {}, {"memoryd": block}, changed=[f"memoryd.{key}"])


@pytest.mark.parametrize(
    ("block", "keys"),
    [
        ({"listen": ["unix:/tmp/other"]}, ["listen"]),
        ({"tokenFile": "tokens"}, ["tokenFile"]),
        ({"tls": {"certFile": "a", "keyFile": "b"}}, ["tls.certFile", "tls.keyFile"]),
        ({"log": {"format": "console"}}, ["log.format"]),
        ({"limits": {"maxConnections": 3}}, ["limits.maxConnections"]),
        ({"local": {"threads": 3, "idleSeconds": 3}}, ["local.threads", "local.idleSeconds"]),
    ],
)
def test_settings_of_the_daemons_construction_wait_for_a_restart(home, block, keys):
    new = check(home, {}, {"memoryd": block}, waiting=[f"memoryd.{key}" for key in keys])
    assert new.service == home.load(own={}).service


def test_a_key_that_went_back_waits_no_more(home):
    old = home.load(own={})
    between = keep_until_restart(old, home.load(own={"memoryd": {"local": {"threads": 3}}}))
    again = home.load(own={})
    assert changed_keys(keep_until_restart(between, again), again) == ()


def test_every_agents_own_keys_are_named(home):
    check(
        home,
        agents("a", "b"),
        agents("a", "b", query={"maxResults": 3}),
        changed=[f"agents.list[{agent}].memorySearch.query.maxResults" for agent in "ab"],
    )


def test_an_agent_that_comes_or_goes_is_one_key(home):
    check(home, agents("a", "b"), agents("a", "c"), changed=["agents.list[b]", "agents.list[c]"])


def test_a_secret_that_changes_is_reported_by_its_key_alone(home):
    before, after = ({"remote": {"apiKey": f"sk-{n}", "baseUrl": "https://x.invalid"}} for n in "ab")
    check(home, agents("a", **before), agents("a", **after), changed=["agents.list[a].memorySearch.remote.apiKey"])


def test_another_state_directory_is_refused(home, tmp_path):
    old = home.load(own={})
    with pytest.raises(SettingsError, match="restart the daemon"):
        keep_until_restart(old, home.load(state_dir=str(tmp_path / "elsewhere")))


def test_the_state_directory_is_found_without_reading_its_files(home, tmp_path):
    home.write(home.own, "{ not JSON5")
    assert find_locations(environ={}, home=home.path).state_dir == home.state
    assert find_locations(environ={"MEMORYD_STATE_DIR": str(tmp_path)}, home=home.path).state_dir == tmp_path
    assert find_locations(environ={}, home=home.path, flags={"state_dir": str(tmp_path)}).state_dir == tmp_path


def test_the_order_of_agents_changes_nothing(home):
    listed = [{"id": "a"}, {"id": "b", "default": True}, {"id": "c"}]
    check(home, {"agents": {"list": listed}}, {"agents": {"list": listed[::-1]}})
