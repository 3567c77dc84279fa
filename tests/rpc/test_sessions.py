"""Session transcripts as a source, through the RPCs."""

import functools
import json

import pytest

from memoryd.v1 import memory_pb2, sync_event_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.agent.background import BackgroundSync
from rpc.wire import TIMEOUT, check_refused, kinds, paths
from transcript_fixture import HEAD, TOOL, assistant, user
from waiting import eventually

SESSIONS = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}
AFTER_COMPACTION = sync_event_pb2.SYNC_TRIGGER_POST_COMPACTION
KEY = "OPENAI_API_KEY=sk-abcdefghijklmnop1234"


def sessions(**search):
    """Settings with transcripts as a source."""
    return {"agents": {"defaults": {"memorySearch": {**SESSIONS, "provider": "none", **search}}}}


def say(home, name, *lines):
    folder = home.state_dir / "agents" / "main" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a") as file:
        file.write("".join(lines))
    return folder / name


async def test_a_spoken_message_is_found_at_its_line_with_secrets_masked(home, serve):
    home.write(crane="The harbour crane lifts containers.")
    file = say(home, "s1.jsonl", HEAD, user(f"the heron\n\n nests  here {KEY}"), TOOL, assistant("By the weir, then."))
    before = file.read_bytes()
    memoryd = await serve(sessions())
    assert (await memoryd.synced()).indexed_files == 2
    found = await memoryd.search("heron weir")
    (hit,) = found.results
    assert (hit.path, hit.start_line, hit.end_line) == ("sessions/s1.jsonl", 2, 4)
    assert hit.source == memory_pb2.SOURCE_SESSIONS
    assert "sk-abc…1234" in hit.snippet
    assert "abcdefghijklmnop" not in hit.snippet
    read = await memoryd.get(hit.path, start_line=1, line_count=10)
    masked = "User: the heron nests here OPENAI_API_KEY=sk-abc…1234"
    assert read.text.split("\n") == ["", masked, "", "Assistant: By the weir, then."]
    assert (read.start_line, read.end_line, read.total_lines, read.next_start_line) == (1, 4, 4, 0)
    assert file.read_bytes() == before


async def test_a_secret_that_is_removed_from_the_middle_of_a_growing_transcript_is_found_no_longer(home, serve):
    talk = [user(f"Remark {number} on herons and weirs, at some length.") for number in range(2_000)]
    file = say(home, "s1.jsonl", *talk[:1_000], user("The safe opens with xylophonographer."), *talk[1_000:])
    memoryd = await serve(sessions())
    await memoryd.synced()
    assert (await memoryd.search("xylophonographer")).results
    text = file.read_text().replace("xylophonographer", "a key")
    with file.open("r+") as stream:
        stream.write(text + "".join(talk[:20]))
        stream.truncate()
    await memoryd.synced()
    assert not (await memoryd.search("xylophonographer")).results
    assert (await memoryd.search("safe opens key")).results


async def test_the_sources_filter_holds_for_transcripts(home, serve):
    home.write(crane="The heron nests by the weir.")
    say(home, "s1.jsonl", user("The heron nests by the weir."))
    memoryd = await serve(sessions())
    await memoryd.synced()
    for source, path in (
        (memory_pb2.SOURCE_MEMORY, "memory/crane.md"),
        (memory_pb2.SOURCE_SESSIONS, "sessions/s1.jsonl"),
    ):
        assert paths(await memoryd.search("heron", sources=[source])) == [path]
    assert set(paths(await memoryd.search("heron"))) == {"memory/crane.md", "sessions/s1.jsonl"}


@pytest.mark.parametrize("many", ["memory", "sessions"])
async def test_neither_source_crowds_the_other_out_of_six_results(home, serve, many):
    text = "The heron nests by the weir, and the heron fishes there."
    few = "A long and rambling remark about boats and bridges which only once names the heron of the weir in passing."
    for number in range(80):
        if many == "memory":
            home.put(f"memory/n{number}.md", f"{text} {number}")
        else:
            say(home, f"n{number}.jsonl", user(f"{text} {number}"))
    for number in range(2):
        if many == "memory":
            say(home, f"few{number}.jsonl", user(f"{few} {number}"))
        else:
            home.put(f"memory/few{number}.md", f"{few} {number}")
    memoryd = await serve(sessions())
    await memoryd.synced()
    found = paths(await memoryd.search("heron weir", min_score=0.0))
    assert len(found) == 6
    assert sum("few" in path for path in found) == 2


