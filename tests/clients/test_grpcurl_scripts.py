"""The scripts of clients/grpcurl against real daemons: one a call, each finds the daemon, as all clients do."""

import json
import re
import subprocess

import pytest

from certificates import Authority, needs_openssl
from clients.daemon_fixture import ClientsDaemon
from clients.runner import REPOSITORY
from clients.test_grpcurl import grpcurl_command
from daemon_process import environment
from entry_fixture import open_entries
from memoryd.v1 import entry_service_pb2, memory_service_pb2
from rpc.agent_calls import HAS_LANCEDB

pytestmark = [
    needs_openssl,
    pytest.mark.clients,
    pytest.mark.skipif(grpcurl_command() is None, reason="grpcurl is not installed; `make grpcurl` installs it"),
]

FOLDER = REPOSITORY / "clients" / "grpcurl"
SERVICES = (
    memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"],
    entry_service_pb2.DESCRIPTOR.services_by_name["EntryService"],
)
RPCS = {
    re.sub(r"(?<!^)(?=[A-Z])", "-", method.name).lower(): method for service in SERVICES for method in service.methods
}
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.sh") if path.stem != "prelude")
WORKSPACE = {"MEMORY.md": "# Lasting\n\nThe harbour master is called Ilse.\n", "memory/ropes.md": "# Ropes\n\nHemp.\n"}
TRANSCRIPTS = {
    "s1.jsonl": '{"type":"session","version":3}\n'
    '{"type":"message","message":{"role":"user","content":"order new ropes"}}\n'
}

CALLS = [
    ("memory-search", ["who is the harbour master?", "1"], ['"path": "MEMORY.md"', "Ilse"]),
    ("explain-miss", ["memory/ropes.md", "harbour", "3"], ['"MISS_REASON_NO_MATCH"', '"path": "memory/ropes.md"']),
    # The first recall opens the entries, which takes longer than the default deadline on a busy machine.
    (
        "memory-recall",
        ["--timeout", "30", "who is the harbour master?", "200"],
        ['"path": "MEMORY.md"', "relevant-memories"],
    ),
    ("memory-get", ["MEMORY.md", "3", "1"], ['"text": "The harbour master is called Ilse."', '"next_start_line"']),
    ("status", [], ['"INDEX_STATE_READY"', '"SOURCE_SESSIONS"']),
    ("status", ["probe"], ['"INDEX_STATE_READY"']),
    ("sync", [], ['"started"', '"completed"']),
    ("sync", ["full"], ['"SYNC_MODE_FULL"', '"indexed_files"']),
    ("sync", ["dry-run"], ['"dry_run": true', '"estimate"']),
    ("flush-decision", ["190000", "200000"], ['"flush": true', '"threshold_tokens": "176000"']),
    ("memory-append", ["Ilse has a dog.", "memory/dogs.md"], ['"path": "memory/dogs.md"', '"index_revision"']),
    ("memory-forget", ["path", "memory/ropes.md"], ['"chunks": 1', '"index_revision"']),
    ("memory-forget", ["session", "s1"], ['"chunks": 1', '"index_revision"']),
    ("memory-forget", ["text", "Hemp."], ['"index_revision"']),
    ("session-context", ["agent:main:main"], ['"main_session": true', '"path": "MEMORY.md"']),
    ("session-archive", ["s1.jsonl", "Ropes"], ["-ropes.md", '"messages": 1']),
    ("list-agents", [], ['"agent_id": "main"', '"agent_id": "work"']),
    ("list-files", ["1"], ['"MEMORY.md"', '"next_page_token"']),
    ("health", ["memoryd.v1.MemoryService"], ['"SERVING"']),
    ("describe", [], ["memoryd.v1.MemoryService", "memoryd.v1.EntryService"]),
    ("describe", ["memoryd.v1.Degradation"], ["string reason = 4;"]),
]
ENTRIES = [
    ("remember", ["the heron nests by the weir", "0.5"], ['"REMEMBER_ACTION_STORED"', '"importance": 0.5']),
    ("recall", ["heron", "3"], ["the heron nests by the weir"]),
    ("list-entries", ["1"], ['"next_page_token"', '"total"']),
    ("suggest-capture", ["remember that I like tea", 'no "quotes"'], ['"message_index": 1', "CAPTURE_TRIGGER_"]),
    ("recall-block", ["where does the heron nest?"], ["relevant-memories"]),
    ("forget", ["query", "the heron nests by the weir"], ['"FORGET_ACTION_DELETED"']),
]

