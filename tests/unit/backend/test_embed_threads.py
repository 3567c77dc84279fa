"""Each provider has threads of its own, so that one that hangs delays nobody who asks another."""

import threading

from memoryd_server.backend.embed_threads import THREADS_A_PROVIDER, EmbedThreads
from word_provider import WordProvider


def test_a_provider_that_takes_all_its_threads_leaves_another_ones_free():
    threads, gate = EmbedThreads(), threading.Event()
    hangs, answers = WordProvider(), WordProvider()
    try:
        waiting = [threads.of(hangs).submit(gate.wait, 20) for _ in range(2 * THREADS_A_PROVIDER)]
        assert threads.of(answers).submit(lambda: "soon").result(10) == "soon"
        assert not any(call.done() for call in waiting)
    finally:
        gate.set()
        threads.shutdown()


def test_agents_that_share_a_provider_share_its_threads():
    threads, provider = EmbedThreads(), WordProvider()
    assert threads.of(provider) is threads.of(provider)
    assert threads.of(provider) is not threads.of(WordProvider())


def test_a_shutdown_drops_the_calls_that_wait_and_does_not_wait_for_those_under_way():
    threads, gate, began = EmbedThreads(each=1), threading.Event(), threading.Event()
    provider = WordProvider()

    def hang():
        began.set()
        return gate.wait(20)

    under_way, waiting = threads.of(provider).submit(hang), threads.of(provider).submit(gate.wait, 20)
    assert began.wait(10)
    threads.shutdown()
    assert waiting.cancelled()
    assert not under_way.done()
    gate.set()
    assert under_way.result(10)
