"""Full garbage collections happen at calm moments, not during work."""

import gc
from contextlib import contextmanager

from memoryd_server.app.collector import MOST_SECONDS, FullCollections


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


async def test_few_objects_are_collected_and_many_only_after_a_long_time():
    gc.disable()
    full, now = [], [100.0]
    collections = FullCollections(most_objects=0, monotonic=lambda: now[0])
    try:
        with recorded(full):
            gc.collect(1)
            await collections.step()
            assert not full
            now[0] += MOST_SECONDS
            await collections.step()
            assert len(full) == 1
            collections.most_objects = 10**9
            await collections.step()
            assert len(full) == 1, "no object has become old"
            gc.collect(1)
            await collections.step()
            assert len(full) == 2
            collections.most_objects = 0
            gc.collect(1)
            await collections.step()
            assert len(full) == 2
    finally:
        gc.enable()
