"""MemoryForget removes the named source from every store immediately, returns the counts, and removes nothing else."""

import asyncio
import threading

import grpc
import pytest

from fake_providers import Fault
from memoryd.v1 import memory_service_pb2 as pb
from rpc.sync_streams import FULL, follow, rest
from rpc.wire import TIMEOUT, check_refused, paths
from transcript_fixture import user
from waiting import eventually

WORD = "xylophonographer"
SECRET = f"# Secret\n\nthe {WORD} lives at the old mill\n\n## More\n\n{WORD} again, and again the {WORD}"
GONE = {"chunks": 1, "keyword_entries": 1, "vectors": 1, "cached_embeddings": 1}


async def forget(running, **request):
    return await running.stub.MemoryForget(pb.MemoryForgetRequest(**request), timeout=TIMEOUT)


def receipt(reply):
    """What was counted, without zeros."""
    others = {"index_revision", "purge_pending"}
    return {field.name: value for field, value in reply.ListFields() if field.name not in others}


def on_disk(home):
    """Where the word is stored, as it is or as it is indexed."""
    return home.store.places_of(WORD[:11])


def state_of(files):
    return {file.path: pb.FileState.Name(file.state).removeprefix("FILE_STATE_") for file in files.files}


@pytest.fixture
async def running(home, serve, provider):
    home.write(secret=SECRET, other="the ferry sails at dawn")
    daemon = await serve(using(provider))
    await daemon.synced()
    assert (await daemon.search(WORD)).results
    assert on_disk(home)
    return daemon


