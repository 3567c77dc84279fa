"""Which folders and files hold the settings: OpenClaw's rules, and memoryd's variables and flags above them."""

import os
import pwd
from pathlib import Path

import pytest

from memoryd_server.settings.loading import find_locations, load


def blocked_by(loaded):
    return [blocker.where for blocker in loaded.remote_embeddings_blocked_by]


def has_read(home, file, **flags):
    """Return whether `file` is the one that OpenClaw's settings are read from."""
    home.write(file, {"agents": {"defaults": {"userTimezone": "Asia/Tokyo"}}})
    return home.load(**flags).agent("").user_timezone == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("existing", "environ", "expected"),
    [
        ([".clawdbot"], {}, ".clawdbot"),
        ([".moltbot"], {}, ".moltbot"),
        ([".clawdbot", ".moltbot"], {}, ".clawdbot"),
        ([".clawdbot", ".openclaw"], {}, ".openclaw"),
        ([".openclaw"], {"OPENCLAW_HOME": "~/svc"}, "svc/.openclaw"),
        (["svc/.clawdbot"], {"OPENCLAW_HOME": "~/svc"}, "svc/.clawdbot"),
        ([], {"OPENCLAW_HOME": " undefined "}, ".openclaw"),
        ([], {"OPENCLAW_HOME": "null"}, ".openclaw"),
        ([], {"OPENCLAW_STATE_DIR": "undefined"}, ".openclaw"),
        ([], {"OPENCLAW_HOME": "~/svc", "OPENCLAW_STATE_DIR": "~/state"}, "svc/state"),
        ([], {"OPENCLAW_HOME": "~/svc", "MEMORYD_STATE_DIR": "~/state"}, "state"),
        ([], {"OPENCLAW_PROFILE": "work"}, ".openclaw"),
        ([], {"OPENCLAW_CONFIG_PATH": "~/elsewhere/openclaw.json"}, ".openclaw"),
    ],
    ids=str,
)
def test_the_state_directory_follows_openclaws_variables(home, existing, environ, expected):
    for name in existing:
        (home.path / name).mkdir(parents=True)
    home.environ.update(environ)
    assert home.load().state_dir == home.path / expected
    assert find_locations(environ=home.environ, home=home.path).state_dir == home.path / expected


def test_a_home_that_is_not_set_is_the_one_of_the_account(home):
    home.environ["HOME"] = "undefined"
    account = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert find_locations(environ=home.environ, home=home.path).state_dir.parent == account


@pytest.mark.parametrize(
    ("environ", "file"),
    [
        ({}, ".openclaw/openclaw.json"),
        ({}, ".openclaw/clawdbot.json"),
        ({}, ".clawdbot/openclaw.json"),
        ({}, ".clawdbot/clawdbot.json"),
        ({}, ".moltbot/openclaw.json"),
        ({"OPENCLAW_STATE_DIR": "~/s"}, "s/clawdbot.json"),
        ({"OPENCLAW_HOME": "~/h"}, "h/.openclaw/openclaw.json"),
        ({"OPENCLAW_CONFIG_PATH": "~/x.json"}, "x.json"),
        ({"OPENCLAW_HOME": "~/h", "OPENCLAW_CONFIG_PATH": "~/x.json"}, "h/x.json"),
        ({"OPENCLAW_CONFIG_PATH": "~/x.json", "OPENCLAW_STATE_DIR": "~/s"}, "x.json"),
    ],
    ids=str,
)
def test_the_settings_file_is_found_where_openclaw_finds_it(home, environ, file):
    home.environ.update(environ)
    assert home.load().agent("").user_timezone is None
    assert has_read(home, home.path / file)
    assert blocked_by(home.load()) == []


