"""`memoryd token` without a daemon; tests/e2e/test_access.py tests it with one."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from memoryd_server.access.grants import Scope
from memoryd_server.access.token_store import TokenStore
from memoryd_server.access.tokens import TokenFiles
from memoryd_server.cli.token import token


@pytest.fixture
def state(tmp_path):
    (tmp_path / "memoryd.json5").write_text('{agents: {list: [{id: "main"}, {id: "work"}]}}')
    return tmp_path


@pytest.fixture
def records(state):
    return TokenStore(TokenFiles.in_state_dir(state, None).store).read


@pytest.fixture
def run(state, monkeypatch):
    for name in ("MEMORYD_STATE_DIR", "MEMORYD_CONFIG", "MEMORYD_TOKEN_FILE", "OPENCLAW_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def run(verb, *arguments, code=0):
        done = CliRunner().invoke(token, [verb, "--state-dir", str(state), *arguments])
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--agent", "wrok"), 3, "no agent 'wrok' is configured; configured agents: main, work"),
        (("--agent", ""), 2, "--agent"),
        (("--scope", "write"), 2, "'write' is not one of"),
        (("--scope", ""), 2, "is not one of"),
        (("--expires", "soon"), 2, "write 90d, 12h, 30m or 2w"),
        (("--expires", "0d"), 2, "not between"),
        (("--expires", "-1d"), 2, "write 90d"),
        (("--expires", "99999999d"), 2, "not between"),
        (("--expires", "9" * 400 + "d"), 2, "write 90d"),
        (("--expires", "90"), 2, "write 90d"),
        (("--expires", "٣d"), 2, "write 90d"),
        (("--name", "a\nb"), 2, "printable"),
        (("--name", "x" * 101), 2, "printable"),
    ],
)
def test_invalid_options_create_no_token(run, records, arguments, code, message):
    assert message in run("new", *arguments, code=code).stderr
    assert records() == ()


@pytest.mark.parametrize(
    ("text", "lifetime"), [("90d", timedelta(days=90)), ("12h", timedelta(hours=12)), ("2w", timedelta(weeks=2))]
)
def test_lifetime_starts_now(run, records, text, lifetime):
    run("new", "--expires", text)
    (record,) = records()
    assert record.expires - record.created == lifetime
    assert abs(record.created - datetime.now(UTC)) < timedelta(minutes=1)


def test_only_the_token_is_on_standard_output(run, records):
    done = run("new", "--agent", "WORK", "--agent", "main", "--agent", "work", "--name", "für alle")
    (record,) = records()
    assert done.stdout.startswith("memoryd_")
    assert len(done.stdout.split()) == 1
    assert f"Token {record.token_id}, for main, work, without expiry" in done.stderr
    assert (record.agents, record.name) == (("main", "work"), "für alle")


def test_scopes_are_stored_and_listed(run, records):
    run("new", "--name", "plain")
    created = run("new", "--scope", "admin", "--scope", "edit", "--name", "full")
    assert created.stderr.endswith(", scope edit, admin. Not shown again.\n")
    assert [record.scopes for record in records()] == [None, (Scope.EDIT, Scope.ADMIN)]
    listed = run("list").stdout.splitlines()
    assert [line.split("  ", 3)[3] for line in listed] == [
        "every agent  admin  plain",
        "every agent  edit, admin  full",
    ]
    assert [entry["scopes"] for entry in json.loads(run("list", "--json").stdout)] == [["admin"], ["edit", "admin"]]


@pytest.mark.parametrize("scope", Scope)
def test_every_scope_can_be_given(run, scope):
    assert json.loads(run("new", "--scope", scope.value, "--json").stdout)["scopes"] == [scope]


def test_expired_token_is_marked_in_the_list(run, state):
    now = datetime.now(UTC)
    TokenStore(TokenFiles.in_state_dir(state, None).store).add(
        "", None, now - timedelta(days=2), now - timedelta(days=1)
    )
    assert "  expired 20" in run("list").stdout
    assert [entry["expired"] for entry in json.loads(run("list", "--json").stdout)] == [True]


def test_empty_list_says_where_the_first_token_comes_from(run):
    assert "No tokens" in run("list").stdout
    assert json.loads(run("list", "--json").stdout) == []


def test_tokens_of_the_token_file_are_counted_but_not_shown(run, state):
    file = state / "memoryd.token"
    file.write_text("the-first\nthe-second\n")
    file.chmod(0o600)
    assert f"2 in {file}, for every agent, without expiry, scope admin;" in run("list").stdout
    listed = run("list", "--json").stdout
    assert [entry["file"] for entry in json.loads(listed)] == [str(file)] * 2
    assert [entry["scopes"] for entry in json.loads(listed)] == [["admin"]] * 2
    assert "the-first" not in listed


def test_token_store_that_others_can_read_is_refused(run, records, state):
    run("new")
    store = TokenFiles.in_state_dir(state, None).store
    store.chmod(0o644)
    for verb in (("list",), ("new",), ("revoke", "x")):
        assert f"chmod 600 {store}" in run(*verb, code=2).stderr
    store.chmod(0o600)
    assert len(records()) == 1


def test_only_an_existing_token_can_be_revoked(run, records):
    run("new")
    (record,) = records()
    assert "there is no token 'x'" in run("revoke", "x", code=3).stderr
    assert run("revoke", record.token_id).stdout == f"Revoked: {record.token_id}\n"
    assert records() == ()
