"""The figures for Prometheus: true to what happened, at an address of one's own, with no text of an agent."""

import asyncio
import re

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from fake_providers import embedding_server
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.errors import SettingsError
from memoryd_server.observe.metrics import MAX_CONNECTIONS
from waiting import eventually

ANY_PORT = {"metrics": {"listen": "127.0.0.1:0"}}
HYBRID = memory_pb2.SEARCH_MODE_HYBRID
SECRET_WORDS = "marmalade periscope"


@pytest.fixture
def server():
    with embedding_server() as server:
        yield server


def settings(server=None, **memoryd):
    remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"} if server else {}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote} if server else {}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {**ANY_PORT, **memoryd}}


async def fetched(running):
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(running.daemon.metrics_url)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return response.text


async def figures(running):
    """Every sample as name{label="value",...}: value."""
    found = {}
    for family in text_string_to_metric_families(await fetched(running)):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_searches_calls_and_syncs_are_counted(home, serve, server):
    home.write(boat="the red ferry sails at dawn", bird="a heron waits by the pier")
    running = await serve(settings(server))
    await running.synced()
    await running.search("ferry at dawn", mode=HYBRID)
    server.refuse = lambda _texts: server.failing(500)
    await running.search("heron", mode=memory_pb2.SEARCH_MODE_KEYWORD)
    with pytest.raises(grpc.aio.AioRpcError):
        await running.search("")
    found = await figures(running)
    method = "memoryd.v1.MemoryService/MemorySearch"
    assert found[f"memoryd_rpc_calls_total{{code=OK,method={method}}}"] == 2
    assert found[f"memoryd_rpc_calls_total{{code=INVALID_ARGUMENT,method={method}}}"] == 1
    assert found[f"memoryd_rpc_duration_seconds_count{{method={method}}}"] == 3
    assert found["memoryd_rpc_calls_total{code=OK,method=memoryd.v1.MemoryService/Sync}"] == 1
    assert found["memoryd_searches_total{agent=main,served_mode=HYBRID}"] == 1
    assert found["memoryd_searches_total{agent=main,served_mode=KEYWORD}"] == 1
    assert found["memoryd_search_duration_seconds_count{served_mode=HYBRID}"] == 1
    assert 0 < found["memoryd_search_duration_seconds_sum{served_mode=HYBRID}"] < 20
    assert found["memoryd_syncs_total{agent=main,result=completed,trigger=manual}"] == 1
    assert found["memoryd_sync_duration_seconds_count{agent=main}"] == 1


async def test_the_index_and_the_providers_are_as_status_says(home, serve, server):
    home.write(boat="the red ferry sails at dawn", bird="a heron waits by the pier")
    running = await serve(settings(server))
    server.faults.append(server.limited(0))
    await running.synced()
    await running.synced(mode="SYNC_MODE_FULL")
    status, found = await running.status(), await figures(running)
    agent = "{agent=main}"
    assert found[f"memoryd_index_up{agent}"] == 1
    assert found[f"memoryd_index_files{agent}"] == status.index.files == 2
    assert found[f"memoryd_index_chunks{agent}"] == status.index.chunks
    assert found[f"memoryd_index_revision{agent}"] == status.index.revision
    assert found[f"memoryd_index_bytes{agent}"] > 100
    assert found[f"memoryd_pending_embeddings{agent}"] == 0
    assert found[f"memoryd_sync_running{agent}"] == 0
    (usage,) = status.embedding.usage
    provider = "{model=words,provider=openai-compatible}"
    assert found[f"memoryd_embedding_calls_total{provider}"] == usage.calls == 2
    assert found[f"memoryd_embedding_tokens_total{provider}"] == usage.tokens
    assert found[f"memoryd_embedding_retries_total{provider}"] == usage.retries == 1
    assert found[f"memoryd_embedding_failures_total{provider}"] == 1
    hits = "memoryd_embedding_cache_hits_total{agent=main,model=words,provider=openai-compatible}"
    assert found[hits] == usage.cache_hits == 2
    assert found[f"memoryd_embedding_provider_ready{provider}"] == 1


