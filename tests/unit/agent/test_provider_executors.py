"""Each provider has its own threads, so a provider that hangs delays no other."""

import threading
import time
import weakref

import pytest

from memoryd_server.agent.threads import THREADS_A_PROVIDER, ProviderExecutors
from memoryd_server.errors import EmbeddingUnavailable
from waiting import wait_until
from word_provider import WordProvider

PROVIDER = WordProvider()


def test_a_provider_that_takes_all_its_threads_leaves_another_ones_free():
    threads, gate = ProviderExecutors(), threading.Event()
    hangs, answers = WordProvider(), WordProvider()
    try:
        waiting = [threads.of(hangs).submit(gate.wait, 20) for _ in range(2 * THREADS_A_PROVIDER)]
        assert threads.of(answers).submit(lambda: "soon").result(10) == "soon"
        assert not any(call.done() for call in waiting)
    finally:
        gate.set()
        threads.shutdown()


def test_agents_that_share_a_provider_share_its_threads():
    threads, provider = ProviderExecutors(), WordProvider()
    assert threads.of(provider) is threads.of(provider)
    assert threads.of(provider) is not threads.of(WordProvider())


def test_a_shutdown_ends_the_waiting_for_calls_that_wait_and_for_those_under_way():
    threads, gate, began = ProviderExecutors(each=1), threading.Event(), threading.Event()
    provider = WordProvider()

    def hang():
        began.set()
        return gate.wait(20)

    under_way, waiting = threads.of(provider).submit(hang), threads.of(provider).submit(gate.wait, 20)
    assert began.wait(10)
    threads.shutdown()
    for call in (under_way, waiting, threads.of(provider).submit(gate.wait, 20)):
        with pytest.raises(EmbeddingUnavailable, match="stopping"):
            call.result(0)
    gate.set()


def test_an_exception_of_a_call_reaches_its_caller():
    threads = ProviderExecutors()
    with pytest.raises(ZeroDivisionError):
        threads.of(WordProvider()).submit(lambda: 1 // 0).result(10)
    threads.shutdown()


def test_no_more_calls_run_at_once_than_there_are_threads_and_all_are_answered():
    threads, lock, now, peak = ProviderExecutors(each=3), threading.Lock(), [], []

    def call(number):
        with lock:
            now.append(number)
            peak.append(len(now))
        time.sleep(0.005)
        with lock:
            now.remove(number)
        return number

    calls = [threads.of(PROVIDER).submit(call, number) for number in range(30)]
    calls[20].cancel()
    answers = [call.result(20) for call in calls if not call.cancelled()]
    assert answers == [number for number in range(30) if number != 20 or not calls[20].cancelled()]
    assert max(peak) <= 3
    threads.shutdown()


def test_its_threads_keep_no_process_from_ending():
    threads, began = ProviderExecutors(), threading.Event()
    gate = threading.Event()
    threads.of(PROVIDER).submit(lambda: began.set() or gate.wait(20))
    assert began.wait(10)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("embed-"))
    gate.set()
    threads.shutdown()


def test_call_that_finds_no_thread_fails_and_leaves_its_place_to_the_next(monkeypatch):
    threads = ProviderExecutors(each=1).of(WordProvider())
    start = threading.Thread.start
    with monkeypatch.context() as patch:
        patch.setattr(
            threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start new thread"))
        )
        with pytest.raises(RuntimeError, match="new thread"):
            threads.submit(lambda: 1).result(10)
    assert threading.Thread.start is start
    assert threads.submit(lambda: 1).result(10) == 1


def test_the_threads_of_a_provider_that_is_not_used_any_more_are_freed():
    threads, provider = ProviderExecutors(), WordProvider()
    executor = weakref.ref(threads.of(provider))
    del provider
    wait_until(lambda: executor() is None)
