"""One agent's entries with a provider that fails, refuses or sends rubbish."""

import asyncio
import itertools
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import numpy as np
import pytest

from entry_fixture import needs_lancedb, new, texts
from memoryd_server.agent.threads import ProviderExecutors
from memoryd_server.entries.dataset import Dataset
from memoryd_server.entries.maintenance import EntryEmbedder, MaintenanceConfig
from memoryd_server.entries.memory import EntryMemory
from memoryd_server.entries.model import DatasetLocation, EntryCategory, EntryConfig, RememberAction
from memoryd_server.entries.store import EntryStore
from memoryd_server.model import DegradationKind
from memoryd_server.providers.pool import ProviderSelection
from memoryd_server.providers.provider import EmbeddingConfig
from memoryd_server.text.analyzer import Analyzer
from waiting import eventually
from word_provider import WordProvider

pytestmark = needs_lancedb

SKIPPED, PENDING = DegradationKind.VECTOR_LEG_SKIPPED, DegradationKind.VECTORS_PENDING


def kinds(degradations):
    return [degradation.kind for degradation in degradations]


def soon():
    return time.monotonic() + 10


@pytest.fixture
def opened(tmp_path):
    """Opens entries with a provider, always in the same place; `events` are what happened behind them."""

    @asynccontextmanager
    async def opened(provider, dimensions=0, bound=0, **maintenance):
        clock = itertools.count(1_000)
        place = DatasetLocation(str(tmp_path / "entries"))
        config = EntryConfig(True, place, EmbeddingConfig("none"), dimensions, False, True, 500, bound)
        store = EntryStore(place, Analyzer(), lambda: next(clock), lambda: str(uuid.uuid4()))
        embed_threads = ProviderExecutors()
        with ThreadPoolExecutor(4) as threads:
            selection = ProviderSelection(provider, "words")
            vectors = EntryEmbedder(selection, dimensions, embed_threads.of, pause_seconds=0.02)
            times = MaintenanceConfig(**{"first_pause_seconds": 0.02, "longest_pause_seconds": 0.05, **maintenance})
            memory = EntryMemory(
                config,
                store,
                vectors,
                threads,
                lambda event, **fields: events.append((event, fields)),
                maintenance=times,
            )
            events = memory.events = []
            await memory.open()
            try:
                yield memory
            finally:
                await memory.close()
                embed_threads.shutdown()

    return opened


async def recalled(memory, query, limit=5):
    return await memory.recall(query, limit, 0.0, (), soon())


async def whole(memory):
    async def look():
        found = await recalled(memory, "heron")
        return not found.degradations and found

    return texts((await eventually(look)).entries)


@pytest.mark.slow
async def test_a_refused_text_is_kept_without_a_vector_and_not_asked_for_again(opened):
    provider = WordProvider()
    async with opened(provider) as memory:
        remembered, degradations = await memory.remember(new("unspeakable heron"), soon())
        assert (remembered.action, kinds(degradations)[0]) == (RememberAction.STORED, SKIPPED)
        await memory.remember(new("an otter"), soon())
        await eventually(lambda: any(event == "embedded-entries" for event, _ in memory.events))
        asked = provider.texts.count("unspeakable heron")
        found = await recalled(memory, "heron")
        assert texts(found.entries) == ["an otter"]
        assert kinds(found.degradations) == [PENDING]
        await asyncio.sleep(0.2)
        assert provider.texts.count("unspeakable heron") == asked
        provider.down = "out for lunch"
        assert texts((await recalled(memory, "unspeakable")).entries) == ["unspeakable heron"]


@pytest.mark.slow
async def test_a_provider_that_comes_back_makes_what_is_missing(opened):
    provider = WordProvider()
    provider.lives = 0
    async with opened(provider) as memory:
        for number in range(40):
            _, degradations = await memory.remember(new(f"heron {number}"), soon())
            assert SKIPPED in kinds(degradations)
        provider.lives = None
        assert await whole(memory)


async def test_an_entry_without_a_vector_at_a_stop_gets_one_after_the_next_start(opened):
    down = WordProvider()
    down.lives = 0
    async with opened(down) as memory:
        await memory.remember(new("the heron"), soon())
    async with opened(WordProvider()) as memory:
        assert await whole(memory) == ["the heron"]
        assert memory.events[0] == ("embed-entries", {"pending": 1, "model": "remote/words"})


