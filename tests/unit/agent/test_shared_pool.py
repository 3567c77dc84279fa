"""Threads shared by all agents: none can take all, waiting agents take turns, and none waits forever."""

import gc
import threading
import time
import weakref
from concurrent.futures import CancelledError, wait

import pytest

from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.threads import DaemonExecutor, SerialExecutor, SharedPool, on_thread
from waiting import wait_until

SOON = 10


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def threads():
    threads = SharedPool(4, 2, "test")
    yield threads
    threads.shutdown()


def test_an_agent_whose_work_hangs_leaves_the_others_their_threads(threads, gate):
    hanging = threads.share()
    stuck = [hanging.submit(gate.wait) for _ in range(20)]
    other = threads.share()
    assert [other.submit(lambda n=n: n * n).result(SOON) for n in range(10)] == [n * n for n in range(10)]
    assert not any(future.done() for future in stuck)
    gate.set()
    assert all(future.result(SOON) for future in stuck)


def test_a_waiting_agent_takes_turns_with_a_busy_one(gate):
    threads, order = SharedPool(1, 1, "test"), []
    block = threads.share().submit(gate.wait)
    many, one = threads.share(), threads.share()
    futures = [many.submit(order.append, "many") for _ in range(50)]
    futures.append(one.submit(order.append, "one"))
    gate.set()
    wait([block, *futures], SOON)
    assert order.index("one") <= 1
    assert order.count("many") == 50
    threads.shutdown()


def test_calls_of_one_share_keep_their_order_and_no_more_run_than_it_may_have(threads):
    share, lock, now, peak, order = threads.share(), threading.Lock(), [0], [0], []
    # The third call starts when the first two have started.
    pair = threading.Barrier(2)

    def work(number):
        with lock:
            order.append(number)
            now[0] += 1
            peak[0] = max(peak[0], now[0])
        pair.wait(SOON)
        time.sleep(0.002)
        with lock:
            now[0] -= 1

    wait([share.submit(work, number) for number in range(60)], SOON)
    assert peak == [2]
    assert sorted(order) == list(range(60))
    assert all(abs(place - number) <= 1 for place, number in enumerate(order))


def test_an_exception_reaches_its_caller_and_the_next_call_runs(threads):
    share = threads.share()
    with pytest.raises(ZeroDivisionError):
        share.submit(lambda: 1 / 0).result(SOON)
    assert share.submit(lambda: 7).result(SOON) == 7


def test_a_call_that_its_asker_gave_up_is_not_made(threads, gate):
    share, made = threads.share(), []
    stuck = [share.submit(gate.wait) for _ in range(2)]
    given_up = share.submit(made.append, "given up")
    assert given_up.cancel()
    last = share.submit(made.append, "last")
    gate.set()
    wait([*stuck, last], SOON)
    assert made == ["last"]


def test_a_shutdown_ends_the_waiting_of_all(threads, gate):
    share, other = threads.share(), threads.share()
    at_work = [share.submit(gate.wait) for _ in range(2)] + [other.submit(gate.wait) for _ in range(2)]
    while not all(future.running() for future in at_work):
        time.sleep(0.005)
    third = threads.share()
    waiting = [third.submit(gate.wait) for _ in range(9)]
    threads.shutdown()
    for future in waiting:
        with pytest.raises(CancelledError):
            future.result(SOON)
    later = share.submit(gate.wait)
    gate.set()
    wait(at_work, SOON)
    with pytest.raises(CancelledError):
        later.result(SOON)
    with pytest.raises(RuntimeError):
        threads.share().submit(print)


def test_the_thread_that_became_idle_last_runs_the_next_call():
    threads = SharedPool(4, 4, "test")
    share, together = threads.share(), threading.Barrier(4)
    wait([share.submit(together.wait) for _ in range(4)], SOON)
    # A thread may not be idle yet when the next call comes, so that another one runs that.
    wait_until(lambda: len({share.submit(threading.get_ident).result(SOON) for _ in range(20)}) == 1, SOON)
    threads.shutdown()


def test_a_thread_ends_when_it_has_been_idle_and_another_runs_the_next_call():
    threads = SharedPool(2, 2, "short-lived", idle_seconds=0.05)
    share = threads.share()
    assert share.submit(lambda: 1).result(SOON) == 1
    wait_until(lambda: all(thread.name != "short-lived" for thread in threading.enumerate()), SOON)
    assert share.submit(lambda: 2).result(SOON) == 2
    threads.shutdown()


def test_no_call_is_lost_when_idle_threads_end():
    threads = SharedPool(2, 2, "short-lived", idle_seconds=0.0005)
    share = threads.share()
    for number in range(300):
        assert share.submit(lambda number=number: number).result(SOON) == number
        # About as long as a thread is idle, so that some calls meet its end.
        threading.Event().wait(0.0005)
    threads.shutdown()


def test_an_idle_thread_ends_at_a_shutdown():
    threads = SharedPool(1, 1, "ended", idle_seconds=SOON)
    threads.share().submit(int).result(SOON)
    threads.shutdown()
    wait_until(lambda: all(thread.name != "ended" for thread in threading.enumerate()), SOON / 2)


# A thread of one's own