def using(provider):
    remote = {"baseUrl": provider.url, "apiKey": "sk-secret-of-this-test"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    return {"agents": {"defaults": {"memorySearch": search}}}


async def test_a_file_is_gone_from_every_store_before_the_answer(running, home):
    before = (await running.status()).index.revision
    reply = await forget(running, path="memory/secret.md")
    assert on_disk(home) == []
    assert receipt(reply) == GONE
    # PostgreSQL keeps the rows for itself until the next VACUUM, which does not run before the answer.
    assert reply.purge_pending is not home.store.is_sqlite
    assert reply.index_revision > before
    assert paths(await running.search(WORD)) == []
    assert (home.workspace / "memory" / "secret.md").read_text() == SECRET
    assert paths(await running.search("ferry", min_revision=reply.index_revision)) == ["memory/other.md"]


async def test_a_forgotten_file_stays_out_after_every_sync_and_rebuild(running, home, serve, provider):
    await forget(running, path="memory/secret.md")
    for request in ({}, {"mode": FULL}):
        await running.synced(**request)
        assert paths(await running.search(WORD)) == []
    assert state_of(await running.files()) == {"memory/other.md": "INDEXED", "memory/secret.md": "FORGOTTEN"}
    status = await running.status()
    assert (status.index.dirty, status.index.chunks) == (False, 1)
    (home.workspace / "memory" / "secret.md").touch()
    assert (await running.synced()).indexed_files == 0
    await running.stop()
    home.store.lose_index()
    again = await serve(using(provider))
    await again.synced()
    assert paths(await again.search(WORD)) == []
    assert on_disk(home) == []


async def test_a_forgotten_file_is_back_when_its_content_has_changed(running, home):
    await forget(running, path="memory/secret.md")
    home.write(secret=SECRET + "\nand more")
    await running.synced()
    assert paths(await running.search(WORD)) == ["memory/secret.md"]
    home.write(secret=SECRET)
    await running.synced()
    assert paths(await running.search(WORD)) == ["memory/secret.md"]


async def test_a_file_that_is_not_indexed_yet_can_be_forgotten(running, home):
    home.write(secret=f"a newer text of the {WORD}", late=f"one more {WORD}")
    assert receipt(await forget(running, path="memory/secret.md")) == GONE
    assert receipt(await forget(running, path="memory/late.md")) == {}
    await running.synced()
    assert paths(await running.search(WORD)) == []
    assert on_disk(home) == []


async def test_the_source_goes_only_when_that_is_asked_for(running, home):
    reply = await forget(running, path="memory/secret.md", delete_source=True)
    assert receipt(reply) == {**GONE, "source_files": 1}
    assert not (home.workspace / "memory" / "secret.md").exists()
    assert on_disk(home) == []
    home.write(secret=SECRET)
    await running.synced()
    assert paths(await running.search(WORD)) == ["memory/secret.md"]


async def test_a_repeated_call_counts_what_is_left(running):
    await forget(running, path="memory/secret.md")
    assert receipt(await forget(running, path="memory/secret.md")) == {}
    assert receipt(await forget(running, path="memory/secret.md", delete_source=True)) == {"source_files": 1}
    await check_refused(forget(running, path="memory/secret.md"), "NOT_FOUND", "FILE_NOT_FOUND", mentions="neither")


async def test_a_file_that_was_deleted_by_hand_can_be_forgotten_before_the_sync(running, home):
    (home.workspace / "memory" / "secret.md").unlink()
    assert receipt(await forget(running, path="memory/secret.md", delete_source=True)) == GONE
    assert on_disk(home) == []


async def test_the_same_text_elsewhere_is_still_found(running, home):
    home.write(copy=SECRET)
    await running.synced()
    await forget(running, path="memory/secret.md")
    assert paths(await running.search(WORD)) == ["memory/copy.md"]


@pytest.mark.folder_only("documents in a database have no extra paths")
async def test_a_file_of_an_extra_path_is_forgotten_and_never_deleted(serve, home):
    shared = home.root / "shared"
    shared.mkdir()
    (shared / "team.md").write_text(SECRET)
    running = await serve({"agents": {"defaults": {"memorySearch": {"extraPaths": [str(shared)]}}}})
    await running.synced()
    refused = forget(running, path="../shared/team.md", delete_source=True)
    await check_refused(refused, "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    assert paths(await running.search(WORD)) == ["../shared/team.md"]
    assert receipt(await forget(running, path="../shared/team.md"))["chunks"] == 1
    assert paths(await running.search(WORD)) == []
    assert (shared / "team.md").exists()


@pytest.mark.parametrize("path", ["../outside.md", "/etc/hosts.md", "memory/../MEMORY.md", "notes.md", "memory/x.txt"])
async def test_a_path_that_is_no_memory_file_cannot_be_forgotten(running, home, path):
    (home.root / "outside.md").write_text("outside")
    home.put("notes.md", "notes")
    for delete in (False, True):
        call = forget(running, path=path, delete_source=delete)
        await check_refused(call, "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    assert (home.root / "outside.md").exists()
    assert (home.workspace / "notes.md").exists()


@pytest.mark.folder_only("a document is not a link")
async def test_nothing_is_deleted_through_a_link(running, home):
    (home.root / "outside").mkdir()
    (home.root / "outside" / "a.md").write_text("outside")
    (home.workspace / "memory" / "link").symlink_to(home.root / "outside")
    (home.workspace / "memory" / "link.md").symlink_to(home.root / "outside" / "a.md")
    for path in ("memory/link/a.md", "memory/link.md"):
        for delete in (False, True):
            call = forget(running, path=path, delete_source=delete)
            await check_refused(call, "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    assert (home.root / "outside" / "a.md").read_text() == "outside"
    assert (home.workspace / "memory" / "link.md").is_symlink()


async def test_a_text_s_embeddings_leave_the_cache_and_nothing_else_goes(running, provider):
    cached = (await running.status()).cache.entries
    reply = await forget(running, text="ferry sails")
    assert receipt(reply) == {"cached_embeddings": 1}
    assert (await running.status()).cache.entries == cached - 1
    assert receipt(await forget(running, text="ferry sails")) == {}
    assert paths(await running.search("ferry")) == ["memory/other.md"]


async def test_a_text_that_is_no_longer_in_any_file_is_found_by_its_own_words(running, home, provider):
    (home.workspace / "memory" / "secret.md").unlink()
    await running.synced()
    assert receipt(await forget(running, text=SECRET)) == {"cached_embeddings": 1}
    home.write(secret=SECRET)
    asked = len(provider.requests)
    await running.synced()
    assert len(provider.requests) == asked + 1


async def test_an_annotated_entry_is_forgotten_by_its_text_as_it_was_written(running, home):
    entry = "- The quince ripens in October. <!-- importance: 9 -->"
    home.put("MEMORY.md", f"# Memory\n\n{entry}\n")
    await running.synced()
    cached = (await running.status()).cache.entries
    assert receipt(await forget(running, text="<!-- importance: 9 -->")) == {}
    assert receipt(await forget(running, text=entry)) == {"cached_embeddings": 1}
    assert (await running.status()).cache.entries == cached - 1


@pytest.mark.folder_only("archives of transcripts are files of a gateway")
async def test_a_session_is_forgotten_with_its_rotated_transcripts(serve, home):
    names = ("abc.jsonl", "abc.jsonl.reset.1", "abc.jsonl.deleted.2", "abcd.jsonl")
    for name in names:
        folder = home.say(name, user(f"the {WORD} said hello")).parent
    running = await serve()
    assert receipt(await forget(running, session_id="abc")) == {}
    assert sorted(file.name for file in folder.iterdir()) == sorted(names)
    assert receipt(await forget(running, session_id="abc", delete_source=True)) == {"source_files": 3}
    assert [file.name for file in folder.iterdir()] == ["abcd.jsonl"]
    await check_refused(forget(running, session_id="abc"), "NOT_FOUND", "FILE_NOT_FOUND", mentions="abc")


async def test_a_sync_that_makes_vectors_steps_aside(serve, home, provider):
    home.write(secret=SECRET)
    home.many(600)
    go = threading.Event()
    asked = []

    def slow(texts):
        asked.append(texts)
        go.wait(0.5)
        return Fault()

    provider.refuse = slow
    running = await serve(using(provider))
    events = asyncio.ensure_future(running.sync())
    await eventually(lambda: asked)
    reply = await forget(running, path="memory/secret.md")
    assert not events.done()
    assert reply.chunks == 1
    go.set()
    assert (await events)[-1].completed.removed_files == 0
    assert not (await running.search(WORD, mode=1)).results
    assert on_disk(home) == []


async def test_a_sync_that_leaves_no_time_is_reported_and_nothing_is_removed(serve, home, pause_sync):
    home.write(secret=SECRET)
    running = await serve()
    held = pause_sync(running)
    events = follow(running)
    await held.until_reached()
    call = running.stub.MemoryForget(pb.MemoryForgetRequest(path="memory/secret.md", delete_source=True), timeout=1)
    await check_refused(call, "DEADLINE_EXCEEDED", "DEADLINE_TOO_SHORT", retry=True, mentions="nothing was removed")
    held.release()
    await rest(events)
    assert (home.workspace / "memory" / "secret.md").exists()
    assert paths(await running.search(WORD)) == ["memory/secret.md"]
    assert receipt(await forget(running, path="memory/secret.md", delete_source=True))["source_files"] == 1


@pytest.mark.sqlite_only("with PostgreSQL, each first answer reports a pending purge")
async def test_words_that_cannot_be_overwritten_yet_are_reported(running, home, monkeypatch):
    monkeypatch.setattr(home.store.store_class, "purge", lambda *_: False)
    reply = await forget(running, path="memory/secret.md")
    assert (reply.purge_pending, reply.chunks) == (True, 1)
    monkeypatch.undo()
    reply = await forget(running, path="memory/other.md")
    assert not reply.purge_pending
    assert on_disk(home) == []


@pytest.mark.folder_only("the list of forgotten sources is a table")
async def test_a_record_that_cannot_be_written_keeps_everything_as_it_is(running, home):
    (home.state_dir / "memory" / "main.forgotten").mkdir(parents=True)
    call = forget(running, path="memory/secret.md")
    await check_refused(call, "FAILED_PRECONDITION", "STATE_READ_ONLY", mentions="nothing was forgotten")
    assert paths(await running.search(WORD)) == ["memory/secret.md"]


@pytest.mark.folder_only("the list of forgotten sources is a table")
async def test_a_damaged_record_is_reported(running, home, serve, provider):
    await forget(running, path="memory/secret.md")
    await running.stop()
    with (home.state_dir / "memory" / "main.forgotten").open("a") as file:
        file.write("garbage\n")
    again = await serve(using(provider))
    assert any("main.forgotten" in issue for issue in (await again.status()).source_issues)
    await again.synced()
    assert paths(await again.search(WORD)) == []


@pytest.mark.parametrize(
    ("request_", "violations"),
    [
        ({}, {"target"}),
        ({"path": " "}, {"path"}),
        ({"session_id": ""}, {"session_id"}),
        ({"text": "\n"}, {"text"}),
        ({"text": "x" * (256 * 1024 + 1)}, {"text"}),
        ({"session_id": "x" * 256}, {"session_id"}),
        ({"text": "x", "delete_source": True}, {"delete_source"}),
    ],
)
async def test_bad_requests_are_named(serve, request_, violations):
    await check_refused(forget(await serve(), **request_), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations)


async def test_an_empty_memory_has_nothing_to_forget(serve):
    running = await serve()
    for target in ({"path": "MEMORY.md"}, {"session_id": "../abc"}):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await forget(running, **target)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert receipt(await forget(running, text="anything")) == {}