changed_models = pytest.mark.parametrize(
    ("before", "after"),
    [
        ((16, "a"), (24, "a")),
        pytest.param((16, "a"), (16, "b"), marks=pytest.mark.slow),
        pytest.param((24, "a"), (16, "b"), marks=pytest.mark.slow),
    ],
)


@pytest.mark.slow
@changed_models
async def test_another_model_leaves_no_vector_of_the_old_one(opened, before, after):
    async with opened(WordProvider(before[1], dimensions=before[0])) as memory:
        for number in range(40):
            await memory.remember(new(f"heron {number} {uuid.uuid4()}"), soon())
    provider = WordProvider(after[1], dimensions=after[0], told=False)
    async with opened(provider) as memory:
        assert await whole(memory)
        page = await memory.page(None, 100, ())
        assert set(provider.texts) >= {entry.text for entry in page.entries}


WIDE = 4_096
"""Dimensions in which no two texts have the same words by chance."""


def told(memory, event):
    return [fields for name, fields in memory.events if name == event]


@pytest.mark.slow
@changed_models
async def test_texts_above_the_cost_limit_are_sent_after_approval_and_not_before(opened, before, after):
    kept = [f"heron {number} {uuid.uuid4()}" for number in range(8)]
    first = WordProvider(before[1], dimensions=WIDE * before[0])
    async with opened(first) as memory:
        for text in kept:
            await memory.remember(new(text), soon())
    provider = WordProvider(after[1], dimensions=WIDE * after[0], told=False)
    async with opened(provider, bound=50) as memory:

        async def look():
            return [found.reason for found in (await recalled(memory, "heron")).degradations if found.kind is PENDING]

        async def waits():
            return [reason for reason in await look() if "confirmAboveTokens; call Sync with mode FULL" in reason]

        assert (await eventually(waits))[0].startswith("8 entries have no vector")
        for _ in range(3):
            assert await waits()
        assert not set(kept) & set(provider.texts)
        assert len(told(memory, "wait-embedding-entries")) == 1
        memory.approve_cost()
        assert await whole(memory)
        assert set(provider.texts) >= set(kept)
        await eventually(lambda: told(memory, "embedded-entries"))


async def test_whoever_goes_back_to_the_old_model_while_the_new_one_waits_pays_nothing(opened):
    async with opened(WordProvider("a", dimensions=WIDE)) as memory:
        for number in range(8):
            await memory.remember(new(f"heron {number} {uuid.uuid4()}"), soon())
    async with opened(WordProvider("b", dimensions=2 * WIDE), bound=50) as memory:
        await eventually(lambda: told(memory, "wait-embedding-entries"))
        await memory.remember(new("an otter"), soon())
        assert (await recalled(memory, "heron")).degradations
    back = WordProvider("a", dimensions=WIDE)
    async with opened(back, bound=50) as memory:
        assert await whole(memory)
        assert set(back.texts) == {"an otter"}


async def test_a_yes_is_good_for_what_is_missing_then_and_for_nothing_later(opened):
    provider = WordProvider(dimensions=WIDE)
    async with opened(provider, bound=50) as memory:
        memory.approve_cost()
        provider.lives = 0
        for number in range(8):
            await memory.remember(new(f"heron {number} {uuid.uuid4()}"), soon())
        provider.lives = None
        await eventually(lambda: told(memory, "wait-embedding-entries"))
        memory.approve_cost()
        assert await whole(memory)
        provider.lives = 0
        for number in range(8):
            await memory.remember(new(f"otter {number} {uuid.uuid4()}"), soon())
        provider.lives = None
        await eventually(lambda: len(told(memory, "wait-embedding-entries")) == 2)


async def test_a_local_model_costs_nothing_and_needs_no_approval(opened):
    async with opened(WordProvider("a", dimensions=WIDE)) as memory:
        for number in range(8):
            await memory.remember(new(f"heron {number} {uuid.uuid4()}"), soon())
    async with opened(WordProvider("b", "local", WIDE), bound=1) as memory:
        assert await whole(memory)
        assert not told(memory, "wait-embedding-entries")


async def test_one_odd_vector_costs_no_other(opened):
    provider = WordProvider(told=False)
    async with opened(provider) as memory:
        await memory.remember(new("the heron"), soon())
        _, degradations = await memory.remember(new("a misshapen heron"), soon())
        assert "17 dimensions, and those of the entries have 16" in degradations[0].reason
        found = await recalled(memory, "misshapen")
        assert kinds(found.degradations)[0] is SKIPPED
        await eventually(lambda: any(event == "embedded-entries" for event, _ in memory.events))
        found = await recalled(memory, "heron")
        assert texts(found.entries) == ["the heron"]
        assert kinds(found.degradations) == [PENDING]