# Tested in `test_a_file_is_written_moved_and_restored`.
EDITS = {"memory-write", "memory-move", "memory-history", "memory-restore"}
# Tested in `test_records_reach_the_daemon_as_they_are`.
REFUSED = {"session-append"}


def shell(home, script, *arguments, stdin=None, folder="/", given=None):
    return subprocess.run(
        [str(script if "/" in str(script) else FOLDER / f"{script}.sh"), *arguments],
        env=environment(home) | {"GRPCURL": grpcurl_command(), **(given or {})},
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def where(daemon, over):
    """The environment of a caller of the daemon."""
    values = daemon.values()
    if over == "unix":
        return {"MEMORYD_ADDRESS": values["unix"]}
    return {
        "MEMORYD_ADDRESS": values["tcp"],
        "MEMORYD_TOKEN_FILE": values["token_file"],
        "MEMORYD_TLS_CA": values["ca_file"],
    }


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    started = ClientsDaemon(tmp_path_factory.mktemp("g")).start()
    started.reset(WORKSPACE, TRANSCRIPTS)
    yield started
    started.stop()


def check(done, *expected):
    assert done.returncode == 0, (done.stdout, done.stderr)
    for text in expected:
        assert text in done.stdout, done.stdout


def test_every_call_of_the_contract_has_a_script_and_is_tested():
    assert sorted({*RPCS, "health", "describe"}) == SCRIPTS
    assert {name for name, *_ in CALLS + ENTRIES} | {"watch-index", *EDITS, *REFUSED} == set(SCRIPTS)
    for name, method in RPCS.items():
        assert f"call {method.containing_service.full_name}/{method.name} " in (FOLDER / f"{name}.sh").read_text()


def test_every_script_is_on_the_page():
    page = (FOLDER / "README.md").read_text("utf-8")
    assert [name for name in SCRIPTS if f"`{name}.sh" not in page] == []


def test_a_call_has_the_deadline_that_the_service_documents():
    """As the comments of the protos have it: a call without one is a stream."""
    protos = "".join(path.read_text("utf-8") for path in (REPOSITORY / "protos/memoryd/v1").glob("*_service.proto"))
    for name, method in RPCS.items():
        comment = re.search(rf"((?:  //.*\n)+)  rpc {method.name}\(", protos)[1].replace("\n  //", "")
        documented = re.findall(r"deadline: ([\d, s]+|hours)", comment)
        seconds = re.findall(r"(\d+) s", documented[0]) if documented else []
        used = re.findall(r"call memoryd\S+ (\d+) ", (FOLDER / f"{name}.sh").read_text())
        assert set(seconds or ["0"]) <= set(used), f"{name}: {used} is not {seconds}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_in_a_line_what_it_does(name, tmp_path):
    done = shell(tmp_path, name, "--help")
    check(done, "--json")
    assert re.match(rf"{name}\.sh\b.*: \w", done.stdout)
    assert len(done.stdout.splitlines()[0]) <= 120


@pytest.mark.parametrize(("name", "arguments", "expected"), CALLS, ids=lambda value: str(value)[:30])
def test_a_script_calls_the_daemon(daemon, tmp_path, name, arguments, expected):
    check(shell(tmp_path, name, *arguments, given=where(daemon, "unix")), *expected)


@pytest.mark.parametrize(("name", "arguments", "expected"), [CALLS[0], CALLS[4], *CALLS[-3:]], ids=str)
def test_a_script_calls_the_daemon_over_tls(daemon, tmp_path, name, arguments, expected):
    check(shell(tmp_path, name, *arguments, given=where(daemon, "tls")), *expected)


def test_a_file_is_written_moved_and_restored(daemon, tmp_path):
    def answer(name, *arguments):
        done = shell(tmp_path, name, *arguments, given=where(daemon, "tls"))
        check(done)
        return json.loads(done.stdout)

    first = answer("memory-write", "memory/cats.md", "", "Ilse has a dog.\nIt barks.\n")
    second = answer("memory-write", "memory/cats.md", first["content_sha256"], "a dog", 'two "dogs"')
    moved = answer("memory-move", "memory/cats.md", "memory/pets.md", second["content_sha256"])
    assert moved["path"] == "memory/pets.md"
    versions = answer("memory-history", "memory/pets.md")["versions"]
    assert [version["kind"] for version in versions] == [
        "WRITE_KIND_MOVE",
        "WRITE_KIND_REPLACE_TEXT",
        "WRITE_KIND_CREATE",
    ]
    assert '+Ilse has two "dogs".' in versions[1]["diff"]
    restored = answer("memory-restore", second["version_id"], moved["content_sha256"], "memory/pets.md")
    assert restored["content_sha256"] == first["content_sha256"]


def test_records_reach_the_daemon_as_they_are(daemon, tmp_path):
    def refusal(*records):
        done = shell(tmp_path, "session-append", "s1", "2", *records, given=where(daemon, "tls"))
        assert done.returncode != 0, done.stdout
        return done.stderr

    # The transcripts of this daemon are files; it checks the records first.
    record = json.dumps({"type": "message", "text": 'a "heron"\n\tby the weir \\ pier'})
    assert "memoryd.store.documents" in refusal(record, "{}")
    assert "records[1]" in refusal(record, "[]")


@pytest.mark.skipif(not HAS_LANCEDB, reason="LanceDB is missing: `make setup-lancedb` installs it")
def test_entries_are_stored_recalled_and_forgotten(daemon, tmp_path):
    open_entries(daemon.addresses[0])
    given = where(daemon, "tls")
    stored = shell(tmp_path, "remember", "the crane of pier seven", given=given)
    assert stored.returncode == 0, stored.stderr
    for name, arguments, expected in ENTRIES:
        check(shell(tmp_path, name, *arguments, given=given), *expected)
    entry_id = json.loads(stored.stdout)["entry"]["entry_id"]
    check(shell(tmp_path, "forget", "id", entry_id, given=given), '"FORGET_ACTION_DELETED"')


def test_a_watch_shows_the_state_at_once_and_goes_on(daemon, tmp_path):
    command = [str(FOLDER / "watch-index.sh"), "--agent", "work"]
    given = environment(tmp_path) | {"GRPCURL": grpcurl_command(), **where(daemon, "unix")}
    process = subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True)
    seen = ""
    while "}" not in seen:
        line = process.stdout.readline()
        assert line
        seen += line
    assert process.poll() is None
    process.terminate()
    process.wait(10)
    process.stdout.close()
    assert '"agent_id": "work"' in seen