async def test_a_degradation_is_shown_in_the_metrics(home, serve, server):
    home.write(boat="the red ferry sails at dawn")
    running = await serve(settings(server))
    server.refuse = lambda _texts: server.denied()
    await running.synced()
    await running.search("ferry", mode=HYBRID)
    found = await figures(running)
    assert found["memoryd_pending_embeddings{agent=main}"] == 1
    assert found["memoryd_embedding_provider_ready{model=words,provider=openai-compatible}"] == 0
    assert found["memoryd_degraded{agent=main,kind=VECTORS_PENDING}"] == 1
    assert found["memoryd_search_degradations_total{agent=main,kind=VECTORS_PENDING}"] == 1


async def test_status_of_a_health_check_is_counted_as_the_caller_gets_it(home, serve):
    running = await serve(settings())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await health_pb2_grpc.HealthStub(running.channel).Check(health_pb2.HealthCheckRequest(service="absent"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    found = await figures(running)
    assert found["memoryd_rpc_calls_total{code=NOT_FOUND,method=grpc.health.v1.Health/Check}"] == 1
    assert not [name for name in found if "code=UNKNOWN" in name]


async def test_a_stream_that_its_caller_leaves_counts_as_cancelled(home, serve):
    running = await serve(settings())
    stream = running.stub.WatchIndex(pb.WatchIndexRequest())
    await anext(aiter(stream))
    stream.cancel()
    name = "memoryd_rpc_calls_total{code=CANCELLED,method=memoryd.v1.MemoryService/WatchIndex}"

    async def counted():
        return (await figures(running)).get(name) == 1

    await eventually(counted)


async def test_no_text_of_an_agent_is_in_it(home, serve, server):
    home.put(f"memory/{SECRET_WORDS}.md", f"# {SECRET_WORDS}\n\n{SECRET_WORDS}")
    running = await serve(settings(server))
    await running.synced()
    await running.search(SECRET_WORDS)
    with pytest.raises(grpc.aio.AioRpcError):
        await running.get(f"../{SECRET_WORDS}")
    with pytest.raises(grpc.aio.AioRpcError):
        await running.search("x", agent_id=SECRET_WORDS)
    text = await fetched(running)
    assert not re.search("marmalade|periscope|sk-of-this-test", text)


async def test_names_and_units_are_as_prometheus_wants_them(home, serve, server):
    home.write(boat="the red ferry")
    running = await serve(settings(server))
    await running.synced()
    await running.search("ferry")
    for family in text_string_to_metric_families(await fetched(running)):
        assert re.fullmatch(r"(memoryd|process)_[a-z_]+", family.name)
        assert family.documentation
        assert family.documentation.endswith(".")
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


async def test_off_is_the_default(home, serve):
    running = await serve()
    assert running.daemon.metrics_url == ""


async def test_the_metrics_listener_ends_with_the_daemon(home, serve):
    running = await serve(settings())
    url = running.daemon.metrics_url
    assert url.startswith("http://127.0.0.1:")
    await running.stop()
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(url)


async def test_an_address_that_others_reach_is_refused_unless_it_is_allowed(home, serve):
    with pytest.raises(SettingsError, match="beyondLoopback"):
        await serve(settings(metrics={"listen": "0.0.0.0:0"}))
    running = await serve(settings(metrics={"listen": "0.0.0.0:0", "beyondLoopback": True}))
    assert running.daemon.metrics_url


async def test_an_address_that_is_taken_is_an_error_and_nothing_stays_behind(home, serve):
    first = await serve(settings())
    port = first.daemon.metrics_url.split(":")[2].split("/")[0]
    await first.stop_daemon()
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", int(port))
    try:
        with pytest.raises(SettingsError, match="cannot serve metrics at"):
            await serve(settings(metrics={"listen": f"127.0.0.1:{port}"}))
    finally:
        taken.close()
    await serve(settings())


@pytest.mark.parametrize("listen", ["unix:/tmp/x", "9464", "127.0.0.1", "127.0.0.1:99999"])
async def test_an_invalid_address_is_refused(home, serve, listen):
    with pytest.raises(SettingsError, match="HOST:PORT"):
        await serve(settings(metrics={"listen": listen}))


async def test_callers_for_whom_there_was_no_thread_take_no_place(serve, monkeypatch):
    running = await serve(settings())
    with monkeypatch.context() as patch:
        patch.setattr("socketserver.ThreadingMixIn.process_request", no_thread)
        for _ in range(MAX_CONNECTIONS + 1):
            with pytest.raises(httpx.TransportError):
                await fetched(running)
    assert "memoryd" in await fetched(running)


def no_thread(*_):
    raise RuntimeError("can't start new thread")
