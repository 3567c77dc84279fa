"""Searches whose results are put in order by a reranker, over HTTP or on this machine."""

import asyncio
import importlib.util
import time

import httpx
import pytest

from fake_providers import fake_reranker
from memoryd.v1 import memory_service_pb2 as pb
from rank_models import write_qwen
from rpc.callers import bearer, new_token
from rpc.wire import KEYWORD, VECTOR, by_meaning, kinds, paths, quiet
from waiting import eventually

# Keyword search prefers the short one, the reranker the one with all words.
NOTES = {
    "short": "ferry",
    "long": "the old log of the harbour says that the red ferry sails at dawn to the island, if the wind allows it",
    "boat": "a ferry and a boat",
}
QUERY = "red ferry island dawn"
KEY = "5entinel-key-of-the-reranker"
PATIENT = 20_000


@pytest.fixture
def server():
    with fake_reranker("jina", [KEY]) as server:
        # The more words a text has besides the query's, the better: the opposite of the keyword search.
        server.score = lambda _query, document: min(1.0, len(document) / 200)
        yield server


def using(server, **more):
    block = {"provider": "http", "baseUrl": server.url, "model": server.model, "apiKey": KEY, "timeoutMs": PATIENT}
    return {"memoryd": {"rerank": {**block, "weight": 1, **more}}}


@pytest.fixture
async def notes(home):
    for number in range(8):
        home.write(**{f"n{number}": f"heron {'reeds ' * 4 * (number + 1)}"})
    return home


async def synced(serve, settings, **flags):
    running = await serve(settings, **flags)
    await running.sync()
    return running


async def reload(running, settings=None):
    return await running.daemon.reload(lambda: running.home.settings(quiet(settings)))


def reasons(answer, kind="RERANKING_SKIPPED"):
    return [each.reason for each in answer.info.degradations if kinds([each]) == [kind]]


async def test_the_reranker_changes_the_order_and_is_reported(notes, serve, server):
    plain = await synced(serve, {})
    before = paths(await plain.search("heron", max_results=3))
    assert not (await plain.status()).HasField("reranker")
    await plain.stop()
    running = await synced(serve, using(server))
    answer = await running.search("heron", max_results=3, explain=True)
    assert paths(answer) == ["memory/n7.md", "memory/n6.md", "memory/n5.md"]
    assert paths(answer) != before
    details = [result.score_detail.rerank for result in answer.results]
    assert details == sorted(details, reverse=True)
    info = answer.info.reranking
    assert (info.provider, info.model, info.candidates, info.cached) == ("http", server.model, 8, 0)
    assert info.elapsed.ToNanoseconds() > 0
    assert not answer.info.degradations
    (request,) = server.requests
    assert (request.body["query"], len(request.body["documents"])) == ("heron", 8)


async def test_a_repeated_search_is_answered_from_the_cache(notes, serve, server):
    running = await synced(serve, using(server))
    first, second = [await running.search("heron", max_results=3) for _ in range(2)]
    assert paths(first) == paths(second)
    assert (second.info.reranking.candidates, second.info.reranking.cached) == (8, 8)
    assert len(server.requests) == 1
    status = (await running.status()).reranker
    assert (status.calls, status.cache_hits, status.failures, status.late) == (1, 8, 0, 0)
    assert status.tokens > 0


async def test_a_note_that_changed_is_scored_again(notes, serve, server):
    running = await synced(serve, using(server))
    await running.search("heron")
    notes.write(n0=f"heron {'lake ' * 60}")
    await running.sync()
    answer = await running.search("heron")
    assert paths(answer)[0] == "memory/n0.md"
    assert server.requests[-1].body["documents"] == [f"heron {'lake ' * 60}".strip()]


@pytest.mark.slow
async def test_a_late_reranker_delays_no_search_and_is_reported(notes, serve, server):
    running = await synced(serve, {})
    wanted = paths(await running.search("heron", max_results=3))
    await reload(running, using(server, timeoutMs=50))
    server.faults.append(server.slow(1.5))
    began = time.monotonic()
    answer = await running.search("heron", max_results=3)
    assert time.monotonic() - began < 1.4
    assert paths(answer) == wanted
    (reason,) = reasons(answer)
    assert "did not answer within 0.05 s" in reason
    assert answer.info.reranking.candidates == 0

    async def cached():
        return (await running.search("heron", max_results=3)).info.reranking.cached == 8

    await eventually(cached)
    assert len(server.requests) == 1


@pytest.mark.slow
async def test_the_deadline_of_the_caller_is_kept(notes, serve, server):
    running = await synced(serve, using(server))
    server.faults.append(server.slow(10))
    answer = await running.stub.MemorySearch(pb.MemorySearchRequest(query="heron"), timeout=2)
    assert len(answer.results) == 6
    assert len(reasons(answer)) == 1


