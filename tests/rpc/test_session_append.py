"""SessionAppend over the wire: each record once, at its place, and found when the transcript is due."""

import asyncio
import itertools
import subprocess
import sys

import grpc
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from postgres_server import postgres_server  # noqa: F401 -- a fixture
from rpc.callers import bearer, new_token
from rpc.editing import forget
from rpc.wire import TIMEOUT, check_refused, paths
from transcript_fixture import HEAD, TOOL, assistant, user

NUMBERS = itertools.count()
SESSIONS = {"memorySearch": {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}}
MOST_BYTES = 3 * 2**20


async def push(running, *records, session="abc", options=None, **fields):
    """Append records, each of which may have its line break."""
    lines = [record.removesuffix("\n") for record in records]
    request = pb.SessionAppendRequest(session_id=session, records=lines, **fields)
    return await running.stub.SessionAppend(request, timeout=TIMEOUT, **(options or {}))


async def found(running, query, **fields):
    return paths(await running.search(query, **fields))


async def states(running):
    return {file.path: pb.FileState.Name(file.state) for file in (await running.files()).files}


# With transcripts that are files


async def test_transcripts_that_are_files_take_no_records(serve, home):
    home.say("abc.jsonl", user("a crane"))
    running = await serve({"agents": {"defaults": SESSIONS}, "memoryd": {"store": {"documents": "folder"}}})
    await check_refused(
        push(running, user("a ferry")), "UNIMPLEMENTED", "NOT_IMPLEMENTED", mentions='memoryd.store.documents to "data'
    )
    (file,) = home.state_dir.rglob("*.jsonl")
    assert file.read_text() == user("a crane")


@pytest.mark.parametrize(
    ("request_", "violations"),
    [
        ({"session": "../x"}, {"session_id"}),
        ({"records": []}, {"records"}),
        ({"records": ["{}"] * 1_001}, {"records"}),
        ({"records": ["{}", "[]", "{}", "{"]}, {"records[1]", "records[3]"}),
        ({"expected_records": -1}, {"expected_records"}),
        ({"session": "", "records": ["[]"], "expected_records": -1}, {"session_id", "records[0]", "expected_records"}),
    ],
)
async def test_bad_fields_are_all_named(serve, request_, violations):
    running = await serve()
    records = request_.pop("records", ["{}"])
    call = push(running, *records, **request_)
    await check_refused(call, "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations)


# With documents in a database


@pytest.fixture
def settings(postgres_server):  # noqa: F811 -- the fixture
    """Return settings with the documents in a database of the test's own, and with more settings of `agents`."""
    url = postgres_server.create_database(f"pushed{next(NUMBERS)}")

    def settings(**agents):
        merged = {"defaults": SESSIONS, **agents}
        return {"agents": merged, "memoryd": {"store": {"url": url, "documents": "database"}}}

    return settings


@pytest.fixture
async def running(serve, settings):
    return await serve(settings())


@pytest.mark.postgres
async def test_the_response_counts_records_and_bytes(running):
    first = await push(running, HEAD, user("where is the crane?"))
    size = len(HEAD + user("where is the crane?"))
    assert (first.path, first.records, first.size_bytes) == ("sessions/abc.jsonl", 2, size)
    second = await push(running, assistant("am Kai, größer als gedacht"), expected_records=first.records)
    size += len(assistant("am Kai, größer als gedacht").encode())
    assert (second.records, second.size_bytes, second.already_appended) == (3, size, False)
    await running.synced()
    text = (await running.get("sessions/abc.jsonl")).text
    assert text == "\nUser: where is the crane?\nAssistant: am Kai, größer als gedacht"


@pytest.mark.postgres
async def test_a_repeated_call_appends_nothing_also_after_later_ones(running):
    await push(running, user("one"), user("two"), expected_records=0)
    await push(running, user("three"), expected_records=2)
    again = await push(running, user("one"), user("two"), expected_records=0)
    assert (again.records, again.already_appended) == (3, True)
    assert (await push(running, user("two"), expected_records=1)).already_appended


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([user("other")], 0),
        ([user("one"), user("other")], 0),
        ([user("one"), user("two"), user("three")], 0),
        ([user("two")], 3),
        ([user("three")], 2**62),
        # The same words in another record.
        ([user("one").replace(" ", "")], 0),
        # The first bytes of the record.
        (['{"type": "message"}'], 0),
    ],
)
async def test_other_records_at_the_place_are_refused_with_the_number_of_records(running, records, expected):
    await push(running, user("one"), user("two"))
    refused = await check_refused(
        push(running, *records, expected_records=expected), "ABORTED", "CONTENT_CHANGED", mentions="has 2 records"
    )
    assert refused.metadata == {"path": "sessions/abc.jsonl", "records": "2"}
    assert (await push(running, user("three"), expected_records=2)).records == 3