def test_whatever_is_in_a_text_arrives(daemon, tmp_path):
    text = "- \"quoted\" 'single' \\ back\\n `x` $HOME $(id) %s * ; &\n\ttab 東京 🎉"
    check(shell(tmp_path, "memory-append", text, "memory/odd.md", given=where(daemon, "unix")))
    assert (daemon.workspace / "memory/odd.md").read_text("utf-8") == f"{text}\n"


def test_a_whole_request_can_be_given_and_read_from_standard_input(daemon, tmp_path):
    given = where(daemon, "unix")
    request = json.dumps({"query": "Ilse", "explain": True})
    check(shell(tmp_path, "memory-search", "--json", request, given=given), '"score_detail"')
    check(shell(tmp_path, "memory-search", "-j", "@", stdin=request, given=given), '"score_detail"')
    check(shell(tmp_path, "list-agents", "--", "-v", given=given), "x-request-id", '"main"')
    late = shell(
        tmp_path, "memory-search", "-t", "0.4", "-j", '{"query": "x", "min_revision": 999999999999999}', given=given
    )
    assert (late.returncode, "DeadlineExceeded" in late.stderr) == (68, True), late.stderr


def test_a_script_works_from_any_folder_and_through_a_link(daemon, tmp_path):
    (tmp_path / "a folder").mkdir()
    link = tmp_path / "a folder" / "agents"
    link.symlink_to(FOLDER / "list-agents.sh")
    check(shell(tmp_path, link, folder=tmp_path, given=where(daemon, "unix")), '"main"')