async def test_a_transcript_is_no_source_unless_the_settings_say_so(home, serve):
    say(home, "s1.jsonl", user("The heron nests by the weir."))
    memoryd = await serve()
    assert (await memoryd.synced()).indexed_files == 0
    skipped = await memoryd.search("heron", sources=[memory_pb2.SOURCE_SESSIONS])
    assert "SOURCE_SKIPPED" in kinds(skipped.info.degradations)
    await check_refused(memoryd.get("sessions/s1.jsonl"), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    bad = pb.SyncRequest(sources=[memory_pb2.SOURCE_SESSIONS])
    await check_refused(
        memoryd.stub.Sync(bad, timeout=TIMEOUT), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=["sources"]
    )
    named = pb.SyncRequest(trigger=AFTER_COMPACTION, transcript="s1.jsonl")
    await check_refused(
        memoryd.stub.Sync(named, timeout=TIMEOUT), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=["transcript"]
    )
    assert (await memoryd.synced(trigger=AFTER_COMPACTION)).indexed_files == 0


async def test_a_compaction_indexes_the_named_transcript_however_little_it_has_grown(home, serve):
    for name in ("one", "two"):
        say(home, f"{name}.jsonl", user("about the harbour"))
    memoryd = await serve(sessions())
    await memoryd.synced()
    for name in ("one", "two"):
        say(home, f"{name}.jsonl", user("and about herons"))
    done = await memoryd.synced(trigger=AFTER_COMPACTION, transcript="one.jsonl")
    assert done.indexed_files == 1
    assert paths(await memoryd.search("herons")) == ["sessions/one.jsonl"]
    assert (await memoryd.synced()).indexed_files == 1, "a sync that somebody asks for takes every transcript"
    assert set(paths(await memoryd.search("herons"))) == {"sessions/one.jsonl", "sessions/two.jsonl"}


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("gone.jsonl", "NOT_FOUND", "FILE_NOT_FOUND"),
        ("../sessions/s1.jsonl", "PERMISSION_DENIED", "PATH_NOT_ALLOWED"),
        ("/etc/passwd", "PERMISSION_DENIED", "PATH_NOT_ALLOWED"),
        ("link.jsonl", "PERMISSION_DENIED", "PATH_NOT_ALLOWED"),
        ("s1.jsonl.bak", "PERMISSION_DENIED", "PATH_NOT_ALLOWED"),
    ],
)
async def test_a_compaction_of_anything_but_a_transcript_is_refused(home, serve, name, code, reason):
    file = say(home, "s1.jsonl", user("hello"))
    file.with_name("link.jsonl").symlink_to(file)
    file.with_name("s1.jsonl.bak").write_bytes(file.read_bytes())
    memoryd = await serve(sessions())
    call = memoryd.stub.Sync(pb.SyncRequest(trigger=AFTER_COMPACTION, transcript=name), timeout=TIMEOUT)
    await check_refused(call, code, reason)


async def test_a_sync_of_one_source_leaves_the_other_as_it_is(home, serve):
    memoryd = await serve(sessions())
    assert (await memoryd.synced()).indexed_files == 0
    home.write(crane="The harbour crane lifts containers.")
    say(home, "s1.jsonl", user("The crane is rusty."))
    assert (await memoryd.synced(sources=[memory_pb2.SOURCE_SESSIONS])).indexed_files == 1
    assert paths(await memoryd.search("crane")) == ["sessions/s1.jsonl"]
    assert (await memoryd.status()).index.dirty
    assert (await memoryd.synced(sources=[memory_pb2.SOURCE_MEMORY])).indexed_files == 1
    assert not (await memoryd.status()).index.dirty


async def test_status_counts_each_source(home, serve):
    home.write(a="one", b="two")
    say(home, "s1.jsonl", user("three"))
    memoryd = await serve(sessions())
    await memoryd.synced()
    status = await memoryd.status()
    counts = {each.source: (each.files_on_disk, each.files_indexed, each.chunks) for each in status.index.sources}
    assert counts == {memory_pb2.SOURCE_MEMORY: (2, 2, 2), memory_pb2.SOURCE_SESSIONS: (1, 1, 1)}
    assert "SOURCE_SKIPPED" not in kinds(status.degradations)