@pytest.mark.postgres
async def test_without_expected_records_a_repeated_call_appends_again(running):
    await push(running, user("one"))
    again = await push(running, user("one"))
    assert (again.records, again.already_appended) == (2, False)


@pytest.mark.postgres
async def test_one_of_several_callers_appends_at_a_place(running):
    async def one(number):
        try:
            return (await push(running, user(f"caller {number}"), expected_records=0)).records
        except grpc.aio.AioRpcError as error:
            return error.code().name

    outcomes = await asyncio.gather(*(one(number) for number in range(8)))
    assert sorted(map(str, outcomes)) == ["1", *["ABORTED"] * 7]


@pytest.mark.postgres
async def test_no_concurrent_append_is_lost(running):
    await asyncio.gather(*(push(running, user(f"robin {number}"), user("x")) for number in range(20)))
    await running.synced()
    lines = (await running.get("sessions/abc.jsonl")).text.splitlines()
    assert lines[1::2] == ["User: x"] * 20
    assert sorted(lines[::2]) == sorted(f"User: robin {number}" for number in range(20))


@pytest.mark.postgres
async def test_the_largest_request_is_stored_and_a_larger_one_is_refused(running):
    padding = MOST_BYTES - 999 * len("{}") - len(user("").removesuffix("\n"))
    largest = [user("x" * padding), *["{}"] * 999]
    stored = await push(running, *largest, expected_records=0)
    assert (stored.records, stored.size_bytes) == (1_000, MOST_BYTES + 1_000)
    assert (await push(running, *largest, expected_records=0)).already_appended
    larger = [user("x" * (padding + 1)), *["{}"] * 999]
    await check_refused(
        push(running, *larger, session="other"), "INVALID_ARGUMENT", "INVALID_REQUEST", violations={"records"}
    )


@pytest.mark.postgres
async def test_odd_records_and_names_are_stored_as_they_are(running):
    name = "Robert'); DROP TABLE transcripts;-- %s $1 \\ é 🦩"
    # NUL and a lone surrogate, which neither a text column nor a string of protobuf can have.
    odd = '{"type":"message","message":{"role":"user","content":"the \\u0000 spoonbill \\ud800 wades"}}'
    stored = await push(running, odd, '  {"a": "x\u2028y"}  ', session=name)
    assert (stored.path, stored.records) == (f"sessions/{name}.jsonl", 2)
    assert (await push(running, odd, session=name, expected_records=0)).already_appended
    await running.synced()
    assert await found(running, "spoonbill") == [stored.path]
    assert (await running.get(stored.path)).text.startswith("User: the spoonbill ? wades\n")


@pytest.mark.postgres
async def test_secrets_are_masked_in_what_is_found(running):
    await push(running, user("the heron's token is ghp_0123456789abcdefghijklmnopqrstuvwxyz"))
    await running.synced()
    (result,) = (await running.search("heron")).results
    assert "ghp_01…" in result.snippet
    assert "456789abcdef" not in result.snippet + (await running.get("sessions/abc.jsonl")).text


@pytest.mark.postgres
async def test_agents_have_sessions_of_their_own(serve, settings):
    running = await serve(settings(list=[{"id": "main"}, {"id": "work"}]))
    await push(running, user("the crane of main"))
    stored = await push(running, user("the crane of work"), session_key="agent:work:main", expected_records=0)
    assert stored.records == 1
    for agent_id in ("main", "work"):
        await running.synced(agent_id=agent_id)
        (result,) = (await running.search("crane", agent_id=agent_id)).results
        assert result.snippet.startswith(f"User: the crane of {agent_id}")


@pytest.mark.postgres
async def test_it_needs_the_scope_append(serve, home, settings):
    running = await serve(settings(), listen="127.0.0.1:0")
    reads, appends = (bearer(new_token(home, scopes=scopes)[1]) for scopes in (["read"], ["append"]))
    refused = await check_refused(push(running, user("x"), options=reads), "PERMISSION_DENIED", "SCOPE_MISSING")
    assert refused.metadata == {"scope": "append"}
    assert (await push(running, user("x"), options=appends)).records == 1


@pytest.mark.postgres
async def test_an_agent_without_search_stores_records_that_are_found_when_it_has_search(serve, home, settings):
    without = settings(list=[{"id": "main", "memorySearch": {"enabled": False}}])
    running = await serve(without)
    await push(running, user("the crane"))
    assert (await push(running, assistant("at the quay"), expected_records=1)).records == 2
    assert not (await running.daemon.reload(lambda: home.settings(settings()))).error
    await running.synced()
    assert await found(running, "crane") == ["sessions/abc.jsonl"]


# Indexing


