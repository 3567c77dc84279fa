"""Which files are read, in which order they count, and what is said of files that cannot be read."""

import os
from pathlib import Path

import pytest

from memoryd_server.settings.environment import process_environment
from memoryd_server.settings.loading import load


def test_without_any_file_main_lives_in_the_default_workspace(home):
    settings = home.load()
    agent = settings.agent("")
    assert list(settings.agents) == ["main"]
    assert agent.workspace == home.state / "workspace"
    assert agent.index_path == home.state / "memory" / "main.memoryd.sqlite"
    assert agent.enabled
    assert agent.default
    assert settings.warnings == ()
    assert set(settings.origins.values()) == {"default"}


def test_loading_creates_nothing(home):
    home.load()
    assert not home.path.exists()


@pytest.mark.parametrize(
    ("existing", "environ", "flags", "expected"),
    [
        ([], {}, {}, ".openclaw"),
        ([".moltbot"], {}, {}, ".moltbot"),
        ([".moltbot", ".openclaw"], {}, {}, ".openclaw"),
        ([".moltbot"], {"OPENCLAW_STATE_DIR": "~/other"}, {}, "other"),
        ([], {"OPENCLAW_STATE_DIR": "~/a", "MEMORYD_STATE_DIR": "~/b"}, {}, "b"),
        ([], {"MEMORYD_STATE_DIR": "~/b"}, {"state_dir": "~/c"}, "c"),
        ([], {"OPENCLAW_STATE_DIR": "  "}, {}, ".openclaw"),
    ],
)
def test_the_state_directory_is_the_first_one_named_or_there(home, existing, environ, flags, expected):
    for name in existing:
        (home.path / name).mkdir(parents=True)
    home.environ.update(environ)
    assert home.load(**flags).state_dir == home.path / expected


def test_memoryds_file_counts_over_the_references(home):
    reference = {"agents": {"defaults": {"memorySearch": {"query": {"maxResults": 3, "minScore": 0.1}}}}}
    own = {"agents": {"defaults": {"memorySearch": {"query": {"maxResults": 9}}}}}
    settings = home.load(reference, own)
    query = settings.agent("").memory_search.query
    assert (query.max_results, query.min_score) == (9, 0.1)
    prefix = "agents.list[main].memorySearch.query."
    assert settings.origins[prefix + "maxResults"] == str(home.own)
    assert settings.origins[prefix + "minScore"] == str(home.reference)


def test_a_null_takes_away_what_the_reference_says(home):
    reference = {"agents": {"defaults": {"memorySearch": {"query": {"maxResults": 3}}, "workspace": "/elsewhere"}}}
    own = {"agents": {"defaults": {"memorySearch": {"query": None}, "workspace": None}}}
    agent = home.load(reference, own).agent("")
    assert agent.memory_search.query.max_results == 6
    assert agent.workspace == home.state / "workspace"


def test_a_scope_replaces_an_earlier_one_as_a_whole(home):
    deny = {"memory": {"qmd": {"scope": {"default": "deny", "rules": [{"action": "allow"}]}}}}
    allow = {"memory": {"qmd": {"scope": {"rules": []}}}}
    scope = home.load(deny, allow).agent("").memory.qmd.scope
    assert (scope.default, scope.rules) == ("allow", ())


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_named_file_is_read_instead_of_the_one_in_the_state_directory(home, how):
    home.write(home.own, {"memoryd": {"filesPerTransaction": 1}})
    named = home.write(home.path / "named.json5", "{memoryd: {filesPerTransaction: 2}}")
    flags = {"config": named} if how == "flag" else {}
    home.environ.update({} if how == "flag" else {"MEMORYD_CONFIG": "~/named.json5"})
    assert home.load(**flags).service.files_per_transaction == 2


def test_json5_with_comments_single_quotes_and_a_byte_order_mark_is_read(home):
    text = "\ufeff// ours\n{memoryd: {log: {level: 'debug',},},}"
    assert home.load(own=text).service.log.level == "debug"


