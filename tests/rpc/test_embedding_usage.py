"""Status counts provider requests over restarts; a caller limited to one agent does not see the counts."""

import pytest

from fake_providers import embedding_server

FULL = "SYNC_MODE_FULL"


@pytest.fixture
def server():
    with embedding_server() as server:
        yield server


def settings(server, **more):
    remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote, **more}
    return {"agents": {"defaults": {"memorySearch": search}}}


def usage(status):
    return [(u.provider, u.model, u.calls, u.tokens, u.retries, u.cache_hits) for u in status.embedding.usage]


async def test_calls_and_tokens_are_counted_over_restarts(home, serve, server):
    home.write(boat="the red ferry sails at dawn", bird="a heron waits")
    running = await serve(settings(server))
    await running.synced()
    await running.search("ferry")
    status = await running.status()
    assert usage(status) == [("openai-compatible", "words", 2, 10, 0, 0)]
    assert (status.embedding.calls, status.embedding.tokens) == (2, 10)
    await running.stop()

    again = await serve(settings(server))
    assert usage(await again.status()) == [("openai-compatible", "words", 2, 10, 0, 0)]
    server.faults.append(server.limited(0))
    home.write(new="a stork on the roof")
    await again.synced()
    await again.synced(mode=FULL)
    assert usage(await again.status()) == [("openai-compatible", "words", 4, 15, 1, 3)]
    await again.stop()
    assert usage(await (await serve(settings(server))).status()) == [("openai-compatible", "words", 4, 15, 1, 3)]


async def test_another_model_is_counted_separately(home, serve, server):
    home.write(boat="the red ferry")
    running = await serve(settings(server))
    await running.synced()
    await running.stop()
    running = await serve(settings(server, model="other"))
    await running.synced()
    status = await running.status()
    assert [(u.model, u.calls) for u in status.embedding.usage] == [("other", 2), ("words", 1)], "a probe and a text"
    assert status.embedding.calls == 2


async def test_without_a_provider_nothing_is_counted(home, serve):
    home.write(boat="the red ferry")
    running = await serve()
    await running.synced()
    assert usage(await running.status()) == []