@pytest.mark.postgres
async def test_a_transcript_that_has_grown_enough_is_indexed_without_a_call_and_no_other(serve, settings):
    given = settings()
    # Only the append can start the sync.
    given["memoryd"]["reconcileSeconds"] = 3_600
    running = await serve(given, background=True)
    await running.synced()
    await push(running, user("the bittern booms"), session="short")
    await push(running, *(user(f"the godwit wades {number}") for number in range(50)), session="long")
    async with asyncio.timeout(60):
        async for _ in running.stub.WatchIndex(pb.WatchIndexRequest()):
            if await found(running, "godwit"):
                break
    assert await states(running) == {
        "sessions/long.jsonl": "FILE_STATE_INDEXED",
        "sessions/short.jsonl": "FILE_STATE_PENDING",
    }
    assert await found(running, "bittern") == []


@pytest.mark.postgres
async def test_a_sync_reads_only_the_records_that_were_appended(running):
    await push(running, *(user(f"the godwit wades {number}") for number in range(20)))
    await running.synced()
    await push(running, assistant("the bittern booms"))
    assert (await states(running))["sessions/abc.jsonl"] == "FILE_STATE_STALE"
    assert (await running.synced()).indexed_files == 1
    (result,) = (await running.search("bittern")).results
    assert (result.path, result.end_line) == ("sessions/abc.jsonl", 21)
    assert (await running.synced()).indexed_files == 0


# Forgetting


@pytest.mark.postgres
async def test_records_of_an_excluded_session_are_stored_but_never_found(running):
    await push(running, user("the crane"))
    await running.synced()
    await forget(running, session_id="abc")
    again = await push(running, assistant("the crane again"), expected_records=1)
    assert (again.records, again.already_appended) == (2, False)
    await running.synced(mode="SYNC_MODE_FULL")
    assert await found(running, "crane") == []


@pytest.mark.postgres
async def test_a_deleted_session_begins_again_at_record_0(running):
    await push(running, user("the crane"), TOOL)
    await running.synced()
    assert (await forget(running, session_id="abc", delete_source=True)).source_files == 1
    await check_refused(push(running, user("x"), expected_records=2), "ABORTED", "CONTENT_CHANGED", mentions="0 rec")
    again = await push(running, user("the crane"), expected_records=0)
    assert (again.records, again.already_appended) == (1, False)
    await running.synced()
    assert await found(running, "crane") == ["sessions/abc.jsonl"]


# The command


def command(home, *arguments, stdin=None):
    """Run `memoryd session append`; return its exit code, and the last line that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "memoryd_server", "session", "append", "--address", f"unix:{home.socket}", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home.root)},
    )
    return done.returncode, (done.stdout or done.stderr).splitlines()[-1]


@pytest.fixture
def append(running, home):
    async def append(*arguments, **options):
        return await asyncio.to_thread(command, home, *arguments, **options)

    return append


@pytest.mark.postgres
async def test_the_command_appends_the_records_of_a_file_that_are_missing(running, append, tmp_path):
    file = tmp_path / "abc.jsonl"
    lines = [user(f"robin {number}") for number in range(1_500)]
    file.write_text("".join(lines[:1_200]))
    size = f"{file.stat().st_size:,}"
    end = f"to sessions/abc.jsonl, which has 1,200 records ({size} bytes)"
    assert await append(str(file)) == (0, f"Appended 1,200 records {end}")
    assert await append(str(file)) == (0, f"Appended nothing {end}")
    # Blank lines are skipped, and the last line needs no line break.
    file.write_text("".join([*lines[:1_200], "\n", *lines[1_200:]]).rstrip("\n"))
    code, line = await append(str(file), "--json")
    assert (code, line) == (0, "}")
    assert (await push(running, *lines[-300:], expected_records=1_200)).already_appended


@pytest.mark.postgres
async def test_the_command_reads_standard_input_after_some_records(running, append):
    await push(running, user("one"))
    assert await append("-", stdin=user("two")) == (
        2,
        "Error: --session-id is required if FILE is standard input",
    )
    code, line = await append("-", "--session-id", "abc", "--after", "1", stdin=user("two"))
    assert (code, line.partition(" (")[0]) == (0, "Appended 1 record to sessions/abc.jsonl, which has 2 records")


@pytest.mark.postgres
async def test_the_command_appends_nothing_after_other_records(running, append, tmp_path):
    file = tmp_path / "abc.jsonl"
    file.write_text(user("one") + user("two") + user("three"))
    await push(running, user("one"), user("other"))
    code, line = await append(str(file))
    assert code == 1
    assert "[CONTENT_CHANGED]" in line
    assert (await push(running, user("x"), expected_records=2)).records == 3


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{}\n\n{"a"}\n', "line 3: is not valid JSON"),
        ("[]\n", "line 1: is not a JSON object"),
        ("\n", "FILE: has no records"),
    ],
)
async def test_the_command_names_the_line_of_an_invalid_record(append, text, words):
    code, line = await append("-", "--session-id", "abc", stdin=text)
    assert code == 2
    assert words in line
