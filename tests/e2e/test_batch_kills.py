"""A daemon is killed around a batch job; the next one goes on with it, and no text is paid for twice."""

import signal

import pytest

from daemon_process import end
from e2e.daemon_fixture import client, last_event
from fake_providers import fake_provider
from memoryd.messages import SEARCH_MODE_VECTOR
from waiting import wait_until

pytestmark = pytest.mark.slow

NOTES = 30


@pytest.fixture(params=["openai", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemini", "voyage"))])
def provider(request):
    with fake_provider(request.param) as server:
        yield server


@pytest.fixture
def notes(daemons, provider):
    remote = {"baseUrl": provider.url, "apiKey": "key-of-this-test", "batch": {"pollIntervalMs": 50}}
    search = {"provider": provider.provider, "model": provider.model, "remote": remote}
    daemons.configure(watch=False, search=search, batchMinChunks=10)
    for number in range(NOTES):
        daemons.write(f"memory/{number}.md", f"the heron number{number}x waits")


def killed_when(daemons, holds):
    served = daemons.start()
    wait_until(holds)
    end(served.process, signal.SIGKILL)


def check_goes_on(daemons, provider, jobs=1):
    served = daemons.start()
    with client(served) as connection:
        last_event(connection)
        status = connection.status()
        assert (status.index.pending_embeddings, status.batch.jobs) == (0, 0)
        asked = dict(provider.asked)
        (first, *_) = connection.search(query="number7x", mode=SEARCH_MODE_VECTOR, min_score=0.0).results
        assert first.path == "memory/7.md"
    end(served.process)
    assert len(provider.jobs) == jobs
    notes = {text: times for text, times in asked.items() if "heron" in text}
    assert (len(notes), set(notes.values())) == (NOTES, {1})


def looked_at(provider):
    return any(request.method == "GET" and "/batches/" in request.path for request in provider.requests)


def test_killed_while_the_job_is_at_work(daemons, notes, provider):
    provider.fates.append("hangs")
    killed_when(daemons, lambda: looked_at(provider))
    next(iter(provider.jobs.values())).fate = "done"
    check_goes_on(daemons, provider)


def test_killed_after_the_job_was_made_and_before_its_id_came(daemons, notes, provider):
    provider.keep_back = 1.0
    killed_when(daemons, lambda: provider.jobs)
    provider.keep_back = 0.0
    check_goes_on(daemons, provider)


@pytest.mark.slow
def test_killed_again_and_again(daemons, notes, provider):
    provider.fates.append("hangs")
    for looks in (1, 3, 5):
        killed_when(daemons, lambda looks=looks: len([r for r in provider.requests if "/batches/" in r.path]) >= looks)
    next(iter(provider.jobs.values())).fate = "done"
    check_goes_on(daemons, provider)
