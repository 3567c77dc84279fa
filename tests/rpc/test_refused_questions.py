"""Over gRPC: a question without a vector is answered by keywords with the reason, and the next question by vectors."""

import grpc
import pytest

from entry_fixture import needs_lancedb
from fake_providers import Fault, fake_provider
from memoryd.v1 import entry_service_pb2 as entries_pb
from rpc.wire import HYBRID, KEYWORD, TIMEOUT, UNSET, VECTOR, kinds, paths, refusal

KEY = "key-of-this-test-0123456789"
BAD = "unspeakable ferry"


def is_bad(texts):
    return any("unspeakable" in text for text in texts)


def one_vector(values):
    """The reply with this in place of each vector of a bad text; replies of every provider."""

    def change(reply):
        if "data" in reply:
            for item in reply["data"]:
                item["embedding"] = values
        elif "embedding" in reply:
            reply["embedding"]["values"] = values
        else:
            found = reply["embeddings"]
            reply["embeddings"] = [{**v, "values": values} if isinstance(v, dict) else values for v in found]
        return reply

    return lambda: Fault(change=change)


def no_vector(nothing):
    """The reply whose vector, or whose list of vectors, is this."""

    def change(reply):
        if "data" in reply:
            return {**reply, "data": nothing}
        return {**reply, "embedding" if "embedding" in reply else "embeddings": nothing}

    return lambda: Fault(change=change)


def status(code):
    return lambda: Fault(status=code, body={"error": {"message": f"cannot take this ({code})"}})


FAULTS = {
    "zero": (one_vector([0.0] * 16), "zero"),
    "nan": (one_vector([float("nan")] * 16), "not finite"),
    "infinite": (one_vector([float("inf")] * 16), "not finite"),
    "null": (one_vector(None), "not a list of numbers"),
    "nulls": (one_vector([None] * 16), "not a list of numbers"),
    "empty": (one_vector([]), "dimensions instead of"),
    "length": (one_vector([1.0] * 9), "9 dimensions instead of"),
    "strings": (one_vector(["1"] * 16), "not a list of numbers"),
    "text": (one_vector("1, 2"), "not a list of numbers"),
    "huge": (one_vector([0.5, 10**400]), "not finite"),
    "no vectors": (no_vector([]), ""),
    "vectors null": (no_vector(None), ""),
    "400": (status(400), "HTTP 400"),
    "broken": (lambda: Fault(truncated=True), "invalid JSON"),
    "413": (status(413), "HTTP 413"),
    "422": (status(422), "HTTP 422"),
    # About the key or the address as a whole, and still no reason to stop asking.
    "401": (status(401), "HTTP 401"),
    "403": (status(403), "HTTP 403"),
    "404": (status(404), "HTTP 404"),
}


def using(server, **search):
    remote = {"baseUrl": server.url, "apiKey": KEY}
    defaults = {"provider": server.provider, "model": server.model, "remote": remote, **search}
    return {"agents": {"defaults": {"memorySearch": defaults}}}


def skipped(answer):
    """Why the vector leg was skipped, by each degradation of that kind."""
    return [d.reason for d in answer.info.degradations if kinds([d]) == ["VECTOR_LEG_SKIPPED"]]


@pytest.fixture(params=["openai", "gemini", "voyage", "mistral", "ollama"])
def server(request):
    with fake_provider(request.param, [] if request.param == "ollama" else [KEY]) as server:
        yield server


@pytest.fixture
async def running(home, serve, provider):
    home.write(boat="the red ferry sails at dawn", food="soup and bread for lunch")
    remote = {"baseUrl": provider.url, "apiKey": KEY}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    daemon = await serve({"agents": {"defaults": {"memorySearch": search}}})
    await daemon.synced()
    return daemon


def spoil(server, fault):
    server.refuse = lambda texts: fault() if is_bad(texts) else None


@pytest.mark.parametrize("mode", [UNSET, HYBRID], ids=["unset", "hybrid"])
@pytest.mark.parametrize(("fault", "why"), FAULTS.values(), ids=FAULTS)
async def test_a_question_without_a_vector_names_the_reason_and_affects_no_other(running, provider, fault, why, mode):
    spoil(provider, fault)
    answer = await running.search(BAD, mode=mode)
    assert (paths(answer), answer.info.served_mode) == (["memory/boat.md"], KEYWORD)
    (reason,) = skipped(answer)
    assert why in reason
    after = await running.search("another ferry", mode=mode)
    assert (after.info.served_mode, list(after.info.degradations)) == (HYBRID, [])


@pytest.mark.parametrize(("fault", "why"), FAULTS.values(), ids=FAULTS)
async def test_by_vectors_alone_it_is_an_error_with_the_reason(running, provider, fault, why):
    spoil(provider, fault)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.search(BAD, mode=VECTOR)
    found = refusal(caught.value)
    assert (found.code, found.reason) == ("UNAVAILABLE", "EMBEDDING_UNAVAILABLE")
    assert why in found.message
    assert (await running.search("another ferry", mode=VECTOR)).info.served_mode == VECTOR


