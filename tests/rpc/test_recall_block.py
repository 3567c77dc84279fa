"""Which entries a recall block contains: a cosine on the model's own scale, over vectors of chosen cosines."""

import math
import zlib

import pytest

from entry_fixture import needs_lancedb
from memoryd.v1 import entry_service_pb2 as pb
from memoryd_server.entries.relevance import REFERENCE_TEXTS
from rpc.test_entries import block, remember, texts, with_config

pytestmark = needs_lancedb

NOTHING_NEAR = pb.RECALL_BLOCK_EMPTY_REASON_NOTHING_NEAR
KNOWN, UNKNOWN = "text-embedding-3-small", "some-model"
DIMENSIONS = 256
GATE, TEA, BOAT = "the gate code is 4711", "prefers green tea", "wants to buy a boat"

# The cosines of each prompt with the entries, before the model's base similarity. All of them score above .33.
NEAR = {
    "how do I open the gate?": {GATE: 0.45},
    "a drink on the boat": {TEA: 0.4, BOAT: 0.5, GATE: 0.2},
    "will it rain tomorrow?": {GATE: 0.2, TEA: 0.15},
    "write a haiku": {BOAT: 0.22},
}


def with_base(base):
    """A model whose unrelated texts have the cosine `base`. Entries and other texts differ wholly from each other."""

    def vector(text, dimensions):
        own = [0.0] * dimensions
        near = NEAR.get(text.strip())
        if near is None:
            own[place(text, dimensions)] = 1.0
        else:
            for entry, cosine in near.items():
                own[place(entry, dimensions)] = cosine
            own[-1] = math.sqrt(1 - sum(number**2 for number in own))
        return [math.sqrt(base), *(math.sqrt(1 - base) * number for number in own[1:])]

    return vector


def place(text, dimensions):
    return 1 + zlib.crc32(text.encode()) % (dimensions - 2)


@pytest.fixture
def remembering(serve, provider):
    """Starts a daemon whose model has a name and a base similarity, and stores entries."""

    async def remembering(*entries, model=UNKNOWN, base=0.0):
        provider.vector, provider.dimensions = with_base(base), DIMENSIONS
        config = {"apiKey": "sk-of-this-test", "model": model, "baseUrl": provider.url, "dimensions": DIMENSIONS}
        running = await serve(with_config(embedding=config))
        for entry in entries:
            await remember(running, entry)
        return running

    return remembering


async def check_blocks(running):
    assert texts(await block(running, "how do I open the gate?")) == [GATE]
    assert texts(await block(running, "a drink on the boat")) == [BOAT, TEA]
    for prompt in ("will it rain tomorrow?", "write a haiku"):
        found = await block(running, prompt)
        assert (found.block, texts(found), found.empty_reason) == ("", [], NOTHING_NEAR)


def test_the_entries_of_these_tests_differ_wholly():
    assert len({place(entry, DIMENSIONS) for entry in (GATE, TEA, BOAT)}) == len((GATE, TEA, BOAT))


async def test_a_prompt_that_concerns_no_entry_gets_an_empty_block(remembering, provider):
    running = await remembering(GATE, TEA, BOAT, model=KNOWN)
    await check_blocks(running)
    # The scale of a known model needs no other texts.
    assert set(provider.asked) == {GATE, TEA, BOAT, *NEAR}


@pytest.mark.parametrize("base", [0.7, 0.0, 0.2, 0.9])
async def test_an_unknown_model_is_calibrated_at_any_base_similarity(remembering, provider, base):
    running = await remembering(GATE, TEA, BOAT, base=base)
    await check_blocks(running)
    assert {text for text, times in provider.asked.items() if times == 1} >= {*REFERENCE_TEXTS}


@pytest.mark.slow
@pytest.mark.parametrize("base", [0.7, 0.0])
async def test_a_single_entry_is_not_near_to_every_prompt(remembering, base):
    running = await remembering(GATE, base=base)
    assert texts(await block(running, "how do I open the gate?")) == [GATE]
    assert (await block(running, "will it rain tomorrow?")).empty_reason == NOTHING_NEAR


async def test_without_entries_no_other_text_is_embedded(remembering, provider):
    running = await remembering()
    assert (await block(running, "will it rain tomorrow?")).empty_reason == NOTHING_NEAR
    assert set(provider.asked) <= {"will it rain tomorrow?"}


@pytest.mark.slow
@pytest.mark.parametrize("entries", [(GATE,), (GATE, TEA)])
async def test_entries_are_recalled_if_the_provider_refuses_the_reference_texts(remembering, provider, entries):
    """A single entry then has a least cosine of .35, and more of them calibrate the model alone."""
    running = await remembering(*entries)
    provider.refuse = lambda asked: provider.failing(400) if REFERENCE_TEXTS[0] in asked else None
    assert texts(await block(running, "how do I open the gate?")) == [GATE]
    assert (await block(running, "will it rain tomorrow?")).empty_reason == NOTHING_NEAR
    assert provider.asked[REFERENCE_TEXTS[0]] >= 2


@pytest.mark.slow
async def test_many_entries_calibrate_an_unknown_model_without_other_texts(remembering, provider):
    taken = {place(entry, DIMENSIONS) for entry in (GATE, TEA, BOAT)}
    rooms = [f"room number {number} has {number} chairs" for number in range(40)]
    numbers = [room for room in rooms if place(room, DIMENSIONS) not in taken]
    running = await remembering(*numbers, GATE, TEA, BOAT, base=0.7)
    await check_blocks(running)
    assert set(provider.asked) == {*numbers, GATE, TEA, BOAT, *NEAR}
