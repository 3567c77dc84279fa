"""Over gRPC: whatever a provider replies, searches answer by keywords, and later syncs work."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_providers import SERVERS, Fault, fake_provider
from hostile_json import HUGE, fragments, spoil
from properties import examples
from rpc.wire import HYBRID, KEYWORD, kinds, paths

pytestmark = pytest.mark.attacks

KEY = "key-of-this-test-0123456789"
WITH_JOBS = ("openai", "gemini", "voyage")
NOTES = 6
ALL = 100


def using(server, **batch):
    remote = {"baseUrl": server.url, "apiKey": KEY, "batch": {"enabled": bool(batch), "pollIntervalMs": 20, **batch}}
    search = {"provider": server.provider, "model": server.model, "remote": remote}
    return {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"batchMinChunks": 5}}


class Case:
    """A daemon and its provider. Each `round` adds notes with a word of their own."""

    def __init__(self, running, server):
        self.running, self.server = running, server
        self.rounds = 0

    def write(self):
        self.rounds += 1
        word = f"heron{self.rounds}x"
        self.running.home.write(**{f"{word}{at}": f"the {word} waits at pier{at}x" for at in range(NOTES)})
        return word

    async def check_search(self, word, *, spoiled):
        """A search finds the notes by keywords, and names what is missing.

        A reply that was spoiled may still be valid vectors, even such that give notes a score below 0.
        """
        keyword = await self.running.search(word, mode=KEYWORD)
        assert len(paths(keyword)) == NOTES
        answer = await self.running.search(word, mode=HYBRID, min_score=0.0, max_results=ALL)
        if not spoiled or answer.info.served_mode != HYBRID:
            assert set(paths(keyword)) <= set(paths(answer))
        assert answer.info.served_mode == HYBRID or kinds(answer.info.degradations)
        assert all(degradation.reason for degradation in answer.info.degradations)

    async def check_later_sync(self):
        """A provider that works again gives every new text a vector."""
        self.server.faults.clear()
        self.server.refuse = lambda _texts: None
        word = self.write()
        assert (await self.running.synced()).failed_files == 0
        found = await self.running.status()
        assert 0 <= found.embedding.tokens < 2**63
        assert not any("internal" in degradation.reason.lower() for degradation in found.degradations)
        await self.check_search(word, spoiled=False)

    def spoiling(self, number, fragment, status=200):
        body = None if status == 200 else self.server.error(status, "The server has an error.")
        return Fault(status=status, change=lambda reply: spoil(body if reply is None else reply, number, fragment))

    async def round(self, number, fragment, status):
        """All replies are spoiled in one place while a sync and searches run."""
        word = self.write()
        self.server.refuse = lambda _texts: self.spoiling(number, fragment, status)
        await self.running.synced()
        await self.check_search(word, spoiled=True)
        await self.running.status(probe=True)
        await self.check_later_sync()

    async def round_of_jobs(self, number, fragment, status, at):
        """One reply of a batch job is spoiled: that to the upload, the job, its state, or the output."""
        word = self.write()
        self.server.faults.extend([*[Fault()] * at, self.spoiling(number, fragment, status)])
        await self.running.synced()
        await self.check_search(word, spoiled=True)
        await self.check_later_sync()


@pytest.fixture(params=SERVERS)
async def case(request, home, serve):
    with fake_provider(request.param, [KEY]) as server:
        yield Case(await serve(using(server)), server)


@pytest.fixture(params=WITH_JOBS)
async def jobs_case(request, home, serve):
    with fake_provider(request.param, [KEY]) as server:
        yield Case(await serve(using(server, timeoutMinutes=1)), server)


shared_fixtures = settings(
    max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.mark.slow
@shared_fixtures
@given(number=st.integers(0, 60), fragment=fragments, status=st.sampled_from((200, 200, 400, 500)))
async def test_any_value_of_a_providers_replies_costs_no_answer(case, number, fragment, status):
    await case.round(number, fragment, status)


@pytest.mark.slow
@shared_fixtures
@given(number=st.integers(0, 60), fragment=fragments, status=st.sampled_from((200, 200, 400)), at=st.integers(0, 4))
async def test_any_value_of_a_batch_jobs_replies_costs_no_answer(jobs_case, number, fragment, status, at):
    await jobs_case.round_of_jobs(number, fragment, status, at)


TEXTS = '["' + "x" * 1_000_000 + '"' + ', ""' * 30_000 + "]"


@pytest.mark.parametrize(
    ("path", "fragment"),
    [
        (("usage", "total_tokens"), HUGE),
        (("usage", "total_tokens"), "9" * 5_000),
        (("data",), "[" * 900 + "]" * 900),
        (("data", 0, "embedding"), TEXTS),
        (("data", 0, "embedding"), "[1" + ", 1" * 140_000 + "]"),
        (("data", 0, "index"), HUGE),
    ],
    ids=["tokens", "digits", "depth", "texts", "dimensions", "index"],
)
async def test_hostile_replies_cost_no_answer_and_no_later_sync(home, serve, provider, path, fragment):
    case = Case(await serve(using(provider)), provider)
    word = case.write()
    provider.refuse = lambda _texts: case.spoiling(path, fragment)
    await case.running.synced()
    await case.check_search(word, spoiled=True)
    await case.check_later_sync()
    assert (await case.running.status()).embedding.tokens < 10_000
