"""Bearer tokens on TCP: which calls need them, where they are stored, and how they expire or are revoked."""

import asyncio
import json
import os
import stat
from datetime import timedelta

import grpc
import pytest

from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd_server.errors import SettingsError
from rpc.callers import (
    CALLS,
    SERVICE,
    bearer,
    health,
    health_watch,
    listed,
    new_token,
    silent_reflection,
    store,
    token_file,
)
from rpc.wire import TIMEOUT, check_refused, quiet, start
from waiting import eventually


@pytest.fixture
async def guarded(serve, home):
    """A daemon on TCP and on a socket that knows two tokens."""
    file = token_file(home, "# ours\n\nfirst-token\n  second-token  \n")
    listen = ["127.0.0.1:0", f"unix:{home.socket}"]
    running = await serve({"memoryd": {"tokenFile": str(file), "listen": listen}}, listen=None)
    assert running.address.startswith("127.0.0.1:")
    return running


@pytest.fixture
async def over_tcp(serve):
    return await serve(listen="127.0.0.1:0")


def raw(authorization):
    return {"metadata": (("authorization", authorization),)}


async def check_open(running, token):
    assert (await running.stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))).agents


async def check_closed(running, token):
    call = running.stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))
    found = await check_refused(call, "UNAUTHENTICATED", "TOKEN_INVALID")
    assert token not in found.message


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "TOKEN_MISSING"),
        (raw(""), "TOKEN_MISSING"),
        (raw("Bearer wrong"), "TOKEN_INVALID"),
        (raw("Bearer "), "TOKEN_INVALID"),
        (raw("first-token"), "TOKEN_INVALID"),
        (raw("Basic first-token"), "TOKEN_INVALID"),
        (raw("Bearer # ours"), "TOKEN_INVALID"),
    ],
)
async def test_nothing_on_tcp_answers_without_a_good_token(guarded, name, options, reason):
    found = await check_refused(CALLS[name](guarded, **options), "UNAUTHENTICATED", reason)
    assert "first-token" not in found.message


async def test_nothing_that_a_caller_without_a_token_sends_is_looked_at(guarded):
    """Bytes that are no message would be refused as such if they were."""
    made = guarded.channel.unary_unary("/memoryd.v1.MemoryService/Status")(b"\xff\xff", timeout=TIMEOUT)
    await check_refused(made, "UNAUTHENTICATED", "TOKEN_MISSING")


@pytest.mark.parametrize("authorization", ["Bearer first-token", "bearer second-token", "BEARER  first-token "])
async def test_a_good_token_opens_everything_on_tcp(guarded, authorization):
    options = raw(authorization)
    assert (await guarded.stub.ListAgents(pb.ListAgentsRequest(), **options)).agents
    assert [event async for event in guarded.stub.Sync(pb.SyncRequest(), **options)]
    assert await health(guarded, **options) == 1
    assert SERVICE in await listed(guarded, **options)


async def test_the_socket_asks_for_no_token(guarded, home):
    async with grpc.aio.insecure_channel(f"unix:{home.socket}") as channel:
        assert (await stubs.MemoryServiceStub(channel).ListAgents(pb.ListAgentsRequest())).agents


@pytest.mark.parametrize("content", [None, "", "# only a comment\n\n", b"\xff\xfe"])
async def test_a_token_file_without_a_token_refuses_to_start(home, content):
    if content is not None:
        token_file(home, content)
    with pytest.raises(SettingsError, match="token file"):
        await start(home, quiet({"memoryd": {"tokenFile": str(home.root / "tokens")}}))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o620])
async def test_a_token_file_that_others_can_open_refuses_to_start_and_says_how_to_mend_it(home, mode):
    file = token_file(home, "token", mode)
    with pytest.raises(
        SettingsError, match=rf"{file} can be opened by other users \(mode {mode:04o}\); run: chmod 600 {file}"
    ):
        await start(home, quiet({"memoryd": {"tokenFile": str(file)}}), listen="127.0.0.1:0")


@pytest.mark.parametrize("spoil", ["mode", "content"])
async def test_a_token_store_that_cannot_be_used_refuses_to_start(home, spoil):
    new_token(home)
    path = store(home).path
    path.chmod(0o644) if spoil == "mode" else path.write_text("{}")
    with pytest.raises(SettingsError, match="chmod 600" if spoil == "mode" else "damaged"):
        await start(home, quiet(), listen="127.0.0.1:0")
    assert not (home.state_dir / "memoryd.token").exists()


