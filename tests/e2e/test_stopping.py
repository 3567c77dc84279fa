"""SIGTERM during work: running calls finish or get a retry hint, and the process ends in time."""

import json
import signal
import subprocess
import threading
import time

import grpc
import pytest

from e2e.daemon_fixture import client
from fake_providers import embedding_server
from memoryd.client import MemorydError
from memoryd.v1 import memory_pb2
from waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.faults

GRACE_SECONDS = 4
# Two seconds are promised beyond the grace; a busy machine gets some more.
BEYOND_SECONDS = 8
MODEL = "words-of-a-test"


@pytest.fixture
def gate():
    """Set once the provider may answer."""
    return threading.Event()


@pytest.fixture
def provider(gate):
    """A provider that keeps every request waiting for the gate."""
    with embedding_server() as server:
        server.refuse = lambda _texts: gate.wait(120) and None
        yield server
        gate.set()


@pytest.fixture
def served(daemons, provider):
    """A daemon with an embedding call in flight."""
    search = {"provider": "openai-compatible", "model": MODEL, "remote": {"baseUrl": provider.url}}
    daemons.configure(watch=False, search=search, limits={"shutdownGraceSeconds": GRACE_SECONDS})
    for number in range(20):
        daemons.write(f"memory/note-{number}.md", f"the heron number{number}x stands in the reeds\n")
    served = daemons.start()
    wait_until(lambda: provider.requests)
    return served


def outcome(call):
    """What a call in a thread of its own comes to, once the thread has ended."""
    found = []

    def run():
        try:
            found.append(call())
        except MemorydError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


@pytest.mark.slow
def test_sigterm_with_an_embedding_call_in_flight_ends_everything_in_time(daemons, served, provider, gate):
    with client(served) as connection:
        following = connection.sync(timeout=60)
        next(iter(following))
        waiting, answers = outcome(lambda: connection.search(query="heron", timeout=30))
        asked = len(provider.requests)
        wait_until(lambda: len(provider.requests) > asked or answers)
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        waiting.join(30)
        assert served.process.wait(30) == 0
        assert time.monotonic() - began < GRACE_SECONDS + BEYOND_SECONDS
        # The question's vector never came: words alone answered it, before the end.
        (answer,) = answers
        assert not isinstance(answer, MemorydError), answer
        assert {hit.path for hit in answer.results} <= {f"memory/note-{number}.md" for number in range(20)}
        assert answer.results
        assert answer.info.served_mode == memory_pb2.SEARCH_MODE_KEYWORD
        with pytest.raises(MemorydError) as caught:
            list(following)
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.ABORTED, "SYNC_CANCELLED")
    assert caught.value.retry_after_seconds
    assert "a new Sync continues after the last committed batch" in str(caught.value)
    # The next start goes on: every word is indexed, and the vectors are made.
    gate.set()
    with client(daemons.start()) as connection:
        wait_until(lambda: connection.status().index.pending_embeddings == 0)
        status = connection.status()
        assert (status.index.files, list(status.failed_files)) == (20, [])


@pytest.mark.slow
def test_the_second_sigterm_ends_it_at_once(daemons, served):
    with client(served) as connection:
        # A caller who waits for what never comes keeps the first one waiting for its grace.
        revision = connection.status().index.revision
        waiting, _ = outcome(lambda: connection.search(query="x", min_revision=revision + 10**9, timeout=60))
        # The call has to arrive first.
        time.sleep(1)
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: daemons.events("stop-daemon"))
        began = time.monotonic()
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                served.process.wait(0.3)
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(10) == -signal.SIGTERM
            assert time.monotonic() - began < GRACE_SECONDS
        finally:
            waiting.join(30)
    # Nothing was lost, and nothing is in the way of the next one.
    verdict, *_ = daemons.contents()
    assert verdict == "ok"
    with client(daemons.start()) as connection:
        assert connection.search(query="heron", mode=memory_pb2.SEARCH_MODE_KEYWORD).results


@pytest.mark.slow
def test_reloads_requested_during_a_stop_do_not_end_it(daemons):
    served = daemons.start()
    served.process.send_signal(signal.SIGTERM)
    while served.process.poll() is None:
        served.process.send_signal(signal.SIGHUP)
        time.sleep(0.001)
    assert served.process.returncode == 0


MANY = 150


@pytest.mark.slow
def test_sigterm_ends_a_reload_that_reopens_many_agents(daemons):
    for number in range(MANY):
        daemons.write(f"../w{number}/memory/a.md", f"the heron of pier {number}\n")
    agents = [{"id": f"a{number}", "workspace": str(daemons.home / f"w{number}")} for number in range(MANY)]

    def configure(tokens):
        search = {"sync": {"watch": False}, "chunking": {"tokens": tokens}}
        logged = {"log": {"level": "info", "format": "json"}}
        settings = {"agents": {"list": agents, "defaults": {"memorySearch": search}}, "memoryd": logged}
        daemons.config.write_text(json.dumps(settings))

    configure(400)
    served = daemons.start()
    with client(served) as connection:
        wait_until(lambda: not closed(connection))
        configure(200)
        served.process.send_signal(signal.SIGHUP)
        # The agents are closed together and opened one after the other.
        wait_until(lambda: closed(connection))
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) == 0
    # Two seconds are promised; a busy machine gets some more.
    assert time.monotonic() - began < 2 + BEYOND_SECONDS
    (event,) = daemons.events("reload-settings")
    assert not event["problems"]


def closed(connection):
    """The number of agents on the first page whose index is not open."""
    # A reload that closes all agents can take longer than the default deadline.
    agents = connection.list_agents(page_size=MANY, timeout=WAIT_SECONDS).agents
    return sum(agent.index_state == memory_pb2.INDEX_STATE_UNAVAILABLE for agent in agents)