def test_a_serial_executor_runs_one_call_at_a_time_in_order_and_keeps_no_idle_thread():
    serial, order, names = SerialExecutor("writer-test"), [], set()

    def work(number):
        order.append(number)
        names.add(threading.current_thread().name)

    wait([serial.submit(work, number) for number in range(200)], SOON)
    assert order == list(range(200))
    assert names == {"writer-test"}
    wait_until(lambda: all(thread.name != "writer-test" for thread in threading.enumerate()), SOON)
    assert serial.submit(lambda: "again").result(SOON) == "again"
    with pytest.raises(ZeroDivisionError):
        serial.submit(lambda: 1 / 0).result(SOON)


def test_no_two_threads_of_a_serial_thread_are_at_work_at_once():
    serial, lock, problems = SerialExecutor("writer-test"), threading.Lock(), []

    def work():
        if not lock.acquire(blocking=False):
            problems.append("two at once")
        else:
            lock.release()

    def ask():
        for _ in range(100):
            serial.submit(work).result(SOON)

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert problems == []


def test_a_serial_thread_that_was_shut_down_does_what_it_had_taken_and_takes_no_more(gate):
    serial = SerialExecutor("writer-test")
    stuck, after = serial.submit(gate.wait), serial.submit(lambda: "done")
    serial.shutdown()
    with pytest.raises(RuntimeError):
        serial.submit(print)
    gate.set()
    assert (stuck.result(SOON), after.result(SOON)) == (True, "done")


def test_a_serial_executor_cancels_pending_calls_on_request(gate):
    serial = SerialExecutor("writer-test")
    stuck = serial.submit(gate.wait)
    while not stuck.running():
        time.sleep(0.005)
    after = serial.submit(print)
    serial.shutdown(cancel_futures=True)
    gate.set()
    assert stuck.result(SOON)
    with pytest.raises(CancelledError):
        after.result(SOON)


class Failure(Exception):
    pass


def fail():
    raise Failure


EXECUTORS = {
    "shared": lambda: SharedPool(2, 1, "test").share().submit,
    "daemon": lambda: DaemonExecutor(1, "test").submit,
    "serial": lambda: SerialExecutor("test").submit,
    "one thread": lambda: lambda work: on_thread("test", work),
}


@pytest.mark.parametrize("make", EXECUTORS.values(), ids=EXECUTORS)
def test_the_exception_of_a_call_is_freed_without_a_garbage_collection(make):
    gc.disable()
    try:
        submit = make()
        error = weakref.ref(submit(fail).exception(SOON))
        wait_until(lambda: error() is None)
    finally:
        gc.enable()


# Threads that may hang


def test_an_idle_thread_of_a_daemon_executor_runs_the_next_call():
    calls = DaemonExecutor(4, "test")
    # The thread may not be idle yet when the next call comes, so that another one runs that.
    wait_until(lambda: len({calls.submit(threading.get_ident).result(SOON) for _ in range(20)}) == 1, SOON)
    calls.shutdown()


def test_a_daemon_executor_keeps_no_idle_thread():
    calls = DaemonExecutor(2, "short-lived daemon", idle_seconds=0.0005)
    for number in range(300):
        assert calls.submit(lambda number=number: number).result(SOON) == number
        threading.Event().wait(0.0005)
    wait_until(lambda: all(thread.name != "short-lived daemon" for thread in threading.enumerate()), SOON)


def test_a_daemon_executor_runs_waiting_calls_in_order_when_threads_are_free(gate):
    calls, order = DaemonExecutor(1, "test"), []
    stuck = calls.submit(gate.wait)
    given_up = calls.submit(order.append, "given up")
    rest = [calls.submit(order.append, number) for number in range(9)]
    assert given_up.cancel()
    gate.set()
    wait([stuck, *rest], SOON)
    assert order == list(range(9))


def test_a_shutdown_of_a_daemon_executor_waits_for_no_call(gate):
    calls = DaemonExecutor(1, "hanging")
    futures = [calls.submit(gate.wait), calls.submit(print)]
    calls.shutdown()
    assert [type(future.exception(SOON)) for future in futures] == [EmbeddingUnavailable] * 2
    assert isinstance(calls.submit(print).exception(SOON), EmbeddingUnavailable)
    gate.set()
    wait_until(lambda: all(thread.name != "hanging" for thread in threading.enumerate()), SOON)


def test_calls_after_a_shutdown_of_a_full_pool_are_cancelled(threads, gate):
    share = threads.share()
    at_work = [share.submit(gate.wait) for _ in range(2)]
    threads.shutdown()
    with pytest.raises(CancelledError):
        share.submit(gate.wait).result(SOON)
    gate.set()
    wait(at_work, SOON)


def test_a_daemon_executor_runs_calls_while_the_callback_of_another_blocks(gate):
    calls, begun, called = DaemonExecutor(1, "test"), threading.Event(), threading.Event()

    def block(_):
        called.set()
        gate.wait(SOON)

    first = calls.submit(begun.wait, SOON)
    first.add_done_callback(block)
    begun.set()
    assert called.wait(SOON)
    assert calls.submit(lambda: 7).result(SOON) == 7
    gate.set()
    calls.shutdown()