@pytest.mark.folder_only("documents are not watched")
async def test_a_transcript_is_indexed_when_it_is_due_and_not_before(home, serve, monkeypatch):
    quick = functools.partial(BackgroundSync, transcript_window_seconds=0.05)
    monkeypatch.setattr("memoryd_server.agent.index.BackgroundSync", quick)
    say(home, "s1.jsonl", user("about the harbour"))
    memoryd = await serve(sessions(), background=True)
    await eventually(lambda: memoryd.memory().index.monitor.current.files == 1)
    await eventually(lambda: memoryd.memory().index.coordinator.active is None)
    say(home, "s1.jsonl", user("the heron"))
    home.write(note="A note beside it.")
    await eventually(lambda: memoryd.memory().index.monitor.current.files == 2)
    assert not (await memoryd.search("heron")).results, "one message is not enough"
    say(home, "s1.jsonl", *[user(f"message {number}") for number in range(50)])

    async def found():
        return paths(await memoryd.search("heron"))

    assert await eventually(found) == ["sessions/s1.jsonl"]


@pytest.mark.folder_only("archives of transcripts are files of a gateway")
async def test_a_rotated_transcript_is_found_under_its_new_name(home, serve):
    file = say(home, "s1.jsonl", user("The heron nests by the weir."))
    memoryd = await serve(sessions())
    await memoryd.synced()
    file.rename(file.with_name("s1.jsonl.reset.2026-02-08T10-00-00.000Z"))
    assert not (await memoryd.search("heron")).results, "what is gone is not shown"
    await memoryd.synced(trigger=sync_event_pb2.SYNC_TRIGGER_SESSION_START)
    (path,) = paths(await memoryd.search("heron"))
    assert path == "sessions/s1.jsonl.reset.2026-02-08T10-00-00.000Z"
    assert (await memoryd.get(path)).text == "User: The heron nests by the weir."


async def test_each_line_of_a_snippet_is_where_the_reply_says(home, serve):
    talk = [
        user(f"Remark {number} about nothing in particular, at some length, to fill the chunk.") for number in range(40)
    ]
    for place in (5, 11, 29):
        talk.insert(place, TOOL * 7)
    talk.insert(20, user("Here the heron is named."))
    file = say(home, "s1.jsonl", *talk)
    memoryd = await serve(sessions())
    await memoryd.synced()
    (hit,) = (await memoryd.search("heron", max_snippet_chars=80, max_results=1)).results
    lines = file.read_text().split("\n")
    said = [json.loads(line)["message"] for line in lines[hit.snippet_start_line - 1 : hit.snippet_end_line]]
    assert "heron" in str(said)
    read = await memoryd.get(hit.path, start_line=hit.start_line, line_count=hit.end_line - hit.start_line + 1)
    spoken = [line for line in read.text.split("\n") if line]
    off = memory_pb2.CITATION_MODE_OFF
    shown = await memoryd.search("heron", max_snippet_chars=4000, max_results=1, citations=off)
    assert shown.results[0].snippet.split("\n") == spoken


async def test_a_forgotten_session_stays_out_under_any_name(home, serve):
    file = say(home, "s1.jsonl", user("The heron nests by the weir."))
    say(home, "s2.jsonl", user("The crane stands in the harbour."))
    memoryd = await serve(sessions())
    await memoryd.synced()
    receipt = await memoryd.stub.MemoryForget(pb.MemoryForgetRequest(session_id="s1"), timeout=TIMEOUT)
    assert (receipt.chunks, receipt.keyword_entries, receipt.source_files) == (1, 1, 0)
    say(home, "s1.jsonl", user("And the heron again."))
    await memoryd.synced()
    assert not (await memoryd.search("heron")).results
    file.rename(file.with_name("s1.jsonl.reset.1"))
    await memoryd.synced(mode=sync_event_pb2.SYNC_MODE_FULL)
    assert not (await memoryd.search("heron")).results
    assert paths(await memoryd.search("crane")) == ["sessions/s2.jsonl"]
