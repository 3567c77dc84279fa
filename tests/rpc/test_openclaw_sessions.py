"""A daemon on a home of the current OpenClaw: searches find its sessions, and every call treats them as transcripts."""

import hashlib
import json
import time

import grpc
import pytest

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from openclaw_home import COLD, MAIN, HostWriter, copy_home, path_of
from rpc.test_sessions import AFTER_COMPACTION, SESSIONS, sessions
from rpc.wire import TIMEOUT, by_meaning, check_refused, paths
from transcript_fixture import user
from waiting import eventually

KEY = "OPENAI_API_KEY=sk-abcdefghijklmnop1234"


@pytest.fixture
def database(home):
    return copy_home(home.root)


async def test_sessions_are_found_read_and_listed_with_secrets_masked(home, serve, database):
    home.write(crane="The harbour crane lifts containers.")
    with HostWriter(database) as writer:
        writer.say(MAIN, f"the heron\n\n nests  here {KEY}")
    memoryd = await serve(sessions())
    assert (await memoryd.synced()).indexed_files == 10
    (hit,) = (await memoryd.search("heron")).results
    assert (hit.path, hit.source) == (path_of(MAIN), memory_pb2.SOURCE_SESSIONS)
    assert "sk-abc…1234" in hit.snippet
    assert "abcdefghijklmnop" not in hit.snippet
    read = await memoryd.get(hit.path, start_line=15, line_count=10)
    assert read.text == "User: the heron nests here OPENAI_API_KEY=sk-abc…1234"
    assert (read.start_line, read.end_line, read.total_lines, read.next_start_line) == (15, 15, 15, 0)
    assert (await memoryd.get(f"sessions/{MAIN}.jsonl", start_line=15, line_count=1)).text == read.text
    listed = {file.path: pb.FileState.Name(file.state) for file in (await memoryd.files()).files}
    assert listed[path_of(MAIN)] == listed[path_of(COLD)] == "FILE_STATE_INDEXED"
    assert len(listed) == 10
    with HostWriter(database) as writer:
        writer.say(MAIN, "More.")
    listed = {file.path: pb.FileState.Name(file.state) for file in (await memoryd.files()).files}
    assert listed[path_of(MAIN)] == "FILE_STATE_STALE"


async def test_hits_have_the_origin_of_their_least_trusted_message(serve, database):
    memoryd = await serve(sessions())
    await memoryd.sync()
    wanted = {
        "coffee": memory_pb2.ORIGIN_UNTRUSTED,
        "Vertrag": memory_pb2.ORIGIN_AGENT,
        "bicycle": memory_pb2.ORIGIN_AGENT,
    }
    assert {word: (await memoryd.search(word)).results[0].origin for word in wanted} == wanted


async def test_an_unknown_schema_version_is_named_in_the_status(home, serve, database):
    home.write(crane="The harbour crane lifts containers.")
    with HostWriter(database) as writer:
        writer.execute("PRAGMA user_version = 24")
    memoryd = await serve(sessions())
    await memoryd.sync()
    (skipped,) = [each for each in (await memoryd.status()).degradations if each.wanted == "sessions/main"]
    assert "schema version 24, but this memoryd reads only version 23" in skipped.reason
    assert paths(await memoryd.search("crane")) == ["memory/crane.md"]
    assert paths(await memoryd.search("orion")) == []
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await memoryd.get(path_of(MAIN))
    assert "schema version 24" in refused.value.details()


