"""Full garbage collections happen at calm moments, not during work."""

import gc
import weakref
from contextlib import contextmanager

from memoryd_server.app.collector import CLOSED_AGENTS, MOST_SECONDS, FullCollections


@contextmanager
def recorded(full):
    """Add the full collections to the list `full` until the block ends."""

    def record(phase, info):
        if phase == "stop" and info["generation"] == 2:
            full.append(info)

    gc.callbacks.append(record)
    try:
        yield
    finally:
        gc.callbacks.remove(record)


async def test_work_that_makes_many_objects_causes_no_full_collection():
    full = []
    collections = FullCollections()
    collections.start()
    try:
        with recorded(full):
            kept = [[number] for number in range(300_000)]
        assert (len(kept), full) == (300_000, [])
        assert gc.get_freeze_count()
    finally:
        await collections.stop()
    assert gc.get_threshold()[2] < 1_000
    assert not gc.get_freeze_count()


async def test_the_more_objects_are_in_use_the_rarer_are_collections():
    gc.disable()
    full, now = [], [100.0]
    collections = FullCollections(monotonic=lambda: now[0])
    collections.start()
    try:
        kept = [[number] for number in range(60_000)]
        gc.collect(1)
        await collections.step()
        gc.collect(1)
        with recorded(full):
            now[0] += 59
            await collections.step()
            assert not full
            # The rest is for objects of the test's own process.
            now[0] += 6
            await collections.step()
            assert len(full) == 1
            now[0] += MOST_SECONDS
            await collections.step()
            assert len(full) == 1, "no object has become old"
            gc.collect(1)
            await collections.step()
            assert len(full) == 2
        assert len(kept) == 60_000
    finally:
        await collections.stop()
        gc.enable()


class Cycle:
    """An object that only a collection frees."""

    def __init__(self):
        self.itself = self


async def test_garbage_does_not_delay_its_collection():
    gc.disable()
    now = [100.0]
    collections = FullCollections(monotonic=lambda: now[0])
    collections.start()
    try:
        kept = [[number] for number in range(20_000)]
        gc.collect(1)
        await collections.step()
        garbage = [Cycle() for _ in range(200_000)]
        last = weakref.ref(garbage[-1])
        gc.collect(1)
        del garbage
        now[0] += 19
        await collections.step()
        assert last() is not None
        now[0] += 10
        await collections.step()
        assert last() is None
        assert len(kept) == 20_000
    finally:
        await collections.stop()
        gc.enable()


async def test_closed_agents_are_freed_without_a_wait():
    gc.disable()
    full, closed = [], [0]
    collections = FullCollections(monotonic=lambda: 100.0, closed_agents=lambda: closed[0])
    collections.start()
    try:
        with recorded(full):
            closed[0] = CLOSED_AGENTS
            await collections.step()
            assert len(full) == 1
            closed[0] += CLOSED_AGENTS - 1
            kept = [[number] for number in range(60_000)]
            gc.collect(1)
            await collections.step()
            assert (len(kept), len(full)) == (60_000, 1)
    finally:
        await collections.stop()
        gc.enable()