def test_the_daemon_is_found_by_its_note_and_its_token_in_the_state_directory(daemon, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    found = {"MEMORYD_STATE_DIR": "~/state", "MEMORYD_TLS_CA": daemon.values()["ca_file"]}
    note = {"addresses": ["unix:/none", *daemon.addresses[1:], daemon.addresses[0]], "pid": 1, "reload": {}}
    (state / "memoryd.endpoint.json").write_text(json.dumps(note), "utf-8")
    missing = shell(tmp_path, "list-agents", given=found)
    assert "this listener requires a token" in missing.stderr
    (state / "memoryd.token").write_text(f"\n # a comment\n{daemon.token}\n", "utf-8")
    check(shell(tmp_path, "list-agents", given=found), '"main"')
    (state / "memoryd.endpoint.json").write_text(json.dumps(note | {"addresses": daemon.addresses}), "utf-8")
    check(shell(tmp_path, "list-agents", given=found), '"main"')
    (tmp_path / ".moltbot").symlink_to(state)
    check(shell(tmp_path, "list-agents"), '"main"')
    (state / "run").mkdir()
    (state / "memoryd.endpoint.json").unlink()
    (state / "run" / "memoryd.sock").symlink_to(daemon.values()["socket"])
    check(shell(tmp_path, "list-agents", given={"MEMORYD_STATE_DIR": str(state)}), '"main"')


@pytest.mark.parametrize(
    ("given", "arguments", "said"),
    [
        ({"MEMORYD_ADDRESS": "10.0.0.1:1"}, [], "refusing to send the token to 10.0.0.1:1 in the clear"),
        ({"MEMORYD_TOKEN_FILE": "/none/token"}, [], "cannot read the token file /none/token"),
        ({"MEMORYD_TOKEN_FILE": "/dev/null"}, [], "the token file /dev/null contains no token"),
        ({"MEMORYD_TLS": "maybe"}, [], 'MEMORYD_TLS is "maybe"; write 1 for yes or 0 for no'),
        ({"MEMORYD_TLS_CA": "/none/ca.pem"}, [], "cannot read /none/ca.pem (the value of MEMORYD_TLS_CA)"),
        ({}, ["--agent", "main"], "--agent cannot be used with list-agents"),
        ({}, ["--agents"], "unknown option --agents"),
        ({}, ["--json"], "--json needs a value"),
    ],
)
def test_wrong_usage_is_refused_before_any_call(daemon, tmp_path, given, arguments, said):
    done = shell(tmp_path, "list-agents", *arguments, given=where(daemon, "tls") | {"MEMORYD_TLS_CA": ""} | given)
    assert done.returncode == 2, done
    assert said in done.stderr
    assert daemon.token not in done.stderr


def test_a_script_without_its_arguments_shows_how_it_is_called(tmp_path):
    done = shell(tmp_path, "memory-search")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("memory-search.sh QUESTION")


def fails(said, home, name, *arguments, given):
    """Fails unless the script does, with these words, which the page has too; "…" stands for what differs."""
    assert said in (FOLDER / "README.md").read_text("utf-8"), f"the page does not tell of: {said}"
    done = shell(home, name, *arguments, given=given)
    assert done.returncode != 0
    assert [part for part in said.split("…") if part.strip() not in done.stderr] == [], done.stderr


@pytest.mark.slow
def test_a_connection_that_fails_looks_as_the_page_says(daemon, tmp_path):
    tls, other = where(daemon, "tls"), Authority(tmp_path, "other").ca
    for said, changed in (
        ("connect: no such file or directory", {"MEMORYD_ADDRESS": f"unix:{tmp_path}/none"}),
        ("connect: connection refused", {"MEMORYD_ADDRESS": "127.0.0.1:1"}),
        ("context deadline exceeded", {"MEMORYD_TLS_CA": ""}),
        ("x509: certificate signed by unknown authority", {"MEMORYD_TLS_CA": str(other)}),
        ("x509: certificate signed by unknown authority", {"MEMORYD_TLS_CA": "", "MEMORYD_TLS": "1"}),
        ("context deadline exceeded", {"MEMORYD_TLS": "0"}),
        ("x509: certificate is valid for …, not …", {"MEMORYD_TLS_SERVER_NAME": "other.example"}),
    ):
        fails(said, tmp_path, "status", given=tls | changed)
    check(shell(tmp_path, "status", given=tls | {"MEMORYD_TLS_SERVER_NAME": "memory.example"}))
    # Go, and so grpcurl, takes these for the public authorities.
    public = {"MEMORYD_TLS": "1", "MEMORYD_TLS_CA": "", "SSL_CERT_FILE": tls["MEMORYD_TLS_CA"]}
    check(shell(tmp_path, "status", given=tls | public))


@pytest.mark.slow
def test_a_daemon_that_speaks_otherwise_looks_as_the_page_says(daemons, tmp_path):
    plain, mutual = daemons(plain=True), daemons(mutual=True)
    clear = where(plain, "tls") | {"MEMORYD_TLS_CA": ""}
    check(shell(tmp_path, "list-agents", given=clear), '"main"')
    certificate, key = mutual.authority.issue("caller")
    fails(
        "tls: first record does not look like a TLS handshake",
        tmp_path,
        "status",
        given=clear | {"MEMORYD_TLS_CA": str(mutual.authority.ca)},
    )
    fails("context deadline exceeded", tmp_path, "status", given=where(mutual, "tls"))
    shown = {"MEMORYD_TLS_CERT": str(certificate), "MEMORYD_TLS_KEY": str(key)}
    check(shell(tmp_path, "list-agents", given=where(mutual, "tls") | shown), '"main"')


def test_a_refusal_looks_as_documented(daemon, tmp_path):
    unix, tls = where(daemon, "unix"), where(daemon, "tls")
    (tmp_path / "wrong").write_text("wrong\n", "utf-8")
    (tmp_path / "limited").write_text(f"{daemon.limited_token}\n", "utf-8")
    for said, name, arguments, given in (
        ("Unauthenticated … this listener requires a token", "status", (), tls | {"MEMORYD_TOKEN_FILE": ""}),
        (
            "Unauthenticated … the bearer token is unknown to this daemon, revoked or expired",
            "status",
            (),
            tls | {"MEMORYD_TOKEN_FILE": str(tmp_path / "wrong")},
        ),
        ("AGENT_FORBIDDEN", "status", (), tls | {"MEMORYD_TOKEN_FILE": str(tmp_path / "limited")}),
        ("there is no agent 'mian'; configured are: main", "status", ("-a", "mian"), unix),
        ("has no known field named", "memory-search", ("-j", '{"limit": 1}'), unix),
        ("Message: query: must not be blank", "memory-search", (" ",), unix),
        (
            "REVISION_NOT_REACHED",
            "memory-search",
            ("-t", "1", "-j", '{"query": "x", "min_revision": 999999999999999}'),
            unix,
        ),
    ):
        fails(said, tmp_path, name, *arguments, given=given)
