"""Variables of `.env` files and of `env.vars`, and `${NAME}` in the strings of the settings files."""

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.settings.layers import Findings
from memoryd_server.settings.loading import load
from memoryd_server.settings.substitution import Substitution
from memoryd_server.settings.variables import Variables, parse_dotenv

SECRET = "s3cr3t-value"


def blocked_by(loaded):
    return [blocker.where for blocker in loaded.remote_embeddings_blocked_by]


def dotenv(home, text, folder=None):
    return home.write((folder or home.state) / ".env", text)


def workspace(text, **more):
    return {"agents": {"defaults": {"workspace": text}}, **more}


def folder(loaded):
    return str(loaded.agent("").workspace)


# The text of a .env file. The expected values are those of Node's dotenv.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1", {"A": "1"}),
        ("export B = two # c", {"B": "two"}),
        ("C='a b' # x", {"C": "a b"}),
        ('D="l1\\nl2"', {"D": "l1\nl2"}),
        ("E=`b't`", {"E": "b't"}),
        ("F=\nG: yaml", {"F": "", "G": "yaml"}),
        ("H=a#b", {"H": "a"}),
        ("  I=  sp  ", {"I": "sp"}),
        ('J="multi\nline"\nK=1', {"J": "multi\nline", "K": "1"}),
        ("K='unterminated\nL=ok", {"K": "'unterminated", "L": "ok"}),
        ("M=a=b=c", {"M": "a=b=c"}),
        ("N-x=1\n2=3\nV.w=2\n=3\nW\nÉ=1", {}),
        ('O="a\\"b"', {"O": 'a\\"b'}),
        ("P='x'y", {"P": "'x'y"}),
        ("#Q=1", {}),
        ("R=${A}", {"R": "${A}"}),
        ("T= # only", {"T": ""}),
        ('U="x" trailing', {"U": '"x" trailing'}),
        ("A=1\r\nB=2\rC=3\n\nexport\nD=4", {"A": "1", "B": "2", "C": "3", "D": "4"}),
        ("A=1\nA=2", {"A": "2"}),
        ("A='x\\'", {"A": "x\\"}),
    ],
    ids=str,
)
def test_a_dotenv_file_is_read_as_node_reads_it(text, expected):
    assert parse_dotenv(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "A='\\'\n" * 100_000 + "'x",
        "A='\n" * 200_000,
        'A="x\n' * 100_000 + '"' + "y" * 500_000,
        "=" * 2**20,
        " " * 2**20,
    ],
    ids=["escaped", "open", "closed once", "signs", "blanks"],
)
def test_a_dotenv_file_is_read_in_linear_time(text):
    start = time.process_time()
    parse_dotenv(text)
    assert time.process_time() - start < 10


@given(st.text(alphabet="A=\n'\"`#\\ x"))
def test_no_text_of_a_dotenv_file_raises(text):
    assert all("=" not in name for name in parse_dotenv(text))


# Which variables are read


def test_the_process_takes_precedence_over_dotenv_files_and_these_over_env_vars(home):
    dotenv(home, "A=dotenv\nB=dotenv")
    home.environ["A"] = "process"
    settings = workspace("/${A}/${B}/${C}", env={"vars": {"A": "vars", "B": "vars", "C": "vars"}})
    loaded = home.load(settings)
    assert folder(loaded) == "/process/dotenv/vars"
    assert loaded.origins["agents.list[main].workspace"] == (
        f"{home.reference}, ${{A}} from env A, ${{B}} from {home.state / '.env'}: B,"
        f" ${{C}} from {home.reference}: env.vars.C"
    )


def test_a_blank_variable_of_the_process_hides_dotenv_and_not_env_vars(home):
    dotenv(home, "A=dotenv")
    home.environ["A"] = ""
    assert folder(home.load(workspace("/${A}", env={"vars": {"A": "vars"}}))) == "/vars"


def test_a_variable_directly_in_env_is_read_and_env_vars_takes_precedence(home):
    env = {"A": "old", "B": "old", "vars": {"B": "new"}, "shellEnv": {"enabled": False}}
    assert folder(home.load(workspace("/${A}/${B}", env=env))) == "/old/new"


def test_env_vars_of_an_included_file_and_of_memoryds_own_file_are_read(home):
    home.write(home.state / "vars.json5", {"A": "included", "B": "included"})
    settings = workspace("/${A}/${B}", env={"vars": {"$include": "vars.json5"}})
    assert folder(home.load(settings, {"env": {"vars": {"B": "own"}}})) == "/included/own"


@pytest.mark.parametrize(
    ("env", "warning"),
    [
        ({"vars": {"A": 5}}, "env.vars.A: not a variable with a string"),
        ({"vars": {"A-B": "x"}}, "env.vars.A-B: not a variable with a string"),
        ({"vars": {"A": "${HOME}"}}, "env.vars.A: the value names another variable"),
        ({"vars": "x"}, "env.vars: expected an object, found a string"),
        ("x", "env: expected an object, found a string"),
    ],
    ids=str,
)
def test_a_variable_that_cannot_be_set_is_ignored_with_a_warning(home, env, warning):
    home.environ["HOME"] = str(home.path)
    (found,) = home.load({"env": env}).warnings
    assert warning in found