@pytest.mark.slow
async def test_a_reranker_that_is_down_is_not_called_again_and_again(notes, serve, server):
    running = await synced(serve, using(server))
    server.refuse = lambda _texts: server.failing()
    answers = [await running.search("heron", max_results=number) for number in range(1, 6)]
    assert all(len(answer.results) == number for number, answer in enumerate(answers, 1))
    assert "HTTP 500" in reasons(answers[0])[0]
    assert "it is called again in" in reasons(answers[-1])[0]
    assert len(server.requests) < 5
    status = (await running.status()).reranker
    assert "HTTP 500" in status.reason
    assert status.failures == len(server.requests)
    server.refuse = lambda _texts: None

    async def works():
        return (await running.search("heron")).info.reranking.candidates

    await eventually(works)
    assert (await running.status()).reranker.reason == ""


async def test_other_modes_and_vectors_are_reranked_too(home, serve, server, provider):
    home.write(**NOTES)
    running = await synced(serve, {**by_meaning(provider), **using(server)})
    for mode in (KEYWORD, VECTOR):
        answer = await running.search(QUERY, mode=mode, min_score=0.0)
        assert paths(answer)[0] == "memory/long.md"
        assert answer.info.reranking.candidates >= 2


async def test_agents_share_the_reranker_and_not_its_scores(home, serve, server):
    for name in ("main", "ada"):
        for note in ("one", "two"):
            file = home.root / name / "memory" / f"{note}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"heron {note}")
    agents = [{"id": name, "workspace": str(home.root / name)} for name in ("ada", "main")]
    running = await serve({"agents": {"list": agents}, **using(server)}, listen="127.0.0.1:0", workspace=None)
    (_, everything), (_, limited) = new_token(home), new_token(home, "ada")
    calls, options = running.stub, {"timeout": 60, **bearer(everything)}
    for name in ("main", "ada"):
        assert [event async for event in calls.Sync(pb.SyncRequest(agent_id=name), **options)]
        answer = await calls.MemorySearch(pb.MemorySearchRequest(agent_id=name, query="heron"), **options)
        assert (answer.info.reranking.candidates, answer.info.reranking.cached) == (2, 0)
    assert len(server.requests) == 2
    status = (await calls.Status(pb.StatusRequest(agent_id="ada"), **options)).reranker
    assert (status.calls, status.candidates) == (2, 30)
    status = (await calls.Status(pb.StatusRequest(agent_id="ada"), timeout=60, **bearer(limited))).reranker
    assert (status.provider, status.calls, status.tokens) == ("http", 0, 0)


async def test_a_reload_turns_reranking_on_and_off(notes, serve, server):
    running = await synced(serve, {})
    plain = paths(await running.search("heron"))
    report = await reload(running, using(server))
    assert "memoryd.rerank.provider" in report.changed
    assert paths(await running.search("heron")) != plain
    count = len(server.requests)
    await reload(running, {})
    answer = await running.search("heron reeds")
    assert not answer.info.HasField("reranking")
    assert len(server.requests) == count


async def test_other_settings_apply_without_losing_the_scores(notes, serve, server):
    running = await synced(serve, using(server))
    await running.search("heron")
    await reload(running, using(server, candidates=2, weight=0))
    answer = await running.search("heron", max_results=2)
    assert (answer.info.reranking.candidates, answer.info.reranking.cached) == (2, 2)
    assert paths(answer) == ["memory/n0.md", "memory/n1.md"]
    assert len(server.requests) == 1


async def test_settings_that_are_not_understood_send_nothing(notes, serve, server):
    running = await synced(serve, {**using(server), "memorySearch": {"provider": "none"}})
    answer = await running.search("heron")
    assert len(answer.results) == 6
    assert "reranking over HTTP is disabled, because memoryd does not understand" in reasons(answer)[0]
    assert server.requests == []


@pytest.mark.parametrize("block", [{"provider": "non"}, {"provider": None, "enabled": False}])
async def test_a_refused_reload_of_the_block_stops_what_is_sent(notes, serve, server, block):
    running = await synced(serve, using(server))
    await running.search("heron")
    report = await reload(running, {"memoryd": {"rerank": {**using(server)["memoryd"]["rerank"], **block}}})
    assert "memoryd.rerank." in report.error
    assert "reranking over HTTP is disabled" in reasons(await running.search("heron reeds"))[0]
    assert len(server.requests) == 1


async def test_a_key_without_a_value_sends_nothing(notes, serve, server):
    reference = {"source": "env", "provider": "default", "id": "NO_SUCH_KEY"}
    running = await synced(serve, using(server, apiKey=reference))
    answer = await running.search("heron")
    assert "memoryd.rerank.apiKey is a SecretRef that does not resolve" in reasons(answer)[0]
    assert server.requests == []


async def test_the_key_is_in_no_answer_and_in_no_log(notes, serve, server):
    running = await synced(serve, using(server))
    server.faults.extend([server.denied(), server.failing()])
    told = [(await running.search(f"heron {number}", explain=True)).SerializeToString() for number in range(3)]
    told.append((await running.status(probe=True)).SerializeToString())
    assert server.key_of(server.requests[0]) == KEY
    assert not [data for data in told if KEY.encode() in data]
    assert KEY not in running.log.getvalue()


