"""Whatever text providers, qmd, files, names and settings hold, every reply about an agent can be sent and read."""

import json
import os
from pathlib import Path

import grpc
import pytest

from entry_fixture import needs_lancedb
from fake_providers import Fault, fake_provider
from fake_qmd.installs import make_fake
from memoryd.v1 import entry_service_pb2 as entries_pb
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.qmd_calls import BUILTIN, QMD, ask, fallback_reason, qmd_settings, ready
from rpc.wire import HYBRID, KEYWORD, TIMEOUT, UNSET, VECTOR, kinds, paths, refusal

KEY = "key-of-this-test-0123456789"
PROVIDERS = ("openai", "gemini", "voyage", "mistral", "ollama", "openai-compatible")

BODIES = {
    "escaped": rb'{"error": {"message": "half \ud800 of it", "code": "\udfff", "type": "\udbff", "status": "\ud800"}}',
    "raw": b'{"error": {"message": "half \xed\xa0\x80 of it \xff", "code": "\xff"}}',
    "detail": rb'{"detail": [{"msg": "half \ud800 of it", "type": "\ud800", "loc": ["\ud800"]}]}',
    "text": b"half \xed\xa0\x80 of it \xff \x00 \x1b[2J",
    "plain": rb'"half \uD800 of it"',
    "gemini": rb'{"error": {"message": "half \ud800 of it", "details": [{"reason": "\ud800", "retryDelay": "\ud800s",'
    rb' "violations": [{"quotaId": "\ud800"}]}]}}',
    "long": rb'{"error": {"message": "half \ud800 of it' + rb"\ud800" * 300_000 + rb'"}}',
    "deep": b'{"error": ' * 5_000,
}
STATUSES = (400, 401, 402, 403, 404, 413, 422, 429, 500, 503)


@pytest.fixture(params=PROVIDERS)
def server(request):
    with fake_provider(request.param, [] if request.param == "ollama" else [KEY]) as server:
        yield server


def using(server, memoryd=None, **search):
    remote = {"baseUrl": server.url, "apiKey": KEY, **search.pop("remote", {})}
    defaults = {"provider": server.provider, "model": server.model, "remote": remote, **search}
    return {"agents": {"defaults": {"memorySearch": defaults}}, "memoryd": memoryd or {}}


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    found = refusal(caught.value)
    assert found.reason in {"EMBEDDING_UNAVAILABLE", "EMBEDDING_QUOTA_EXCEEDED"}
    return found


async def check_everything_answers(running, word="ferry"):
    """Each call is answered; the client has decoded every string."""
    for mode in (UNSET, HYBRID, KEYWORD):
        answer = await running.search(word, mode=mode, explain=True)
        assert paths(answer)
        assert all(d.reason for d in answer.info.degradations)
    await running.status()
    await running.status(probe=True)
    for file in (await running.files()).files:
        if file.state == pb.FILE_STATE_INDEXED:
            assert (await running.get(file.path)).path == file.path
    await running.stub.ListAgents(pb.ListAgentsRequest(), timeout=TIMEOUT)
    await running.stub.SessionContext(pb.SessionContextRequest(session_key="agent:main:main"), timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("body", "status"),
    [(body, 400) for body in BODIES.values()] + [(BODIES["escaped"], status) for status in STATUSES],
    ids=[*BODIES, *map(str, STATUSES)],
)
async def test_a_providers_words_cost_no_reply(home, serve, provider, body, status):
    home.write(boat="the red ferry sails at dawn")
    running = await serve(using_words(provider))
    await running.synced()
    headers = {"retry-after": "1e300", "x-request-id": "caf\xe9"}
    provider.refuse = lambda _texts: Fault(status=status, body=body, headers=headers)
    await refused(running.search("ferry by meaning", mode=VECTOR))
    home.write(other="another ferry")
    await running.synced()
    await check_everything_answers(running)


def using_words(server, **memoryd):
    remote = {"baseUrl": server.url, "apiKey": KEY}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": memoryd}


@pytest.mark.parametrize("status", [400, 500])
async def test_the_words_of_every_provider_cost_no_reply(home, serve, server, status):
    home.write(boat="the red ferry sails at dawn", bad="an unspeakable ferry")
    server.refuse = lambda texts: (
        Fault(status=status, body=BODIES["escaped"]) if any("unspeakable" in text for text in texts) else None
    )
    running = await serve(using(server))
    await running.synced()
    await refused(running.search("unspeakable", mode=VECTOR))
    await check_everything_answers(running)
    reasons = [d.reason for d in (await running.status()).degradations]
    assert any("half \ufffd of it" in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    "body",
    [
        rb'{"\ud800": ["\ud800"]}',
        rb'{"data": [{"embedding": "\ud800", "index": 0}]}',
        rb'{"data": [{"embedding": ["\ud800"], "index": "\ud800"}], "usage": {"total_tokens": "\ud800"}}',
        b"[" * 100_000,
    ],
)
async def test_an_answer_of_foreign_text_costs_no_reply(home, serve, provider, body):
    home.write(boat="the red ferry sails at dawn")
    running = await serve(using_words(provider))
    await running.synced()
    provider.refuse = lambda _texts: Fault(body=body)
    await refused(running.search("ferry by meaning", mode=VECTOR))
    await check_everything_answers(running)


