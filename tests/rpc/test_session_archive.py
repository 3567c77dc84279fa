"""SessionArchive over the wire: the right transcript, the right day, found at the revision that it names."""

import asyncio

import pytest

from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import TIMEOUT, check_refused, paths
from transcript_fixture import assistant, user

NOON = {"seconds": 1_770_552_000}  # 2026-02-08 12:00 UTC
KEY = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"


def talk(*texts):
    """User and assistant in turn."""
    return "".join((user, assistant)[n % 2](text) for n, text in enumerate(texts))


async def archive(running, transcript="abc", **request):
    request = {"now": NOON, "time_zone": "UTC", "transcript": transcript, **request}
    return await running.stub.SessionArchive(pb.SessionArchiveRequest(**request), timeout=TIMEOUT)


async def test_an_archive_is_found_at_the_revision_returned(serve, home):
    home.say("abc.jsonl", talk("where is the walrus?", "in the harbour"))
    running = await serve()
    reply = await archive(running, slug="Walrus: where?!", session_key="agent:main:main")
    assert (reply.path, reply.messages, reply.already_archived) == ("memory/2026-02-08-walrus-where.md", 2, False)
    assert reply.path in paths(await running.search("walrus harbour", min_revision=reply.index_revision))
    text = (await running.get(reply.path)).text
    assert "- Session key: agent:main:main\n- Session id: abc\n" in text
    assert text.endswith("User: where is the walrus?\n\nAssistant: in the harbour\n")


async def test_a_retry_writes_nothing(serve, home):
    home.say("abc.jsonl", talk("where is the walrus?", "in the harbour"))
    running = await serve()
    first = await archive(running)
    replies = await asyncio.gather(*(archive(running, now={"seconds": NOON["seconds"] + n}) for n in range(5)))
    assert {(reply.path, reply.already_archived) for reply in replies} == {(first.path, True)}
    assert len(list((home.workspace / "memory").iterdir())) == 1


async def test_a_second_archive_of_a_name_is_numbered(serve, home):
    running = await serve()
    found = []
    for word in ("walrus", "seal", "gull"):
        home.say("abc.jsonl", talk(word))
        found.append((await archive(running, slug="x")).path)
    assert found == ["memory/2026-02-08-x.md", "memory/2026-02-08-x-2.md", "memory/2026-02-08-x-3.md"]
    assert "walrus" in (await running.get(found[0])).text


@pytest.mark.parametrize(
    ("setting", "time_zone", "path"),
    [
        ("UTC", "", "memory/2026-02-08-1200.md"),
        ("UTC", "Pacific/Kiritimati", "memory/2026-02-09-0200.md"),
        ("Asia/Kathmandu", "", "memory/2026-02-08-1745.md"),
    ],
)
async def test_date_and_time_are_those_of_the_zone(serve, home, setting, time_zone, path):
    home.say("abc.jsonl", talk("?!"))
    running = await serve({"agents": {"defaults": {"userTimezone": setting}}})
    assert (await archive(running, time_zone=time_zone)).path == path


async def test_secrets_are_masked_wherever_they_could_go(serve, home):
    home.say("abc.jsonl", talk(f"the token is {KEY}", f"export TOKEN={KEY}"))
    running = await serve()
    reply = await archive(running)
    assert KEY not in (await running.get(reply.path)).text
    assert not any(KEY[8:24] in str(file) for file in home.workspace.rglob("*"))


async def test_as_many_messages_as_asked_for_are_kept(serve, home):
    home.say("abc.jsonl", talk(*(f"message {n}" for n in range(300))))
    running = await serve()
    assert (await archive(running)).messages == 15
    assert (await archive(running, message_count=2)).messages == 2
    assert (await archive(running, message_count=10_000)).messages == 200


async def test_a_session_in_which_nothing_was_said_makes_no_file(serve, home):
    home.say("abc.jsonl", talk("/new"))
    reply = await archive(await serve())
    assert (reply.path, reply.messages, reply.HasField("index_revision")) == ("", 0, False)
    assert list((home.workspace / "memory").iterdir()) == []


async def test_another_agent_s_transcript_is_not_found(serve, home):
    home.say("abc.jsonl", talk("secret"), agent_id="other")
    running = await serve({"agents": {"list": [{"id": "main"}, {"id": "other", "workspace": str(home.root / "w")}]}})
    await check_refused(archive(running), "NOT_FOUND", "FILE_NOT_FOUND", mentions="sessions folder")
    for name in ("../../other/sessions/abc.jsonl", str(home.state_dir / "agents/other/sessions/abc.jsonl")):
        await check_refused(archive(running, name), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("request_", "violations"),
    [
        ({"transcript": ""}, {"transcript"}),
        ({"transcript": " "}, {"transcript"}),
        ({"transcript": "x" * 256}, {"transcript"}),
        ({"slug": "../.."}, {"slug"}),
        ({"slug": "x" * 257}, {"slug"}),
        ({"message_count": 0}, {"message_count"}),
        ({"message_count": -1, "time_zone": "Mars"}, {"message_count", "time_zone"}),
        ({"session_key": "a\nb"}, {"session_key"}),
        ({"session_key": "x" * 1_025, "now": {"seconds": 10**15}}, {"session_key", "now"}),
    ],
)
async def test_bad_fields_are_all_named(serve, request_, violations):
    request_ = {"transcript": "abc", **request_}
    await check_refused(
        archive(await serve(), **request_), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations
    )


@pytest.mark.folder_only("documents in a database need no workspace")
async def test_a_workspace_that_does_not_exist_is_not_made(serve, home):
    home.say("abc.jsonl", talk("one"))
    running = await serve(workspace=str(home.root / "absent"))
    missing = f"{home.root / 'absent'} does not exist; create it"
    await check_refused(archive(running), "NOT_FOUND", "FILE_NOT_FOUND", mentions=missing)
    assert not (home.root / "absent").exists()