def test_a_newer_file_takes_precedence_and_an_older_folder_is_read_if_the_newer_one_has_none(home):
    assert has_read(home, home.path / ".clawdbot" / "openclaw.json")
    home.state.mkdir()
    assert home.load().agent("").user_timezone == "Asia/Tokyo"
    assert home.load().state_dir == home.state
    home.write(home.state / "clawdbot.json", {"agents": {"defaults": {"userTimezone": "Asia/Seoul"}}})
    assert home.load().agent("").user_timezone == "Asia/Seoul"
    home.write(home.reference, {})
    assert home.load().agent("").user_timezone is None


def test_the_flag_for_the_state_directory_takes_precedence_over_openclaws_variables(home):
    home.environ |= {"OPENCLAW_STATE_DIR": "~/theirs", "OPENCLAW_HOME": "~/svc"}
    assert has_read(home, home.path / "mine" / "openclaw.json", state_dir=home.path / "mine")


def test_a_named_file_that_is_missing_disables_providers(home):
    home.environ["OPENCLAW_CONFIG_PATH"] = "~/gone.json"
    loaded = home.load()
    assert blocked_by(loaded) == ["env OPENCLAW_CONFIG_PATH"]
    assert f"{home.path / 'gone.json'} does not exist" in loaded.warnings[0]


@pytest.mark.parametrize(
    ("environ", "expected", "origin"),
    [
        ({}, ".openclaw/workspace", "default"),
        ({"OPENCLAW_PROFILE": "work"}, ".openclaw-work/workspace", "env OPENCLAW_PROFILE"),
        ({"OPENCLAW_PROFILE": "Default"}, ".openclaw/workspace", "default"),
        ({"OPENCLAW_PROFILE": "null"}, ".openclaw/workspace", "default"),
        ({"OPENCLAW_PROFILE": "work", "OPENCLAW_STATE_DIR": "~/s"}, "s/workspace", "default"),
        ({"OPENCLAW_PROFILE": "work", "MEMORYD_STATE_DIR": "~/s"}, "s/workspace", "default"),
        ({"OPENCLAW_HOME": "~/h", "OPENCLAW_PROFILE": "work"}, "h/.openclaw-work/workspace", "env OPENCLAW_PROFILE"),
        ({"OPENCLAW_WORKSPACE_DIR": "HOME/w", "OPENCLAW_STATE_DIR": "~/s"}, "w", "env OPENCLAW_WORKSPACE_DIR"),
        ({"OPENCLAW_WORKSPACE_DIR": "HOME/w", "MEMORYD_WORKSPACE": "~/m"}, "m", "env MEMORYD_WORKSPACE"),
    ],
    ids=str,
)
def test_the_default_workspace_follows_openclaws_variables(home, environ, expected, origin):
    home.environ.update({name: value.replace("HOME", str(home.path)) for name, value in environ.items()})
    loaded = home.load()
    assert loaded.agent("").workspace == home.path / expected
    assert loaded.origins["agents.list[main].workspace"] == origin
    assert blocked_by(loaded) == []
    named = home.write(home.path / "named.json5", {"agents": {"defaults": {"workspace": "/configured"}}})
    configured = home.load(config=named).agent("").workspace
    assert configured == (home.path / "m" if "MEMORYD_WORKSPACE" in environ else Path("/configured"))


@pytest.mark.parametrize(("existing", "expected"), [(".clawdbot", ".openclaw"), (".moltbot", ".moltbot")])
def test_the_default_workspace_is_in_the_newest_folder_except_for_the_oldest_one(home, existing, expected):
    (home.path / existing).mkdir(parents=True)
    assert home.load().agent("").workspace == home.path / expected / "workspace"


def test_tilde_in_openclaws_file_is_its_home_and_elsewhere_the_users(home):
    home.environ["OPENCLAW_HOME"] = "~/svc"
    state = home.path / "svc" / ".openclaw"
    home.write(state / "openclaw.json", {"agents": {"defaults": {"workspace": "~/notes"}}})
    home.write(state / "memoryd.json5", {"memoryd": {"tokenFile": "~/tokens"}})
    loaded = load(environ=home.environ, home=home.path)
    assert loaded.agent("").workspace == home.path / "svc" / "notes"
    assert loaded.service.token_file == home.path / "tokens"