async def test_a_count_of_tokens_that_no_answer_has_is_not_counted(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    provider.refuse = lambda _texts: Fault(change=lambda reply: {**reply, "usage": {"total_tokens": 10**400}})
    running = await serve(using_words(provider))
    await running.synced()
    assert 0 < (await running.status()).embedding.tokens < 100


async def test_the_reason_of_a_failover_is_reported_after_a_restart(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    with fake_provider("openai", [KEY]) as first:
        first.refuse = lambda _texts: Fault(status=403, body=BODIES["escaped"])
        remote = {"baseUrl": first.url, "apiKey": KEY}
        search = {"provider": "openai", "model": first.model, "remote": remote, "fallback": "openai-compatible"}
        settings = {
            "agents": {"defaults": {"memorySearch": search}},
            "models": {"providers": {"openai-compatible": {"baseUrl": provider.url, "apiKey": KEY}}},
        }
        for _ in range(2):
            running = await serve(settings)
            await running.synced()
            await check_everything_answers(running)
            await running.stop()


@pytest.mark.parametrize("name", ["openai", "gemini", "voyage"])
async def test_text_of_a_batch_job_breaks_no_reply(home, serve, name):
    home.write(**{f"n{number}": f"the ferry number{number}x" for number in range(12)})

    def strange(value):
        if isinstance(value, dict):
            return {key: strange(item) for key, item in value.items()}
        return [strange(item) for item in value] if isinstance(value, list) else f"{value}\ud800"

    with fake_provider(name, [KEY]) as server:
        running = await serve(
            using(server, {"batchMinChunks": 10}, remote={"batch": {"pollIntervalMs": 20, "timeoutMinutes": 1}})
        )
        # The answers that tell of the upload, of the job, and of its state.
        for spoilt in range(3):
            server.faults.extend([*[Fault()] * spoilt, Fault(change=strange)])
            await running.sync()
            await check_everything_answers(running)
            home.write(**{f"m{spoilt}{number}": f"the ferry again{spoilt}{number}x" for number in range(12)})


async def test_a_failed_batch_jobs_words_are_valid_and_bounded(home, serve):
    home.write(**{f"n{number}": f"the ferry number{number}x" for number in range(12)})
    with fake_provider("openai", [KEY]) as server:

        def failed(reply):
            faults = {"data": [{"message": "half \ud800 of it" + "x" * 100_000, "code": "\ud800"}]}
            return {**reply, "status": "failed", "errors": faults} if "output_file_id" in reply else reply

        server.faults.extend([Fault(), Fault(), Fault(change=failed)])
        running = await serve(using(server, {"batchMinChunks": 10}, remote={"batch": {"pollIntervalMs": 20}}))
        await running.sync()
        await check_everything_answers(running)
        assert len((await running.status()).batch.last_error) < 1_000


@pytest.mark.parametrize(("fault", "by"), [("foreign-rows", QMD), ("foreign-words", BUILTIN), ("deep-rows", BUILTIN)])
async def test_output_of_qmd_breaks_no_reply(home, serve, tmp_path, fault, by):
    home.environ = {"PATH": os.defpath, "HOME": str(tmp_path)}
    home.write(boat="# Boats\n\nthe red ferry sails at dawn\n")
    fake = make_fake(tmp_path / "bin")
    running = await serve(qmd_settings(fake.path))
    await ready(running)
    fake.faults(search=fault, query=fault, vsearch=fault)
    answer = await ask(running, "ferry")
    assert (answer.info.backend, paths(answer)) == (by, ["memory/boat.md"])
    assert (by == BUILTIN) == bool(fallback_reason(answer))
    await running.status(probe=True)
    fake.faults(**{"*": "foreign-words"})
    await running.sync()
    assert paths(await ask(running, "ferry")) == ["memory/boat.md"]
    await running.status(probe=True)


def put(path, text):
    """A file whose path is bytes, which need not be UTF-8."""
    file = Path(os.fsdecode(path))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def spoken(role, text, **more):
    return json.dumps({"type": "message", "message": {"role": role, "content": text, **more}}) + "\n"


async def test_text_of_files_transcripts_and_names_breaks_no_reply(home, serve):
    home.write(
        boat=b"the red ferry \xff\xed\xa0\x80 sails",
        matter=b'---\ntitle: "half \\ud800 ferry"\n"\\udfff": "\\ud800"\ntags: ["\\ud800"]\n---\na ferry\n',
        **{"line\nbreak": "a ferry", "escape\x1b[2J": "a ferry", "back\\slash": "a ferry"},
    )
    home.put("memory/.memoryignore", b"\xff\n")
    folder = os.fsencode(home.workspace / "memory")
    for name in (b"/caf\xe9.md", b"/fold\xe9r/in.md", b"/\xed\xa0\x80.md"):
        put(folder + name, "a ferry")
    home.say(
        "s\u00e9ance.jsonl",
        json.dumps({"type": "session", "id": "\ud800", "title": "\ud800", "cwd": "\udfff"}) + "\n",
        spoken("user", "when does the \ud800 ferry sail \udfff", id="\ud800", model="\ud800"),
        spoken("assistant", [{"type": "text", "text": "the ferry \udbff sails"}, {"type": "\ud800", "text": "\ud800"}]),
        spoken("\ud800", "ferry"),
    )
    search = {"sources": ["memory", "sessions"], "experimental": {"sessionMemory": True}}
    running = await serve({"agents": {"defaults": {"memorySearch": search}}})
    done = await running.synced()
    assert done.failed_files == 3
    await check_everything_answers(running)
    listed = {file.path for file in (await running.files()).files}
    assert {"memory/caf\\xe9.md", "memory/fold\\xe9r/in.md", "memory/line\nbreak.md"} <= listed
    answer = await running.search("ferry sail", sources=[memory_pb2.SOURCE_SESSIONS])
    assert paths(answer) == ["sessions/s\u00e9ance.jsonl"]
    archived = await running.stub.SessionArchive(
        pb.SessionArchiveRequest(transcript="s\u00e9ance.jsonl", slug="x"), timeout=TIMEOUT
    )
    assert archived.path


async def test_a_workspace_whose_name_is_not_utf_8_is_served(home, serve):
    workspace = os.fsencode(home.root) + b"/caf\xe9"
    put(workspace + b"/memory/boat.md", "the red ferry")
    running = await serve({}, workspace=os.fsdecode(workspace))
    await running.synced()
    await check_everything_answers(running)
    assert (await running.status()).workspace.endswith("/caf\\xe9")


async def test_text_of_settings_breaks_no_reply(home, serve):
    home.write(boat="the red ferry sails at dawn")
    home.state_dir.joinpath("openclaw.json").write_text(
        '{"\\ud800": 1, "agents": {"defaults": {"memorySearch": {"provider": "openai-compatible", "model": "\\ud800",'
        ' "extraPaths": ["\\ud800", "/nowhere/\\udce9"], "remote": {"baseUrl": "http://127.0.0.1:9/\\ud800",'
        ' "apiKey": "k"}}, "compaction": {"memoryFlush": {"prompt": "\\ud800 write"}}}}}'
    )
    running = await serve({})
    await running.synced()
    await check_everything_answers(running)
    status = await running.status()
    assert status.embedding.model == "\ufffd"
    assert any("U+FFFD" in warning for warning in status.service.settings_warnings)
    await running.stub.FlushDecision(pb.FlushDecisionRequest(total_tokens=10**6), timeout=TIMEOUT)


async def test_text_of_state_files_breaks_no_reply(home, serve):
    home.write(boat="the red ferry sails at dawn")
    (home.state_dir / "memory").mkdir(exist_ok=True)
    deep = "[" * 100_000
    entry = {"key": "\ud800", "path": "memory/\ud800.md", "offset": 0, "length": 5, "block_sha256": "\ud800"}
    entry |= {"request_sha256": "\ud800", "start_line": 1, "end_line": 1, "state": "pending"}
    (home.state_dir / "memory" / "main.appends").write_text(f"{json.dumps(entry)}\n{deep}\n")
    lines = [{"path": "\ud800", "sha256": "\ud800"}, {"session": "\ud800"}]
    text = "\n".join([*map(json.dumps, lines), deep, ""])
    (home.state_dir / "memory" / "main.forgotten").write_text(text)
    running = await serve({})
    await running.synced()
    await check_everything_answers(running)
    await running.append("a line")


@needs_lancedb
async def test_the_words_of_a_provider_cost_no_reply_about_entries(home, serve, provider):
    running = await serve(using_words(provider, entries={"enabled": True}))
    remember = entries_pb.RememberRequest(text="the red ferry")
    provider.refuse = lambda _texts: Fault(status=403, body=BODIES["escaped"])
    stored = await running.entries.Remember(remember, timeout=TIMEOUT)
    assert "VECTOR_LEG_SKIPPED" in kinds(stored.degradations)
    recalled = await running.entries.Recall(entries_pb.RecallRequest(query="ferry"), timeout=TIMEOUT)
    assert "half \ufffd of it" in "".join(d.reason for d in recalled.degradations)
    await running.entries.ListEntries(entries_pb.ListEntriesRequest(), timeout=TIMEOUT)