@pytest.mark.parametrize("fault", [FAULTS[name][0] for name in ("zero", "null", "vectors null", "no vectors", "400")])
async def test_every_provider_embeds_the_next_question(home, serve, server, fault):
    home.write(boat="the red ferry sails at dawn")
    running = await serve(using(server))
    await running.synced()
    spoil(server, fault)
    assert skipped(await running.search(BAD))
    assert (await running.search("another ferry")).info.served_mode == HYBRID


@pytest.mark.parametrize("fault", [FAULTS[name][0] for name in ("vectors null", "no vectors", "400")])
async def test_a_refused_chunk_stops_no_sync(home, serve, server, fault):
    home.write(**{f"n{number}": f"note number {number}" for number in range(5)}, bad="an unspeakable note")
    spoil(server, fault)
    running = await serve(using(server))
    await running.synced()
    assert (await running.status()).index.pending_embeddings == 1
    assert paths(await running.search("number 3", mode=VECTOR, min_score=0.0, max_results=1)) == ["memory/n3.md"]


async def test_a_null_among_the_vectors_stops_no_sync(home, serve, server):
    home.write(**{f"n{number}": f"note number {number}" for number in range(5)}, bad="an unspeakable note")

    def without_bad(texts):
        def change(reply):
            field = "data" if "data" in reply else "embeddings"
            reply[field] = [None if is_bad([text]) else v for text, v in zip(texts, reply[field], strict=True)]
            return reply

        return Fault(change=change) if is_bad(texts) else None

    server.refuse = without_bad
    running = await serve(using(server))
    await running.synced()
    assert (await running.status()).index.pending_embeddings == 1


async def test_ollama_saying_that_a_vector_is_not_finite_refuses_one_text(home, serve):
    with fake_provider("ollama", []) as server:
        home.write(boat="the red ferry sails at dawn", bad="an unspeakable note")
        words = {"error": "failed to encode response: json: unsupported value: NaN"}
        spoil(server, lambda: Fault(status=500, body=words))
        running = await serve(using(server))
        await running.synced()
        assert (await running.status()).index.pending_embeddings == 1
        assert "NaN" in skipped(await running.search(BAD))[0]
        assert (await running.search("another ferry")).info.served_mode == HYBRID


async def test_a_vector_of_another_length_does_not_affect_questions_asked_before(running, provider):
    assert (await running.search("asked before")).info.served_mode == HYBRID
    spoil(provider, one_vector([1.0] * 9))
    assert skipped(await running.search(BAD))
    asked = len(provider.requests)
    assert (await running.search("asked before")).info.served_mode == HYBRID
    assert len(provider.requests) == asked


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500, body={"error": {"message": "no"}}),
        Fault(status=503, body={"error": {"message": "no"}}, headers={"retry-after": "30"}),
        Fault(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after": "30"}),
        Fault(status=429, body={"error": {"code": "insufficient_quota", "message": "no credit"}}),
        Fault(status=402, body={"error": {"message": "no credit"}}),
        Fault(reset=True),
    ],
    ids=["500", "503", "429", "quota", "402", "reset"],
)
async def test_an_outage_or_a_used_up_quota_pauses_the_provider_and_each_answer_says_so(running, provider, fault):
    provider.refuse = lambda _texts: fault
    assert skipped(await running.search("ferry one"))
    asked = len(provider.requests)
    provider.refuse = lambda _texts: None
    answer = await running.search("ferry two")
    assert (answer.info.served_mode, len(provider.requests)) == (KEYWORD, asked)
    assert skipped(answer)
    assert "VECTOR_LEG_SKIPPED" in kinds((await running.status()).degradations)


@needs_lancedb
async def test_an_entry_that_is_refused_and_a_refused_key_affect_no_other_entry(home, serve, provider):
    remote = {"baseUrl": provider.url, "apiKey": KEY}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    settings = {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"entries": {"enabled": True}}}
    running = await serve(settings)
    for fault in (status(400), status(401), one_vector([0.0] * 16)):
        spoil(provider, fault)
        stored = await running.entries.Remember(entries_pb.RememberRequest(text=f"{BAD} {id(fault)}"), timeout=TIMEOUT)
        assert "VECTOR_LEG_SKIPPED" in kinds(stored.degradations)
        asked = entries_pb.RecallRequest(query=BAD)
        recalled = await running.entries.Recall(asked, timeout=TIMEOUT)
        assert all(d.reason for d in recalled.degradations)
        assert "VECTOR_LEG_SKIPPED" in kinds(recalled.degradations)
        fine = await running.entries.Remember(
            entries_pb.RememberRequest(text=f"the green tram {id(fault)}"), timeout=TIMEOUT
        )
        assert "VECTOR_LEG_SKIPPED" not in kinds(fine.degradations)
        recalled = await running.entries.Recall(entries_pb.RecallRequest(query="green tram"), timeout=TIMEOUT)
        assert "VECTOR_LEG_SKIPPED" not in kinds(recalled.degradations)