async def test_the_database_of_another_agent_is_read_by_no_call(home, serve, database):
    home.write(crane="The harbour crane lifts containers.")
    with HostWriter(database) as writer:
        writer.execute("UPDATE schema_meta SET agent_id = 'other'")
    memoryd = await serve(sessions())
    await memoryd.sync()
    (skipped,) = [each for each in (await memoryd.status()).degradations if each.wanted == "sessions/main"]
    assert "belongs to the agent 'other', not to 'main'" in skipped.reason
    assert paths(await memoryd.search("crane")) == ["memory/crane.md"]
    assert paths(await memoryd.search("orion")) == []
    for path in (path_of(MAIN), f"sessions/{MAIN}.jsonl", path_of(COLD)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await memoryd.get(path)
        assert "belongs to the agent 'other'" in refused.value.details()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await memoryd.stub.MemoryForget(pb.MemoryForgetRequest(session_id=MAIN, delete_source=True), timeout=TIMEOUT)
    assert "belongs to the agent 'other'" in refused.value.details()
    forget = memoryd.stub.MemoryForget(pb.MemoryForgetRequest(session_id=MAIN), timeout=TIMEOUT)
    assert "no transcript of the session" in (await check_refused(forget, "NOT_FOUND", "FILE_NOT_FOUND")).message
    archive = memoryd.stub.SessionArchive(pb.SessionArchiveRequest(transcript=MAIN), timeout=TIMEOUT)
    await check_refused(archive, "NOT_FOUND", "FILE_NOT_FOUND")


async def test_damaged_events_are_an_issue_in_the_status_also_after_a_restart(home, serve, database):
    memoryd = await serve(sessions())
    await memoryd.sync()
    assert not any("damaged" in issue for issue in (await memoryd.status()).source_issues)
    with HostWriter(database) as writer:
        writer.execute("PRAGMA ignore_check_constraints = ON")
        for number in range(3):
            writer.say(MAIN, f"The heron{number} nests here.", compressed=True)
        writer.execute(
            "UPDATE transcript_events SET event_utf8_bytes = 7 WHERE session_id = ? AND seq IN (14, 16)", MAIN
        )
    await memoryd.sync()
    await memoryd.stop_daemon()
    memoryd = await serve(sessions())
    (issue,) = [issue for issue in (await memoryd.status()).source_issues if "damaged" in issue]
    assert issue.endswith(f"damaged or too large and are not indexed: 2, in {path_of(MAIN)} (2)")
    assert paths(await memoryd.search("heron1")) == [path_of(MAIN)]


async def test_a_session_is_forgotten_but_never_deleted(home, serve, database):
    before = hashlib.sha256(database.read_bytes()).digest()
    memoryd = await serve(sessions())
    await memoryd.sync()
    request = pb.MemoryForgetRequest(session_id=MAIN, delete_source=True)
    await check_refused(memoryd.stub.MemoryForget(request, timeout=TIMEOUT), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    await memoryd.stub.MemoryForget(pb.MemoryForgetRequest(session_id=MAIN), timeout=TIMEOUT)
    await memoryd.sync()
    assert paths(await memoryd.search("orion")) == []
    assert paths(await memoryd.search("bicycle")) == [path_of(COLD)]
    assert hashlib.sha256(database.read_bytes()).digest() == before


async def test_a_compacted_session_is_indexed_immediately(home, serve, database):
    memoryd = await serve(sessions())
    await memoryd.sync()
    with HostWriter(database) as writer:
        writer.say(MAIN, "the heron nests here")
    await memoryd.sync(trigger=AFTER_COMPACTION, transcript=f"{MAIN}.jsonl")
    assert paths(await memoryd.search("heron")) == [path_of(MAIN)]


async def test_texts_of_a_rewritten_or_archived_session_are_not_embedded_again(home, serve, database, provider):
    settings = by_meaning(provider, **SESSIONS)
    with HostWriter(database) as writer:
        ids = [writer.say(MAIN, f"Remark {number} on herons and weirs. " * 8) for number in range(200)]
        memoryd = await serve(settings)
        await memoryd.sync()
        before = len(provider.texts)
        writer.rewrite(MAIN, 2 + len(ids) + 10, "The last remark is another one.")
        await memoryd.sync()
        assert paths(await memoryd.search("another", mode=memory_pb2.SEARCH_MODE_KEYWORD)) == [path_of(MAIN)]
        assert len(provider.texts) - before <= 2
        await memoryd.sync()
        assert len(provider.texts) - before <= 2


async def test_a_reload_and_a_restart_read_nothing_again(home, serve, database):
    memoryd = await serve(sessions())
    await memoryd.sync()
    await memoryd.stop_daemon()
    memoryd = await serve(sessions())
    assert (await memoryd.synced()).indexed_files == 0
    assert json.dumps(paths(await memoryd.search("orion"))) == json.dumps([path_of(MAIN)])


@pytest.mark.parametrize("name", [MAIN, f"{MAIN}.jsonl"])
async def test_the_last_messages_of_a_session_are_archived(home, serve, database, name):
    with HostWriter(database) as writer:
        for number in range(40):
            writer.say(MAIN, f"Message {number}.")
            writer.append(MAIN, {"type": "custom", "customType": "x", "data": {}})
        writer.say(MAIN, "/new")
    memoryd = await serve(sessions())
    request = pb.SessionArchiveRequest(transcript=name, message_count=30)
    reply = await memoryd.stub.SessionArchive(request, timeout=TIMEOUT)
    text = (await memoryd.get(reply.path)).text
    assert reply.messages == 30
    assert f"- Session id: {MAIN}\n" in text
    assert [line for line in text.split("\n") if line.startswith("User")] == [
        f"User: Message {number}." for number in range(10, 40)
    ]


async def test_a_file_is_archived_if_the_database_has_no_such_session(home, serve, database):
    home.say("abc.jsonl", user("where is the walrus?"))
    memoryd = await serve(sessions())
    reply = await memoryd.stub.SessionArchive(pb.SessionArchiveRequest(transcript="abc"), timeout=TIMEOUT)
    assert reply.messages == 1
    unknown = memoryd.stub.SessionArchive(pb.SessionArchiveRequest(transcript="unknown"), timeout=TIMEOUT)
    await check_refused(unknown, "NOT_FOUND", "FILE_NOT_FOUND")


@pytest.mark.slow
async def test_each_message_is_found_within_a_minute_without_a_call(home, serve, database):
    memoryd = await serve({"agents": {"defaults": {"memorySearch": {**SESSIONS, "provider": "none"}}}}, background=True)
    await eventually(lambda: _finds(memoryd, "orion"))
    with HostWriter(database) as writer:
        for number in range(3):
            writer.say(MAIN, f"The heron{number} nests here.")
            began = time.monotonic()
            await eventually(lambda number=number: _finds(memoryd, f"heron{number}"), seconds=90, pause=0.5)
            assert time.monotonic() - began < 60


async def _finds(memoryd, query):
    return paths(await memoryd.search(query)) == [path_of(MAIN)]