@pytest.mark.parametrize("rubbish", [np.full(16, np.nan), np.zeros(16), np.full(16, np.inf), np.ones(0)])
async def test_rubbish_for_a_vector_is_not_stored(opened, rubbish):
    provider = WordProvider()
    provider.vector = lambda _text: rubbish.astype(np.float32)
    async with opened(provider) as memory:
        remembered, degradations = await memory.remember(new("the heron"), soon())
        assert remembered.action is RememberAction.STORED
        assert "returned an unusable vector" in degradations[0].reason
        found = await recalled(memory, "heron")
        assert texts(found.entries) == ["the heron"]
        assert SKIPPED in kinds(found.degradations)


async def test_many_callers_at_once_store_each_text_once(opened):
    async with opened(WordProvider(dimensions=256)) as memory:
        calls = [memory.remember(new(f"heron {number % 5}", key=f"k{number % 5}"), soon()) for number in range(20)]
        done = [remembered.entry.entry_id for remembered, _ in await asyncio.gather(*calls)]
        page = await memory.page(None, 100, ())
        assert {entry.entry_id for entry in page.entries} == set(done)
        assert len({entry.text for entry in page.entries}) == len(page.entries)


@pytest.mark.slow
async def test_old_versions_are_cleared_away_behind_the_callers(opened, tmp_path):
    async with opened(None) as memory:
        for number in range(140):
            await memory.remember(new(f"number {number}", category=EntryCategory.FACT), soon())
        assert (await memory.page(None, 1, ())).total == 140
    versions = list((tmp_path / "entries").glob("**/_versions/*.manifest"))
    assert len(versions) < 140


async def test_remains_of_a_crash_are_deleted_without_a_write(opened, tmp_path):
    async with opened(None) as memory:
        for number in range(20):
            await memory.remember(new(f"number {number}"), soon())
        secret = (await memory.remember(new("Xq7vZ2pL9wTjR4sKhYbN"), soon()))[0].entry
        await memory.forget(secret.entry_id)

    def is_gone():
        files = [path for path in (tmp_path / "entries").rglob("*") if path.is_file()]
        return not any(b"Xq7vZ2pL9wTjR4sKhYbN" in path.read_bytes() for path in files)

    assert not is_gone()
    async with opened(None, quiet_seconds=0.02):

        def look():
            # A file may go away while it is looked for.
            with suppress(FileNotFoundError):
                return is_gone()

        await eventually(look)


@pytest.mark.slow
async def test_old_versions_are_deleted_while_all_vectors_are_rebuilt(opened, tmp_path):
    async with opened(WordProvider("a", dimensions=WIDE), batch=1) as memory:
        for number in range(90):
            await memory.remember(new(f"heron {number}"), soon())
    async with opened(WordProvider("b", dimensions=WIDE), batch=1) as memory:
        await eventually(lambda: told(memory, "embedded-entries"), seconds=60)
        await memory._maintenance._optimizing
    assert len(list((tmp_path / "entries").glob("**/_versions/*.manifest"))) < 64


async def test_versions_that_had_to_stay_are_deleted_later_and_once(opened, monkeypatch):
    tidied, tidy = [], Dataset.optimize

    def remote(dataset):
        tidied.append(time.monotonic())
        tidy(dataset)
        return 0.05

    monkeypatch.setattr(Dataset, "optimize", remote)
    async with opened(None, quiet_seconds=0.02) as memory:
        await memory.remember(new("the heron"), soon())
        await eventually(lambda: len(tidied) >= 2)
        count = len(tidied)
        await asyncio.sleep(0.2)
        assert len(tidied) <= count + 1, "a tidying after which nothing was written leads to no other"
    assert tidied[-1] - tidied[-2] >= 0.04


async def test_unexpected_exceptions_end_no_embedding_and_are_reported_once(opened):
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    provider, failures = WordProvider(), [ValueError("a fault"), ValueError("the same")]
    provider.lives = 0

    def fail(_texts):
        if failures:
            raise failures.pop(0)

    async with opened(provider) as memory:
        await memory.remember(new("the heron"), soon())
        provider.before, provider.lives = fail, None
        assert await whole(memory) == ["the heron"]
    assert reported == ["a fault"]
