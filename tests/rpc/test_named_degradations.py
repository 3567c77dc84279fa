"""A search without a mode names what it did without, as a hybrid one does; one by keywords has nothing to name."""

import asyncio

import pytest

from fake_providers import Fault, fake_provider
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.wire import by_meaning, kinds, paths

UNSET, HYBRID, KEYWORD = (
    memory_pb2.SEARCH_MODE_UNSPECIFIED,
    memory_pb2.SEARCH_MODE_HYBRID,
    memory_pb2.SEARCH_MODE_KEYWORD,
)


def answering(fault):
    def break_it(provider):
        provider.refuse = lambda _texts: fault

    return break_it


BREAKS = {
    "late": answering(Fault(delay_seconds=5)),
    "failing": answering(Fault(status=500, body={"error": {"message": "no"}})),
    "key": answering(Fault(status=401, body={"error": {"message": "no"}})),
    "rate": answering(Fault(status=429, body={"error": {"message": "no"}}, headers={"retry-after": "9"})),
    "broken off": answering(Fault(reset=True)),
}


def what(answer):
    return [(*kinds([d]), d.wanted, d.used) for d in answer.info.degradations]


def check_named(answer):
    assert answer.info.served_mode == KEYWORD
    assert "VECTOR_LEG_SKIPPED" in kinds(answer.info.degradations)
    assert all(d.reason for d in answer.info.degradations)


async def ask(running, query, mode):
    """Asks with a deadline that a late provider does not keep."""
    return await running.stub.MemorySearch(pb.MemorySearchRequest(query=query, mode=mode), timeout=2.5)


@pytest.mark.parametrize("break_it", BREAKS.values(), ids=BREAKS)
async def test_a_provider_in_trouble_is_named_without_a_mode_too(home, serve, provider, break_it):
    home.write(boat="the red ferry sails at dawn")
    running = await serve(by_meaning(provider))
    await running.synced()
    break_it(provider)
    for number in range(2):
        # The second one may meet a pause.
        for mode in (UNSET, HYBRID):
            answer = await ask(running, f"ferry {number} {mode}", mode)
            check_named(answer)
            assert paths(answer) == ["memory/boat.md"]
    by_words = await ask(running, "ferry", KEYWORD)
    assert "VECTOR_LEG_SKIPPED" not in kinds(by_words.info.degradations)


@pytest.mark.slow
async def test_many_questions_at_once_each_name_it(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    running = await serve(by_meaning(provider))
    await running.synced()
    BREAKS["late"](provider)
    for answer in await asyncio.gather(*(ask(running, f"ferry {number}", UNSET) for number in range(8))):
        check_named(answer)


async def test_before_the_first_vectors_an_answer_says_that_they_are_missing(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    provider.refuse = lambda _texts: Fault(status=401, body={"error": {"message": "no"}})
    running = await serve(by_meaning(provider))
    await running.synced()
    answer = await running.search("ferry")
    check_named(answer)
    assert what(answer) == what(await running.search("ferry", mode=HYBRID))
    assert "VECTORS_PENDING" in kinds(answer.info.degradations)


@pytest.mark.usefixtures("remote_provider")
async def test_a_price_that_was_not_agreed_to_is_named(home, serve, provider):
    home.write(boat="the red ferry sails at dawn " * 20)
    running = await serve({**by_meaning(provider), "memoryd": {"confirmAboveTokens": 10}})
    await running.synced()
    answer = await running.search("ferry")
    check_named(answer)
    assert any("confirmAboveTokens" in d.reason for d in answer.info.degradations)
    assert what(answer) == what(await running.search("ferry", mode=HYBRID))


async def test_vectors_of_another_model_are_named(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    first = await serve(by_meaning(provider))
    await first.synced()
    await first.stop()
    running = await serve(by_meaning(provider, model="other"))
    answer = await running.search("ferry")
    assert what(answer) == [("IDENTITY_MISMATCH", "openai-compatible/other", "openai-compatible/words")]
    assert all(d.reason for d in answer.info.degradations)
    assert what(answer) == what(await running.search("ferry", mode=HYBRID))


async def test_vectors_of_a_server_that_the_settings_no_longer_name_are_named(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    first = await serve(by_meaning(provider))
    await first.synced()
    await first.stop()
    with fake_provider("openai-compatible") as another:
        running = await serve(by_meaning(another))
        answer = await running.search("ferry")
        check_named(answer)
        assert "IDENTITY_MISMATCH" in kinds(answer.info.degradations)
        assert what(answer) == what(await running.search("ferry", mode=HYBRID))


@pytest.mark.parametrize(
    "search",
    [
        {"provider": "openai"},
        {"provider": "local", "local": {"modelPath": "/nowhere/model.gguf"}},
        {"provider": "auto", "remote": {"baseUrl": "ftp://nowhere"}},
    ],
    ids=["no key", "no model", "auto"],
)
async def test_a_configured_provider_that_cannot_be_used_is_named(home, serve, search):
    home.write(boat="the red ferry sails at dawn")
    running = await serve({"agents": {"defaults": {"memorySearch": search}}})
    await running.synced()
    for mode in (UNSET, HYBRID):
        check_named(await running.search("ferry", mode=mode))
    assert "VECTOR_LEG_SKIPPED" in kinds((await running.status()).degradations)
    assert "VECTOR_LEG_SKIPPED" not in kinds((await running.search("ferry", mode=KEYWORD)).info.degradations)


@pytest.mark.parametrize("name", ["auto", "none"])
async def test_where_no_provider_is_configured_keywords_are_all_that_is_wanted(home, serve, name):
    home.write(boat="the red ferry sails at dawn")
    running = await serve({"agents": {"defaults": {"memorySearch": {"provider": name}}}})
    await running.synced()
    answer = await running.search("ferry")
    assert (answer.info.served_mode, list(answer.info.degradations)) == (KEYWORD, [])
    check_named(await running.search("ferry", mode=HYBRID))


async def test_an_answer_by_vectors_names_nothing_while_the_provider_is_in_trouble(home, serve, provider):
    home.write(boat="the red ferry sails at dawn")
    running = await serve(by_meaning(provider))
    await running.synced()
    await running.search("ferry asked before")
    BREAKS["failing"](provider)
    check_named(await running.search("ferry asked now"))
    answer = await running.search("ferry asked before")
    assert (answer.info.served_mode, list(answer.info.degradations)) == (HYBRID, [])
