"""A conversation that was forgotten with its note or transcript is not imported again."""

import pytest

from imported import conversation
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.imports import (
    Effect,
    FolderNotes,
    FolderTranscripts,
    ImportOptions,
    NoteImport,
    NoteOptions,
    SessionImport,
    import_all,
)
from memoryd_server.sources import ForgottenFile, Roots
from rpc.wire import TIMEOUT

pytestmark = [pytest.mark.sqlite_only(reason="imports into folders"), pytest.mark.folder_only(reason="as above")]


def forgotten(home):
    return ForgottenFile(home.state_dir / "memory" / "main.forgotten").load()


def import_note(home, *texts):
    store = FolderNotes(Roots(str(home.workspace)), 1 << 20)
    with store.locked():
        target = NoteImport(store, forgotten(home).files, NoteOptions())
        return import_all([conversation(*texts)], target, ImportOptions())


def import_session(home, *texts):
    store = FolderTranscripts(home.state_dir / "agents" / "main" / "sessions")
    with store.locked():
        return import_all([conversation(*texts)], SessionImport(store, forgotten(home).sessions), ImportOptions())


@pytest.mark.parametrize("delete_source", [True, False])
async def test_a_forgotten_note_is_not_imported_again(home, serve, delete_source):
    (path,) = import_note(home, "the pelican").paths
    daemon = await serve()
    await daemon.synced()
    assert [result.path for result in (await daemon.search("pelican")).results] == [path]
    await daemon.stub.MemoryForget(pb.MemoryForgetRequest(path=path, delete_source=delete_source), timeout=TIMEOUT)
    report = import_note(home, "the pelican", "flies")
    assert report.counts == {Effect.FORGOTTEN: 1}
    assert (home.workspace / path).exists() is not delete_source
    await daemon.synced()
    assert not (await daemon.search("pelican")).results
    # Of a deleted note, no words of the title are stored.
    assert delete_source is not any("backups" in name for name in forgotten(home).files)


@pytest.mark.parametrize("delete_source", [True, False])
async def test_a_note_that_was_deleted_before_it_was_forgotten_is_not_imported_again(home, serve, delete_source):
    (path,) = import_note(home, "the pelican").paths
    # Without a watcher, the index still has the note.
    daemon = await serve({"agents": {"defaults": {"memorySearch": {"sync": {"watch": False}}}}})
    await daemon.synced()
    (home.workspace / path).unlink()
    await daemon.stub.MemoryForget(pb.MemoryForgetRequest(path=path, delete_source=delete_source), timeout=TIMEOUT)
    assert import_note(home, "the pelican", "flies").counts == {Effect.FORGOTTEN: 1}
    assert not any("backups" in name for name in forgotten(home).files)


@pytest.mark.parametrize("delete_source", [True, False])
async def test_a_forgotten_session_is_not_imported_again(home, serve, delete_source):
    import_session(home, "the pelican")
    search = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}
    daemon = await serve({"agents": {"defaults": {"memorySearch": search}}})
    await daemon.synced()
    (result,) = (await daemon.search("pelican")).results
    session = result.path.removeprefix("sessions/").removesuffix(".jsonl")
    await daemon.stub.MemoryForget(
        pb.MemoryForgetRequest(session_id=session, delete_source=delete_source), timeout=TIMEOUT
    )
    assert import_session(home, "the pelican", "flies").counts == {Effect.FORGOTTEN: 1}
