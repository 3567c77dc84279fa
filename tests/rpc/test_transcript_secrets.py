"""Secrets spoken in a session occur in its transcript alone, after every operation."""

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import sync_event_pb2
from rpc.test_sessions import AFTER_COMPACTION, SESSIONS, say
from rpc.wire import TIMEOUT, paths
from secret_texts import INNOCENT, SECRETS
from transcript_fixture import assistant, user

# What is shown of a long secret: so many characters at either end.
HEAD, TAIL = 6, 4


def hidden():
    """What must not be found, as it was said and as the analyzer writes it."""
    cores = {secret if len(secret) < 18 else secret[HEAD:-TAIL] for _, secret in SECRETS.values()}
    return {core.encode() for core in cores} | {core.lower().encode() for core in cores}


def traces(data):
    return {secret for secret in hidden() if secret in data}


async def test_no_secret_of_a_transcript_is_in_any_file_reply_log_or_request(home, serve, provider):
    for number, (text, _) in enumerate(SECRETS.values()):
        say(home, f"s{number % 3}.jsonl", user(f"For the heron {text} is used."), assistant(f"I noted {text} then."))
    kept = say(home, "s0.jsonl", *[user(f"Innocent: {text}") for text in INNOCENT])
    say(home, "s3.jsonl", *[user(text) for text, _ in SECRETS.values()])
    remote = {"baseUrl": provider.url, "apiKey": "sk-of-this-test"}
    search = {**SESSIONS, "provider": "openai-compatible", "model": "words", "remote": remote}
    memoryd = await serve({"agents": {"defaults": {"memorySearch": search}}})
    replies = [*await memoryd.sync()]
    say(home, "s1.jsonl", *[assistant(f"Again {text}") for text, _ in SECRETS.values()])
    replies += await memoryd.sync(trigger=AFTER_COMPACTION, transcript="s1.jsonl")
    kept = kept.rename(kept.with_name("s0.jsonl.reset.2026-02-08T10-00-00.000Z"))
    replies += await memoryd.sync(mode=sync_event_pb2.SYNC_MODE_FULL)
    for query in ("heron", "innocent", *(secret for _, secret in SECRETS.values())):
        replies.append(await memoryd.search(query, max_results=50, max_snippet_chars=4_000, explain=False))
    for name in ("s1.jsonl", "s2.jsonl", "s3.jsonl", kept.name):
        replies.append(await memoryd.get(f"sessions/{name}", line_count=2_000))
    replies += [await memoryd.status(probe=True), await memoryd.files()]
    archive = pb.SessionArchiveRequest(transcript="s2.jsonl", message_count=200)
    replies.append(await memoryd.stub.SessionArchive(archive, timeout=TIMEOUT))
    shown = (await memoryd.get(f"sessions/{kept.name}", line_count=2_000)).text
    assert all(" ".join(text.split()) in shown for text in INNOCENT)
    assert paths(await memoryd.search("innocent"))
    await memoryd.stop_daemon()

    assert provider.texts
    # A question goes to the provider as it was asked; everything else that did came out of the index.
    asked = {secret for _, secret in SECRETS.values()}
    assert not traces("\n".join(text for text in provider.texts if text not in asked).encode())
    assert not traces(memoryd.log.getvalue().encode())
    assert not [reply for reply in replies if traces(reply.SerializeToString())]
    transcripts = home.state_dir / "agents"
    files = [file for file in home.root.rglob("*") if file.is_file() and not file.is_relative_to(transcripts)]
    assert {file.name: traces(file.read_bytes()) for file in files if traces(file.read_bytes())} == {}
    if home.store.is_sqlite:
        assert any(file.name == "main.memoryd.sqlite" for file in files)
    else:
        assert [secret for _, secret in SECRETS.values() if home.store.places_of(secret)] == []
    assert traces(kept.read_bytes()), "the transcript itself is as it was"