async def test_the_first_token_is_made_for_its_owner_alone_and_stays(serve, home):
    running = await serve(listen="127.0.0.1:0")
    file = home.state_dir / "memoryd.token"
    token = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(token) > 40
    (made,) = running.logged("generate-token")
    assert made["file"] == str(file)
    assert token not in running.log.getvalue()
    await check_open(running, token)
    await running.stop()
    again = await serve(listen="127.0.0.1:0")
    assert not again.logged("generate-token")
    await check_open(again, token)


async def test_no_token_is_made_where_one_is_given_or_none_is_asked_for(serve, home):
    await (await serve()).stop()
    _, token = new_token(home)
    await check_open(await serve(listen="127.0.0.1:0"), token)
    assert not (home.state_dir / "memoryd.token").exists()


async def test_tokens_change_while_the_daemon_runs(over_tcp, home):
    first, old = new_token(home)
    await check_open(over_tcp, old)
    second, new = new_token(home)
    await check_open(over_tcp, old)
    await check_open(over_tcp, new)
    assert store(home).revoke(first)
    await check_closed(over_tcp, old)
    await check_open(over_tcp, new)
    owner = home.state_dir / "memoryd.token"
    token = owner.read_text().strip()
    await check_open(over_tcp, token)
    owner.write_text("another-token\n")
    await check_closed(over_tcp, token)
    await check_open(over_tcp, "another-token")
    owner.unlink()
    await check_closed(over_tcp, "another-token")
    assert store(home).revoke(second)
    await check_closed(over_tcp, new)
    assert not over_tcp.logged("refuse-tokens")


@pytest.mark.parametrize("name", CALLS)
async def test_a_revoked_token_opens_nothing(over_tcp, home, name):
    token_id, token = new_token(home)
    await check_open(over_tcp, token)
    store(home).revoke(token_id)
    await check_refused(CALLS[name](over_tcp, **bearer(token)), "UNAUTHENTICATED", "TOKEN_INVALID")


@pytest.mark.parametrize("name", CALLS)
async def test_an_expired_token_opens_nothing(over_tcp, home, name):
    _, token = new_token(home, age=timedelta(days=2), expires=timedelta(days=1))
    await check_refused(CALLS[name](over_tcp, **bearer(token)), "UNAUTHENTICATED", "TOKEN_INVALID")


@pytest.mark.slow
async def test_a_token_opens_until_it_expires(over_tcp, home):
    _, token = new_token(home, age=timedelta(hours=1), expires=timedelta(hours=1, seconds=3))
    await check_open(over_tcp, token)

    async def closed():
        try:
            await check_open(over_tcp, token)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNAUTHENTICATED
        return False

    await eventually(closed)


STREAMS = {
    "an idle watch": lambda running, **options: running.stub.WatchIndex(pb.WatchIndexRequest(), **options),
    "a sync at work": lambda running, **options: running.stub.Sync(pb.SyncRequest(), **options),
    "a health watch": health_watch,
    "reflection": silent_reflection,
}


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_ends_soon_after_its_token_is_revoked(over_tcp, home, pause_sync, name):
    over_tcp.gate.recheck_seconds = 0.05
    home.write(a="one")
    held = pause_sync(over_tcp)
    (revoked, token), (_, other) = new_token(home), new_token(home)
    options = {**bearer(token), "timeout": TIMEOUT}
    stream, unharmed = STREAMS[name](over_tcp, **options), STREAMS[name](over_tcp, **{**options, **bearer(other)})
    if name != "reflection":
        assert await anext(aiter(stream))
        assert await anext(aiter(unharmed))
    store(home).revoke(revoked)
    await check_refused(stream, "UNAUTHENTICATED", "TOKEN_INVALID")
    assert not unharmed.done()
    unharmed.cancel()
    held.release()


async def test_a_watched_change_is_not_reported_once_the_token_is_revoked(over_tcp, home):
    # The next event alone must do.
    over_tcp.gate.recheck_seconds = 3600
    token_id, token = new_token(home)
    _, other = new_token(home)
    stream = over_tcp.stub.WatchIndex(pb.WatchIndexRequest(), timeout=TIMEOUT, **bearer(token))
    assert await anext(aiter(stream))
    store(home).revoke(token_id)
    home.write(a="one")
    assert [event async for event in over_tcp.stub.Sync(pb.SyncRequest(), **bearer(other))]
    await check_refused(stream, "UNAUTHENTICATED", "TOKEN_INVALID")


