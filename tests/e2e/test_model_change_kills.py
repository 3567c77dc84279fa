"""A daemon is killed during a change of the model; the next one continues, and no committed text is embedded twice."""

import signal
import threading
from collections import Counter

import pytest

from daemon_process import end
from e2e.daemon_fixture import client, last_event
from fake_providers import fake_provider
from memoryd.messages import SEARCH_MODE_VECTOR
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.faults]

NOTES = 600
# The chunks of one transaction, which a kill may lose.
BATCH = 128
SMALL, LARGE = "text-embedding-3-small", "text-embedding-3-large"


@pytest.fixture
def openai():
    with fake_provider("openai") as server:
        server.dimensions = 8
        yield server


def configure(daemons, openai, model, **search):
    remote = {"baseUrl": openai.url, "apiKey": "key-of-this-test"}
    search = {"provider": "openai", "model": model, "remote": remote, **search}
    daemons.configure(watch=False, search=search)


def embedded_by(openai, model):
    """How often each note was embedded with a model."""
    texts = (text for request in openai.requests if request.body["model"] == model for text in request.texts)
    return Counter(text for text in texts if "heron" in text)


@pytest.fixture
def notes(daemons, openai):
    configure(daemons, openai, SMALL)
    for number in range(NOTES):
        daemons.write(f"memory/{number}.md", f"the heron number{number}x waits")
    served = daemons.start()
    with client(served) as connection:
        assert last_event(connection).pending_embeddings == 0
    end(served.process)


def killed_after(daemons, openai, count):
    """Kill a daemon when its server has seen this number of notes for the new model; later notes wait until then."""
    gate = threading.Event()

    def wait(texts):
        if "heron" in texts[0] and embedded_by(openai, LARGE).total() > count:
            gate.wait(20)

    openai.refuse = wait
    served = daemons.start()
    try:
        wait_until(lambda: embedded_by(openai, LARGE).total() > count)
        with client(served) as connection:
            status = connection.status()
            assert (status.index.identity.model, status.index.next_identity.model) == (SMALL, LARGE)
            check_answers(connection, SMALL)
        end(served.process, signal.SIGKILL)
    finally:
        openai.refuse = lambda _texts: None
        gate.set()


def check_answers(connection, model):
    answer = connection.search(query="number7x", mode=SEARCH_MODE_VECTOR, min_score=0.0)
    assert answer.results
    assert answer.info.embedding.model == model


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.timeout(180)
def test_a_change_that_is_killed_twice_is_completed_and_the_old_model_answers_until_then(daemons, notes, openai, cache):
    configure(daemons, openai, LARGE, cache={"enabled": cache})
    for count in (150, 350):
        killed_after(daemons, openai, count)
    served = daemons.start()
    with client(served) as connection:
        assert last_event(connection).pending_embeddings == 0
        check_answers(connection, LARGE)
        status = connection.status()
        assert (status.index.identity.model, status.index.HasField("next_identity")) == (LARGE, False)
    end(served.process)
    assert daemons.contents()[0] == "ok"
    embedded = embedded_by(openai, LARGE)
    assert len(embedded) == NOTES
    # Each kill may have had one batch under way, which no process has seen the answers of.
    assert embedded.total() - NOTES <= 2 * BATCH
    assert set(embedded_by(openai, SMALL).values()) == {1}
