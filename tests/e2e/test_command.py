"""The `memoryd` command as people and scripts use it: with a daemon and without one."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid

import pytest
from click.testing import CliRunner

from daemon_process import COMMAND, environment, memoryd, serving
from memoryd_server.cli.main import main
from terminal import converse

# Runs a command with the default handler of SIGINT, which a process inherits as ignored where the tests run in the
# background.
RESET = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
INTERRUPTIBLE = [sys.executable, "-c", RESET]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    root = tmp_path_factory.mktemp("workspace")
    (root / "memory").mkdir()
    (root / "MEMORY.md").write_text("# Lasting\n\nThe harbour master is called Ilse.\n", "utf-8")
    (root / "memory" / "2026-01-02.md").write_text("# Log\n\nThe ferry was late.\n\n会议在周五\n", "utf-8")
    return root


@pytest.fixture(scope="module")
def served(workspace, tmp_path_factory, home):
    state = tmp_path_factory.mktemp("state")
    with serving(workspace, state, home=home) as daemon:
        daemon.memoryd("index")
        yield daemon


@pytest.fixture(params=["with a daemon", pytest.param("without a daemon", marks=pytest.mark.slow)])
def run(request, served, alone):
    """Runs a verb: through the daemon that runs, or all by itself."""
    return served.memoryd if request.param == "with a daemon" else alone


@pytest.fixture
def alone(workspace, tmp_path_factory, home):
    """Runs a verb without a daemon."""
    state = tmp_path_factory.mktemp("lone")

    def alone(*arguments, **options):
        return memoryd(*arguments, "--state-dir", state, "--workspace", workspace, home=home, **options)

    return alone


def check(done, *, code=0, out="", err=""):
    assert done.returncode == code, (done.stdout, done.stderr)
    assert re.search(out, done.stdout, re.DOTALL | re.MULTILINE), done.stdout
    assert re.search(err, done.stderr, re.DOTALL), done.stderr
    return done


def test_a_search_prints_score_place_and_text(run):
    check(run("search", "harbour", "master"), out=r"^1\.000 MEMORY\.md:1-\d+\n.*Ilse")


def test_a_search_works_without_a_daemon(alone):
    check(alone("search", "harbour", "master"), out=r"^1\.000 MEMORY\.md:1-\d+\n.*Ilse")


@pytest.mark.slow
def test_a_note_does_not_control_the_terminal(tmp_path):
    (tmp_path / "w" / "memory").mkdir(parents=True)
    (tmp_path / "w" / "memory" / "a.md").write_text("The ferry\x07 was \x9b31mlate.\n", "utf-8")
    options = ("--workspace", tmp_path / "w", "--state-dir", tmp_path / "s", "ferry")
    code, shown = converse("search", *options, home=tmp_path, answers=())
    assert code == 0
    assert "The ferry was 31mlate." in shown
    # A pipe gets the text as it is.
    assert "The ferry\x07 was" in memoryd("search", *options, home=tmp_path).stdout


def test_a_search_in_json_is_the_contracts_reply(run):
    answer = json.loads(check(run("search", "--json", "--max-results", "1", "会议")).stdout)
    assert [result["path"] for result in answer["results"]] == ["memory/2026-01-02.md"]
    assert answer["info"]["servedMode"] == "SEARCH_MODE_KEYWORD"


@pytest.mark.slow
def test_a_search_without_a_match_says_why_and_succeeds(run):
    check(run("search", "xylophone"), out="No matches: none of the query's words")


@pytest.mark.slow
def test_a_search_uses_the_agent_of_the_session_key_or_the_default_agent(workspace, tmp_path, home):
    (tmp_path / "memoryd.json5").write_text('{agents: {list: [{id: "rest"}, {id: "work", default: true}]}}', "utf-8")
    there = ("--state-dir", tmp_path, "--workspace", workspace)
    check(memoryd("search", "harbour", *there, home=home), out=r"^1\.000 MEMORY\.md")
    for key in ("main", "agent:work:main"):
        check(memoryd("search", "harbour", "--session-key", key, *there, home=home), out=r"^1\.000 MEMORY\.md")
    check(memoryd("search", "harbour", "--session-key", "agent:rest:main", *there, home=home), out="No matches")
    wrong = memoryd("search", "harbour", "--session-key", "agent:rest:x", "--agent", "work", *there, home=home)
    check(wrong, code=2, err="session_key: names the agent 'rest', but the request is for the agent 'work'")


@pytest.mark.slow
def test_a_search_for_nothing_is_a_usage_error(run):
    check(run("search"), code=2, err="the query is empty")


@pytest.mark.slow
def test_min_score_out_of_range_is_reported_with_the_field(run):
    check(run("search", "ferry", "--min-score", "7"), code=2, err=r"min_score: .*between 0 and 1.*INVALID_REQUEST")


def test_get_prints_the_lines_and_how_to_go_on(run):
    done = check(run("get", "MEMORY.md", "--line-count", "1"), err=r"lines 1-1 of \d; continue with --start-line 2")
    assert done.stdout == "# Lasting\n"


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [("memory/none.md", 3, "FILE_NOT_FOUND"), ("../../etc/passwd", 4, "PATH_NOT_ALLOWED")],
)
def test_get_distinguishes_a_missing_file_from_a_forbidden_one(run, path, code, reason):
    check(run("get", path), code=code, err=reason)


@pytest.mark.slow
def test_an_unknown_agent_is_not_found_and_the_known_ones_are_named(run):
    check(run("search", "--agent", "nobody", "ferry"), code=3, err="configured are: main")
    check(run("status", "--agent", "nobody"), code=3, err="configured are: main")


@pytest.mark.slow
def test_index_says_what_it_did(run):
    check(run("index"), out=r"Memory index updated \(main\): \d+ indexed, \d+ unchanged, 0 removed, 0 failed")
    check(run("index", "--force"), out=r"\(main\): [23] indexed, 0 unchanged")
    check(run("index", "--dry-run"), out="main: 0 files to read")


def test_index_in_json_is_one_event_a_line(run):
    events = [json.loads(line) for line in check(run("index", "--json")).stdout.splitlines()]
    assert "started" in events[0]
    assert "completed" in events[-1]


@pytest.mark.slow
def test_index_fails_when_a_file_does(run, workspace):
    name = bytes(workspace / "memory") + b"/\xff.md"
    os.close(os.open(name, os.O_CREAT))
    try:
        check(run("index"), code=1, out="1 failed", err="UTF-8")
        check(run("files"), out="failed")
    finally:
        os.unlink(name)  # noqa: PTH108 -- no Path can hold the name


def test_status_shows_index_provider_and_sync(run):
    run("index")
    check(run("status"), out=r"Agent main\n(.*\n)*  Indexed    [23]/[23] files")
    report = json.loads(check(run("status", "--json", "--deep", "--index")).stdout)
    assert report[0]["status"]["index"]["state"] == "INDEX_STATE_READY"


@pytest.mark.slow
def test_the_files_of_each_root_and_what_is_excluded_are_shown(tmp_path, home):
    workspace, state = tmp_path / "workspace", tmp_path / "state"
    for name in ("memory/a.md", "memory/drafts/b.md", "notes/c.md"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("a heron", "utf-8")
    (workspace / ".memoryignore").write_text("drafts/\n", "utf-8")
    state.mkdir()
    settings = state / "memoryd.json5"

    def run(*arguments):
        return memoryd(*arguments, "--state-dir", state, "--workspace", workspace, home=home)

    check(run("index"))
    assert "Root " not in check(run("status")).stdout
    settings.write_text(json.dumps({"agents": {"defaults": {"memorySearch": {"extraPaths": ["notes"]}}}}), "utf-8")
    shown = check(run("status")).stdout
    assert "  Root       .: 1/1 files (memory)\n" in shown
    assert re.search(r"  Root       notes: 0/1 files · 1 pending for \d+ s \(memory\)\n", shown)
    (report,) = json.loads(run("status", "--json").stdout)
    assert [root["root"] for root in report["status"]["index"]["roots"]] == [".", "notes"]
    assert "drafts" not in check(run("files")).stdout
    check(run("files", "--excluded"), out=r"excluded .* memory/drafts/: \.memoryignore:1: drafts/\n")


@pytest.mark.slow
def test_files_and_agents_are_listed(run):
    run("index")
    check(run("files"), out=r"indexed .* MEMORY\.md")
    check(run("agents"), out=r"main \(default\): (ready|stale)")
    assert json.loads(run("files", "--json").stdout)[0]["path"] == "MEMORY.md"
    assert json.loads(run("agents", "--json").stdout)[0]["agentId"] == "main"


def test_an_append_with_a_key_is_done_once(run, workspace):
    path = f"memory/append-{uuid.uuid4()}.md"
    arguments = ("append", "--path", path, "--key", path, "-")
    check(run(*arguments, stdin="from standard input\n"), out=f"^Appended: {path}:1-1")
    check(run(*arguments, stdin="from standard input\n"), out=f"^Already appended: {path}:1-1")
    assert (workspace / path).read_text("utf-8") == "from standard input\n"
    (workspace / path).unlink()


@pytest.mark.slow
def test_flush_decides(run):
    check(run("flush", "--total-tokens", "180000"), out="Flush now: token threshold")
    check(run("flush", "--total-tokens", "1000"), out="No flush: below threshold")
    assert json.loads(run("flush", "--json", "--total-tokens", "180000").stdout)["flush"] is True


@pytest.mark.slow
def test_what_is_forgotten_is_found_no_more_and_stays_unless_it_is_to_go(run, workspace):
    file = workspace / "memory" / f"forget-{uuid.uuid4()}.md"
    file.write_text("the narwhal surfaced\n", "utf-8")
    path = str(file.relative_to(workspace))
    check(run("index"))
    check(run("search", "narwhal"), out=path)
    check(run("forget", path), out=r"^Removed: 1 chunks, 1 keyword entries$")
    check(run("search", "narwhal"), out="No matches")
    assert file.exists()
    reply = json.loads(run("forget", "--json", "--delete-source", path).stdout)
    assert reply["sourceFiles"] == 1
    assert not file.exists()
    check(run("forget", path), code=3, err="neither on disk nor in the index.*FILE_NOT_FOUND")
    check(run("forget", "--text", "x", path), code=2, err="give exactly one of")
    check(run("forget"), code=2, err="give exactly one of")


@pytest.mark.slow
def test_a_session_s_start_and_end(run, workspace, served, request):
    context = check(run("session", "context", "--session-key", "main", "--recall"), out="^== MEMORY.md .*Ilse")
    assert "memory_search" in context.stdout
    assert "MEMORY.md" not in run("session", "context", "--session-key", "agent:main:x:group:1").stdout
    check(run("session", "context", "--session-key", "main", "--max-chars", "10"), out="truncated")
    assert json.loads(run("session", "context", "--json").stdout)["mainSession"] is False
    check(run("session", "archive", "nobody"), code=3, err="sessions folder")
    if "without" in request.node.callspec.id:
        return
    folder = served.state / "agents" / "main" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    record = {"type": "message", "message": {"role": "user", "content": "the narwhal surfaced"}}
    (folder / "abc.jsonl").write_text(json.dumps(record) + "\n", "utf-8")
    done = check(run("session", "archive", "abc"), out=r"^Archived: 1 message in memory/.*-narwhal-surfaced\.md$")
    check(run("session", "archive", "abc"), out="^Already archived: 1 message")
    check(run("search", "narwhal"), out="User: the narwhal surfaced")
    (workspace / done.stdout.split(" in ")[1].strip()).unlink()


def test_watch_shows_the_state_immediately_and_runs_until_interrupted(served, home):
    command = [*COMMAND, "watch", "--json", "--state-dir", str(served.state)]
    process = subprocess.Popen(INTERRUPTIBLE + command, env=environment(home), stdout=subprocess.PIPE, text=True)
    first = json.loads(process.stdout.readline())
    assert (first["agentId"], first["heartbeat"]) == ("main", False)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.wait(20)
    process.stdout.close()


@pytest.mark.slow
def test_doctor_finds_nothing_wrong(run):
    done = check(run("doctor"), out="ok   SQLite: .*FTS5 works")
    assert "FAIL" not in done.stdout
    assert {"name", "verdict", "detail", "meaning", "advice"} == set(json.loads(run("doctor", "--json").stdout)[0])


@pytest.mark.slow
def test_config_shows_values_and_their_sources(run, workspace):
    check(run("config"), out=r"memoryd\.reconcileSeconds +45\.0 +\(default\)")
    described = json.loads(run("config", "--json").stdout)
    assert {"key", "value", "origin"} == set(described["settings"][0])


@pytest.mark.slow
def test_doctor_and_every_verb_explain_settings_that_cannot_be_used(tmp_path, home):
    (tmp_path / "memoryd.json5").write_text("{memoryd: {reconcilSeconds: 5}}", "utf-8")
    check(memoryd("doctor", "--state-dir", tmp_path, home=home), code=1, out="FAIL settings: .*reconcileSeconds")
    check(memoryd("status", "--state-dir", tmp_path, home=home), code=2, err="reconcileSeconds")


def test_a_daemon_that_was_named_and_does_not_answer_is_no_reason_to_work_without_it(tmp_path, home):
    done = memoryd("search", "ferry", "--address", f"unix:{tmp_path}/none.sock", home=home)
    check(done, code=5)


def test_help_names_every_verb(home):
    out = check(memoryd("--help", home=home)).stdout
    verbs = (
        "serve",
        "status",
        "index",
        "search",
        "recall",
        "get",
        "append",
        "flush",
        "forget",
        "session",
        "watch",
        "agents",
    )
    for verb in (*verbs, "files", "config"):
        assert re.search(rf"^  {verb} ", out, re.MULTILINE), verb
        # In this process: a process per verb takes as many seconds as there are verbs.
        shown = CliRunner().invoke(main, [verb, "--help"])
        assert (shown.exit_code, "Options:" in shown.output) == (0, True), verb


def test_client_verbs_import_no_module_of_the_daemon(served, home):
    code = (
        "import sys; from memoryd_server.cli.main import main; main(sys.argv[1:], standalone_mode=False); "
        "unused = {'apsw', 'httpx', 'memoryd_server.agent', 'memoryd_server.app', 'numpy', 'pydantic', 'rich', "
        "'structlog'}; "
        "print(unused & set(sys.modules))"
    )
    for verb in (
        ["search", "ferry"],
        ["recall", "ferry"],
        ["get", "MEMORY.md"],
        ["append", "a note"],
        ["agents"],
        ["files"],
    ):
        command = [sys.executable, "-c", code, *verb, "--state-dir", str(served.state)]
        done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=60, check=False)
        assert check(done).stdout.splitlines()[-1] == "set()", verb


def test_a_second_daemon_on_the_same_socket_is_refused(served, workspace, tmp_path, home):
    done = memoryd("serve", "--workspace", workspace, "--state-dir", tmp_path, "--listen", served.address, home=home)
    check(done, code=2, err="another memoryd listens at")


@pytest.mark.slow
def test_a_second_daemon_on_the_same_index_is_refused(served, workspace, tmp_path, home):
    done = memoryd(
        "serve", "--workspace", workspace, "--state-dir", served.state, "--listen", f"unix:{tmp_path}/s", home=home
    )
    check(done, code=5, err=rf"in use by another memoryd \(process {served.process.pid}\)")
    check(served.memoryd("agents"), out="main")


def test_a_wrong_address_in_the_settings_is_refused_although_a_flag_replaces_it(tmp_path, home):
    (tmp_path / "memoryd.json5").write_text("{memoryd: {listen: 5}}", "utf-8")
    done = memoryd("serve", "--state-dir", tmp_path, "--listen", f"unix:{tmp_path}/s", home=home)
    check(done, code=2, err=r"memoryd\.json5: memoryd\.listen: expected an array, found a number")


@pytest.mark.slow
def test_a_daemon_beyond_loopback_is_refused(workspace, tmp_path, home):
    done = memoryd("serve", "--workspace", workspace, "--state-dir", tmp_path, "--listen", "0.0.0.0:0", home=home)
    check(done, code=2, err="refusing to listen at .* without TLS")


@pytest.mark.slow
def test_a_daemon_on_loopback_answers_and_leaves_no_trace(workspace, tmp_path, home):
    with serving(workspace, tmp_path, home=home, listen="127.0.0.1:0") as daemon:
        check(memoryd("agents", "--address", daemon.address, home=home), code=4, err="TOKEN_MISSING")
        check(daemon.memoryd("agents", "--address", daemon.address), out="main")
        check(daemon.memoryd("agents"), out="main")
    assert daemon.process.returncode == 0
    assert not (tmp_path / "memoryd.endpoint.json").exists()
