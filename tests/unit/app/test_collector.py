"""Full garbage collections happen at calm moments, not during work."""

import gc
from contextlib import contextmanager

from memoryd_server.app.collector import MOST_SECONDS, OBJECTS_A_SECOND, FullCollections


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


async def test_the_more_objects_there_are_the_rarer_are_collections():
    gc.disable()
    full, now = [], [100.0]
    collections = FullCollections(monotonic=lambda: now[0])
    try:
        # The time of this process's own objects, and of 60,000 more.
        own = len(gc.get_objects()) / OBJECTS_A_SECOND
        kept = [[number] for number in range(60_000)]
        gc.collect(1)
        with recorded(full):
            now[0] += 59
            await collections.step()
            assert not full
            now[0] += min(own + 2, MOST_SECONDS)
            await collections.step()
            assert len(full) == 1
            # Not exactly the limit, because a sum of floats may be less.
            now[0] += MOST_SECONDS + 1
            await collections.step()
            assert len(full) == 1, "no object has become old"
            gc.collect(1)
            await collections.step()
            assert len(full) == 2
        assert len(kept) == 60_000
    finally:
        gc.enable()