async def test_a_sync_goes_on_when_the_token_of_its_stream_is_revoked(over_tcp, home, pause_sync):
    over_tcp.gate.recheck_seconds = 0.05
    home.write(a="zebra")
    held = pause_sync(over_tcp)
    token_id, token = new_token(home)
    stream = over_tcp.stub.Sync(pb.SyncRequest(), timeout=TIMEOUT, **bearer(token))
    await anext(aiter(stream))
    store(home).revoke(token_id)
    await check_refused(stream, "UNAUTHENTICATED", "TOKEN_INVALID")
    held.release()
    await eventually(lambda: over_tcp.memory().index.coordinator.active is None)
    assert over_tcp.memory().index.monitor.current.revision > 0


async def test_a_token_file_damaged_at_run_time_admits_no_caller_and_is_reported_until_repaired(
    serve, home, frequent_file_checks
):
    listen = [f"unix:{home.socket}", "127.0.0.1:0"]
    running = await serve({"memoryd": {"listen": listen}}, listen=None)
    _, token = new_token(home)
    path = store(home).path
    good = path.read_text()

    async def warned():
        return any("token store" in text for text in (await running.status()).service.settings_warnings)

    path.write_text(good[:-20])
    await eventually(warned)
    (line,) = running.logged("refuse-tokens")
    assert line["level"] == "error"
    assert "is damaged" in line["problem"]
    channel = grpc.aio.insecure_channel(running.server.addresses[1])
    async with channel:
        stub = stubs.MemoryServiceStub(channel)
        await check_refused(
            stub.ListAgents(pb.ListAgentsRequest(), **bearer(token)), "UNAUTHENTICATED", "TOKEN_INVALID"
        )
        path.write_text(good)
        assert (await stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))).agents
        path.chmod(0o640)
        await check_refused(
            stub.ListAgents(pb.ListAgentsRequest(), **bearer(token)), "UNAUTHENTICATED", "TOKEN_INVALID"
        )
        path.chmod(0o600)
        assert (await stub.ListAgents(pb.ListAgentsRequest(), **bearer(token))).agents
        assert not (await running.status()).service.settings_warnings


async def test_no_secret_is_in_the_store_the_log_or_the_status(over_tcp, home):
    _, token = new_token(home, name="for the gateway")
    status = await over_tcp.stub.Status(pb.StatusRequest(), **bearer(token))
    owner = (home.state_dir / "memoryd.token").read_text().strip()
    seen = [store(home).path.read_text(), over_tcp.log.getvalue(), str(status)]
    assert all(secret not in text for secret in (token, owner) for text in seen)
    assert "for the gateway" in seen[0]
    assert json.loads(seen[0])["tokens"][0]["agents"] is None
    assert stat.S_IMODE(store(home).path.stat().st_mode) == 0o600


async def test_the_log_names_the_token_of_a_call(over_tcp, home):
    (limited, token), (_, every) = new_token(home, "ada"), new_token(home)
    await check_refused(
        over_tcp.stub.Status(pb.StatusRequest(), **bearer(token)), "PERMISSION_DENIED", "AGENT_FORBIDDEN"
    )
    await check_open(over_tcp, every)
    await check_closed(over_tcp, "wrong")
    assert [line.get("token_id") for line in over_tcp.logged("refuse-call")] == [limited, None]
    assert {line["token_id"] for line in over_tcp.logged("serve-call")} == {store(home).read()[1].token_id}


async def test_calls_wait_for_no_file_on_the_event_loop(over_tcp, home, monkeypatch):
    """A look at the files that hangs holds the call that needs it, and no other."""
    _, token = new_token(home)
    released = asyncio.Event()
    loop = asyncio.get_running_loop()
    real = os.stat

    def hanging(path, *args, **kwargs):
        if str(path).endswith("memoryd.tokens.json"):
            asyncio.run_coroutine_threadsafe(released.wait(), loop).result(TIMEOUT)
        return real(path, *args, **kwargs)

    monkeypatch.setattr("memoryd_server.access.private_files.os.stat", hanging)
    call = asyncio.ensure_future(over_tcp.stub.ListAgents(pb.ListAgentsRequest(), **bearer(token)))
    assert await over_tcp.memory().index.keyword_error() == ""
    assert not call.done()
    released.set()
    assert (await call).agents