@pytest.mark.parametrize(
    ("environ", "files"),
    [
        ({}, [".openclaw", ".config/openclaw/gateway.env"]),
        ({"OPENCLAW_STATE_DIR": "~/s"}, ["s"]),
        ({"MEMORYD_STATE_DIR": "~/s"}, ["s"]),
        ({"OPENCLAW_STATE_DIR": "~/.openclaw"}, [".openclaw", ".config/openclaw/gateway.env"]),
        ({"OPENCLAW_CONFIG_PATH": "~/c/openclaw.json"}, [".openclaw", "c", ".config/openclaw/gateway.env"]),
        ({"OPENCLAW_HOME": "~/h"}, ["h/.openclaw", "h/.config/openclaw/gateway.env"]),
    ],
    ids=str,
)
def test_the_dotenv_files_are_those_of_openclaw(home, environ, files):
    home.environ.update(environ)
    expected = {}
    for number, name in enumerate(files):
        file = home.path / name if name.endswith(".env") else home.path / name / ".env"
        home.write(file, f"FIRST={number}\nOF_{number}=1")
        expected[f"OF_{number}"] = "1"
    home.write(home.path / ".env", "OTHER=1")
    names = "/".join(["${FIRST}", *(f"${{{name}}}" for name in expected), "${OTHER}"])
    loaded = home.load(own=workspace(f"/{names}"), config=home.write(home.path / "own.json5", workspace(f"/{names}")))
    assert folder(loaded) == "/0/" + "/".join(expected.values()) + "/${OTHER}"


def test_provider_keys_are_found_in_dotenv_files_and_env_vars_and_are_not_shown(home):
    dotenv(home, f"OPENAI_API_KEY={SECRET}")
    settings = {
        "env": {"vars": {"MISTRAL_API_KEY": SECRET, "OPENAI_API_KEY": "another-key"}},
        "agents": {"defaults": {"memorySearch": {"provider": "openai", "fallback": "mistral"}}},
    }
    loaded = home.load(settings)
    access = loaded.agent("").provider_access["openai"]
    assert [key.get_secret_value() for key in access.keys] == [SECRET]
    shown = {entry["key"]: entry for entry in loaded.describe()}
    assert shown["agents.list[main].access.openai"]["origin"] == f"{home.state / '.env'}: OPENAI_API_KEY"
    origin = f"{home.reference}: env.vars.MISTRAL_API_KEY"
    assert shown["agents.list[main].fallbackAccess.mistral"]["origin"] == origin
    assert SECRET not in json.dumps([loaded.describe(), loaded.warnings])


def test_a_key_may_name_a_variable_of_a_dotenv_file(home):
    dotenv(home, f"MY_KEY={SECRET}")
    search = {"provider": "openai", "remote": {"apiKey": "${MY_KEY}", "headers": {"X": "$${MY_KEY}"}}}
    access = home.load({"agents": {"defaults": {"memorySearch": search}}}).agent("").provider_access["openai"]
    assert [key.get_secret_value() for key in access.keys] == [SECRET]
    assert access.headers["x"].get_secret_value() == "${MY_KEY}"


def test_memoryds_variables_count_only_in_the_process_and_commands_get_none_of_files(home):
    dotenv(home, "MEMORYD_LOG_LEVEL=debug\nHTTPS_PROXY=http://proxy\nQMD_X=1")
    loaded = home.load({"env": {"vars": {"MEMORYD_WORKSPACE": "/w"}}})
    assert loaded.service.log.level == "info"
    assert folder(loaded) == str(home.state / "workspace")
    assert loaded.child_environment == {}


@pytest.mark.parametrize("place", ["dotenv", "vars"])
def test_the_default_workspace_and_the_profile_may_be_set_in_files(home, place):
    def load_with(name, value):
        dotenv(home, f"{name}={value}" if place == "dotenv" else "")
        return home.load({"env": {"vars": {name: value}}} if place == "vars" else {})

    assert folder(load_with("OPENCLAW_WORKSPACE_DIR", "/w")) == "/w"
    loaded = load_with("OPENCLAW_PROFILE", "work")
    assert folder(loaded) == str(home.path / ".openclaw-work" / "workspace")
    origin = f"{home.state / '.env'}: " if place == "dotenv" else f"{home.reference}: env.vars."
    assert loaded.origins["agents.list[main].workspace"] == f"{origin}OPENCLAW_PROFILE"


@pytest.mark.parametrize("name", ["OPENCLAW_HOME", "OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH"])
def test_a_file_that_would_move_the_settings_disables_providers(home, name):
    same = {"OPENCLAW_HOME": home.path, "OPENCLAW_STATE_DIR": home.state, "OPENCLAW_CONFIG_PATH": home.reference}
    home.write(home.reference, {})
    file = dotenv(home, f"{name}={same[name]}")
    assert blocked_by(home.load()) == []
    dotenv(home, f"{name}=/elsewhere")
    assert blocked_by(home.load()) == [f"{file}: {name}"]
    home.environ[name] = str(same[name])
    assert blocked_by(home.load()) == []