def test_variables_count_over_files_and_flags_over_variables(home):
    own = {"memoryd": {"log": {"level": "error"}, "listen": ["127.0.0.1:1"], "tokenFile": "/file"}}
    home.environ.update({"MEMORYD_LOG_LEVEL": "warning", "MEMORYD_LISTEN": "127.0.0.1:2, [::1]:2"})
    settings = home.load(own=own, log_level="debug")
    assert settings.service.log.level == "debug"
    assert settings.service.listen == ("127.0.0.1:2", "[::1]:2")
    assert settings.service.token_file == Path("/file")
    assert settings.origins["memoryd.log.level"] == "flag --log-level"
    assert settings.origins["memoryd.listen"] == "env MEMORYD_LISTEN"
    assert settings.origins["memoryd.tokenFile"] == str(home.own)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"listen": 5}, "memoryd.listen: expected an array, found a number"),
        ({"listen": [5]}, "memoryd.listen[0]: expected a string, found a number"),
        ({"listen": {"host": "x"}}, "memoryd.listen: expected an array, found an object"),
        ({"tokenFile": 5}, "memoryd.tokenFile: expected a string, found a number"),
        ({"limits": 5}, "memoryd.limits: expected an object, found a number"),
        ({"log": {"level": 5}}, "memoryd.log.level: expected one of"),
        (5, "memoryd: expected an object, found a number"),
    ],
)
def test_a_wrong_type_is_refused_with_the_same_message_if_a_flag_or_a_variable_hides_it(home, own, message):
    visible = home.refused(own={"memoryd": own})
    assert message in visible
    home.environ |= {"MEMORYD_LIMITS__MAX_CONNECTIONS": "5"}
    hidden = home.refused(listen="127.0.0.1:0", token_file="/token", log_level="info")
    assert [line for line in visible.splitlines() if message in line] == [
        line for line in hidden.splitlines() if message in line
    ]


def test_a_key_that_a_variable_completes_is_no_problem_of_the_file(home):
    assert "keyFile" in home.refused(own={"memoryd": {"tls": {"certFile": "/cert"}}})
    home.environ |= {"MEMORYD_TLS__KEY_FILE": "/key"}
    assert str(home.load().service.tls.key_file) == "/key"


@pytest.mark.parametrize("listen", ["127.0.0.1:5", ["127.0.0.1:5"], ("127.0.0.1:5",)])
def test_the_listen_flag_takes_one_address_or_several(home, listen):
    assert home.load(listen=listen).service.listen == ("127.0.0.1:5",)


def test_flags_that_are_none_or_empty_change_nothing(home):
    settings = home.load(workspace=None, state_dir="", listen=(), config=None, token_file=None, log_level=None)
    assert set(settings.origins.values()) == {"default"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{a: 1,\n  b: }", "memoryd.json5:2:6: not JSON5"),
        ("{a: 1", "memoryd.json5:1:"),
        ("", "not JSON5"),
        ("[1]", "expected an object, found an array"),
        ("[" * 5000, "nested too deeply"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested too deeply"),
        ("1" * 5000, "not JSON5"),
    ],
)
def test_a_file_that_is_not_a_json5_object_is_refused_with_its_place(home, content, complaint):
    assert complaint in home.refused(own=content)


def test_a_file_that_is_not_utf8_is_refused(home):
    home.state.mkdir(parents=True)
    home.own.write_bytes(b'{"a": "\xff"}')
    assert "not UTF-8 at byte 7" in home.refused()


def test_a_named_file_that_is_missing_is_refused(home):
    message = home.refused(config="~/absent.json5")
    assert f"{home.path / 'absent.json5'}: the file does not exist" in message


@pytest.mark.parametrize("name", ["openclaw.json", "memoryd.json5"])
def test_a_directory_in_place_of_a_file_is_refused(home, name):
    (home.state / name).mkdir(parents=True)
    assert f"{home.state / name}: the file cannot be read: Is a directory" in home.refused()


def test_a_file_in_place_of_the_state_directory_is_refused(home):
    home.write(home.state, "")
    assert "the file cannot be read: Not a directory" in home.refused()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_read_permission_is_refused(home):
    home.write(home.reference, {}).chmod(0)
    assert "the file cannot be read: Permission denied" in home.refused()


def test_both_broken_files_are_reported_together(home):
    message = home.refused("{", "{")
    assert "openclaw.json" in message
    assert "memoryd.json5" in message


def test_a_working_directory_that_is_gone_is_reported(home, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "working directory was removed" in home.refused(workspace="notes")


def test_the_processs_environment_is_a_copy(monkeypatch):
    monkeypatch.setenv("MEMORYD_LOG_LEVEL", "debug")
    environ = process_environment()
    monkeypatch.delenv("MEMORYD_LOG_LEVEL")
    assert environ["MEMORYD_LOG_LEVEL"] == "debug"


def test_two_loads_share_nothing(tmp_path):
    first, second = (load(environ={}, home=tmp_path / name) for name in ("a", "b"))
    assert first.agent("").workspace != second.agent("").workspace
