"""MemoryForget where qmd answers: its exported transcripts and its index forget as well."""

import os

import pytest

from fake_qmd.installs import make_fake, real_qmd
from memoryd.v1 import memory_service_pb2 as pb
from rpc.qmd_calls import QMD, answered_by, ask, qmd_settings
from rpc.wire import TIMEOUT, paths
from transcript_fixture import user

pytestmark = pytest.mark.slow

WORD = "flamingo"


async def forget(running, **request):
    return await running.stub.MemoryForget(pb.MemoryForgetRequest(**request), timeout=TIMEOUT)


def on_disk(home):
    """Whether the word stands in the state directory beside the transcripts themselves."""
    own = home.state_dir / "agents" / "main" / "sessions"
    files = [file for file in home.state_dir.rglob("*") if file.is_file() and own not in file.parents]
    return [str(file) for file in files if WORD.encode() in file.read_bytes().lower()]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.slow)])
def command(request, tmp_path):
    if request.param == "fake":
        return make_fake(tmp_path / "bin").path
    return real_qmd() or pytest.skip("no qmd: `make qmd` installs it")


@pytest.fixture
async def running(serve, home, command):
    home.environ = {"PATH": os.defpath, "HOME": str(home.root), "QMD_FORCE_CPU": "1"}
    for name in ("abc.jsonl", "abc.jsonl.reset.1", "abcd.jsonl"):
        word = WORD if name.startswith("abc.") else "heron"
        home.say(name, user(f"the {word} stands in the water"))
    home.write(bird=f"a {WORD} on the shore", other="a heron on the shore")
    daemon = await serve(qmd_settings(command, limits={"timeoutMs": 15_000}, sessions={"enabled": True}))
    await daemon.synced()
    await answered_by(daemon, QMD, WORD)
    return daemon


async def test_a_session_leaves_the_export_and_qmd_s_index(running, home):
    exported = home.state_dir / "agents" / "main" / "qmd" / "sessions"
    assert len(list(exported.glob("*.md"))) == 3
    (home.workspace / "memory" / "bird.md").unlink()
    await running.synced()
    assert on_disk(home)
    reply = await forget(running, session_id="abc")
    assert (reply.qmd_documents, reply.purge_pending) == (2, False)
    assert [file.name for file in exported.glob("*.md")] == ["abcd.md"]
    assert paths(await ask(running, WORD)) == []
    assert on_disk(home) == []
    await running.synced()
    assert paths(await ask(running, WORD)) == []
    assert len(list((home.state_dir / "agents" / "main" / "sessions").iterdir())) == 3


async def test_a_file_that_stays_gives_no_hit(running, home):
    await forget(running, session_id="abc")
    assert paths(await ask(running, WORD)) == ["memory/bird.md"]
    await forget(running, path="memory/bird.md")
    assert paths(await ask(running, WORD)) == []
    home.write(bird=f"a {WORD} on the shore, and another")
    await running.synced()
    assert paths(await ask(running, WORD)) == ["memory/bird.md"]


async def test_a_file_that_is_deleted_leaves_qmd_s_index(running, home):
    await forget(running, session_id="abc", delete_source=True)
    reply = await forget(running, path="memory/bird.md", delete_source=True)
    assert (reply.source_files, reply.purge_pending) == (1, False)
    assert paths(await ask(running, WORD)) == []
    assert on_disk(home) == []