@pytest.mark.parametrize("kind", ["folder", "fifo", "large", "unreadable"])
def test_a_dotenv_file_that_cannot_be_read_disables_providers(home, kind):
    file = home.state / ".env"
    home.state.mkdir(parents=True)
    if kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "large":
        file.write_text("#" * (2**20 + 1))
    else:
        file.symlink_to(file)
    assert blocked_by(home.load()) == [str(file)]


def test_a_dotenv_file_that_is_not_utf8_is_read(home):
    home.state.mkdir(parents=True)
    (home.state / ".env").write_bytes(b"\xef\xbb\xbfA=/w\nB=\xff\n")
    assert folder(home.load(workspace("${A}/${B}"))) == "/w/\ufffd"


@pytest.mark.parametrize("how", ["file", "process", "dotenv"])
def test_the_login_shell_is_not_run_and_a_warning_says_so(home, how):
    home.environ.update({"OPENCLAW_LOAD_SHELL_ENV": "1"} if how == "process" else {})
    dotenv(home, "OPENCLAW_LOAD_SHELL_ENV=true" if how == "dotenv" else "")
    loaded = home.load({"env": {"shellEnv": {"enabled": how == "file"}}})
    (warning,) = loaded.warnings
    assert "memoryd runs no shell" in warning
    assert blocked_by(loaded) == []


# ${NAME}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "1"),
        ("x${A}y${A_B}", "x1y2"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("${lower}", "${lower}"),
        ("${Mixed}", "${Mixed}"),
        ("${1A}", "${1A}"),
        ("${A", "${A"),
        ("${ A }", "${ A }"),
        ("$A", "$A"),
        ("${NESTED}", "${A}"),
        ("${_}", "3"),
    ],
)
def test_a_variable_in_a_string_is_replaced(text, expected):
    environ = {"A": "1", "A_B": "2", "lower": "x", "Mixed": "x", "NESTED": "${A}", "_": "3"}
    report = Findings()
    found = Substitution(Variables(environ), report).fill({"k": [text, 5]}, ("memory",), "file", [])
    assert found == {"k": [expected, 5]}
    assert report.warnings == []


@pytest.mark.parametrize("environ", [{}, {"MODEL": ""}, {"MODEL": " "}])
def test_an_unset_variable_leaves_the_text_with_a_warning(home, environ):
    home.environ.update(environ)
    loaded = home.load({"agents": {"list": [{"id": "a", "memorySearch": {"model": "m-${MODEL}"}}]}})
    assert loaded.agent("a").memory_search.model == "m-${MODEL}"
    (warning,) = loaded.warnings
    assert warning == (
        f"{home.reference}: agents.list[a].memorySearch.model: "
        "names the variable MODEL, which is not set; the text is used as it is"
    )


def test_variables_of_sections_that_memoryd_does_not_read_are_no_concern(home):
    assert home.load({"channels": {"telegram": {"botToken": "${TELEGRAM}"}}}).warnings == ()


def test_a_workspace_with_an_unset_variable_switches_off_the_memory_of_its_agent(home):
    listed = [{"id": "a", "workspace": "${WS}/a"}, {"id": "b", "workspace": "/b"}]
    loaded = home.load({"agents": {"list": listed}})
    agent = loaded.agent("a")
    assert (agent.enabled, agent.memory_enabled) == (False, False)
    assert agent.disabled_reason == "the workspace names the variable WS, which is not set"
    assert loaded.agent("b").memory_enabled
    assert "agents.list[a].workspace: names the variable WS" in loaded.warnings[0]
    home.environ["WS"] = "/set"
    assert str(home.load().agent("a").workspace) == "/set/a"
    assert home.load().agent("a").memory_enabled


def test_an_index_with_an_unset_variable_is_at_the_default_place(home):
    search = {"store": {"path": "${INDEXES}/{agentId}.sqlite"}}
    loaded = home.load({"agents": {"defaults": {"memorySearch": search}}})
    assert loaded.agent("").index_path == home.state / "memory" / "main.memoryd.sqlite"
    assert "names the variable INDEXES, which is not set; the key is ignored" in loaded.warnings[0]


def test_the_length_of_replaced_text_is_bounded(home):
    home.environ["BIG"] = "x" * 100_000
    loaded = home.load({"agents": {"defaults": {"memorySearch": {"model": "${BIG}" * 1000}}}})
    assert len(loaded.agent("").memory_search.model) < 5 * 2**20
    assert "names the variable BIG, which is too long" in loaded.warnings[0]


def test_a_change_of_a_dotenv_file_is_read_by_the_next_load(home):
    dotenv(home, "WS=/one")
    assert folder(home.load(workspace("${WS}"))) == "/one"
    dotenv(home, "WS=/two")
    assert folder(load(environ=home.environ, home=home.path)) == "/two"