async def test_a_forgotten_text_is_not_in_the_answer_of_a_search_that_waits(notes, serve, server):
    running = await synced(serve, using(server))
    server.faults.append(server.slow(1.0))
    search = asyncio.create_task(running.search("heron", max_results=8))
    await eventually(lambda: server.requests)
    await running.stub.MemoryForget(pb.MemoryForgetRequest(path="memory/n7.md"), timeout=30)
    answer = await search
    assert "memory/n7.md" not in paths(answer)
    assert paths(answer)[0] == "memory/n6.md"


async def test_cancelled_searches_leave_nothing_behind(notes, serve, server):
    running = await synced(serve, using(server))
    server.refuse = lambda _texts: server.slow(0.3)
    searches = [asyncio.create_task(running.search(f"heron {number}")) for number in range(12)]
    await eventually(lambda: server.requests)
    for search in searches:
        search.cancel()
    await asyncio.gather(*searches, return_exceptions=True)
    server.refuse = lambda _texts: None

    async def works():
        return (await running.search("heron")).info.reranking.candidates == 8

    await eventually(works)


async def test_a_stop_does_not_wait_for_the_reranker(notes, serve, server):
    running = await synced(serve, using(server))
    server.faults.append(server.slow(30))
    search = asyncio.create_task(running.search("heron"))
    await eventually(lambda: server.requests)
    began = time.monotonic()
    await running.stop_daemon()
    assert time.monotonic() - began < 5
    assert len((await search).results) == 6


async def test_the_reranker_is_measured(notes, serve, server):
    running = await synced(serve, {"memoryd": {**using(server)["memoryd"], "metrics": {"listen": "127.0.0.1:0"}}})
    for _ in range(2):
        await running.search("heron")
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(running.daemon.metrics_url)).text
    labels = f'{{model="{server.model}",provider="http"}}'
    assert f"memoryd_reranker_calls_total{labels} 1.0" in text
    assert f"memoryd_reranker_cache_hits_total{labels} 8.0" in text
    assert f"memoryd_reranker_candidates_total{labels} 16.0" in text
    assert f"memoryd_reranker_ready{labels} 1.0" in text
    assert 'memoryd_search_leg_duration_seconds_count{leg="RERANKING"} 2.0' in text


async def test_the_cost_of_a_search_is_estimated(notes, serve, server):
    running = await synced(serve, using(server, candidates=10))
    status = (await running.status()).reranker
    assert (status.endpoint, status.candidates, status.calls) == (server.url, 10, 0)
    mean = sum(file.stat().st_size for file in (notes.workspace / "memory").glob("*.md")) / 8 / 4
    assert 10 * mean <= status.tokens_per_search <= 10 * (mean + 1)


async def test_a_probe_calls_the_reranker_once(notes, serve, server):
    running = await synced(serve, using(server))
    assert (await running.status(probe=True)).reranker.reason == ""
    assert [request.body["documents"] for request in server.requests] == [["ping", "pingping"]]
    server.refuse = lambda _texts: server.denied()
    assert "refuses the key" in (await running.status(probe=True)).reranker.reason


@pytest.fixture
def model(tmp_path):
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is missing: `make setup-local` installs it")
    return write_qwen(tmp_path / "reranker.gguf")


async def test_a_local_model_puts_results_in_order_once_it_is_loaded(home, serve, model):
    home.write(one="heron in the reeds", two="heron zzz zzz zzz zzz zzz zzz zzz", three="heron by the lake")
    block = {"provider": "local", "modelPath": str(model), "timeoutMs": PATIENT, "weight": 1}
    running = await synced(serve, {"memoryd": {"rerank": block}})
    began = time.monotonic()
    first = await running.search("heron")
    assert time.monotonic() - began < 10
    assert (len(first.results), reasons(first)) == (3, ["the model is being loaded"])

    async def loaded():
        return (await running.search("heron", explain=True)).info.reranking.candidates == 3

    await eventually(loaded)
    answer = await running.search("heron", explain=True)
    assert paths(answer)[0] == "memory/two.md"
    assert answer.results[0].score_detail.rerank > answer.results[1].score_detail.rerank
    status = (await running.status()).reranker
    assert (status.provider, status.model, status.endpoint, status.reason) == ("local", "reranker.gguf", "", "")
    assert status.calls == 1


async def test_a_local_model_that_is_missing_is_named(notes, serve):
    running = await synced(serve, {"memoryd": {"rerank": {"provider": "local", "modelPath": "/no/such.gguf"}}})
    await running.search("heron")

    async def named():
        return "/no/such.gguf" in "".join(reasons(await running.search("heron")))

    if importlib.util.find_spec("llama_cpp") is not None:
        await eventually(named)
    assert (await running.status()).reranker.reason
