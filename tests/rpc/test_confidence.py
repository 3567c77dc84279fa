"""A caller can require a confidence; without one, only the setting for keyword search withholds results."""

import grpc
import pytest

from memoryd.v1 import memory_pb2
from rpc.wire import empty_reason, paths, refusal

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)


def settings(server=None, **service):
    search = {"provider": "none"}
    if server is not None:
        remote = {"baseUrl": server.url, "apiKey": "k"}
        search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": service}


@pytest.fixture
def notes(home):
    home.write(boat="the red ferry sails at dawn", food="soup and bread for lunch", tram="the tram stops here")


async def test_keyword_search_withholds_results_below_the_required_confidence(notes, serve):
    daemon = await serve(settings())
    await daemon.synced()
    answer = await daemon.search("ferry at noon")
    assert paths(answer) == ["memory/boat.md"]
    assert 0 < answer.info.confidence < 1
    assert answer.info.confidence == pytest.approx(answer.info.coverage)
    below = await daemon.search("ferry at noon", abstain_below=answer.info.confidence + 0.01)
    assert empty_reason(below) == "ABSTAINED"
    assert below.info.empty_explanation == (
        f"the confidence is {answer.info.confidence:.2f}, below abstain_below of the request"
    )
    assert below.info.confidence == answer.info.confidence
    assert paths(await daemon.search("ferry at noon", abstain_below=answer.info.confidence)) == ["memory/boat.md"]


async def test_hybrid_search_withholds_results_only_on_request(notes, serve, provider):
    daemon = await serve(settings(provider, abstainBelow=1.0))
    await daemon.synced()
    near = await daemon.search("red ferry at dawn", mode=HYBRID)
    far = await daemon.search("the colour of the harbour", mode=HYBRID, min_score=0.0)
    assert near.info.served_mode == HYBRID
    assert near.results
    assert far.results
    assert near.info.confidence > 0.5 > far.info.confidence > 0
    assert not (await daemon.search("the colour of the harbour", mode=HYBRID, min_score=0.0, abstain_below=0.5)).results
    assert (await daemon.search("red ferry at dawn", mode=HYBRID, abstain_below=0.5)).results


async def test_a_request_takes_precedence_over_the_setting(notes, serve):
    daemon = await serve(settings(abstainBelow=1.0))
    await daemon.synced()
    answer = await daemon.search("ferry at noon")
    assert empty_reason(answer) == "ABSTAINED"
    assert "the setting memoryd.abstainBelow" in answer.info.empty_explanation
    assert (await daemon.search("ferry at noon", abstain_below=0.0)).results


async def test_vector_search_alone_has_no_confidence(notes, serve, provider):
    daemon = await serve(settings(provider))
    await daemon.synced()
    answer = await daemon.search("red ferry", mode=VECTOR, abstain_below=1.0)
    assert answer.results
    assert not answer.info.HasField("confidence")


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
async def test_a_confidence_that_is_no_share_is_refused(notes, serve, value):
    daemon = await serve(settings())
    await daemon.synced()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await daemon.search("ferry", abstain_below=value)
    assert "abstain_below" in error.value.details()
    assert refusal(error.value)
