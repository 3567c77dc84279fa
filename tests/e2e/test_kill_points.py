"""`kill -9` at random moments of each kind of work: nothing lost, nothing twice, no file left, the old index serving.

Eight moments of each kind in the long tier, and twenty with `make faults`. The moments are printed, and the same in
each run.
"""

import random

import pytest

from e2e.crash_fixture import FILES, CrashFixture, ends, kill, note, points
from e2e.daemon_fixture import SearchLoop, client
from fake_providers import embedding_server
from memoryd.v1.sync_event_pb2 import SYNC_MODE_FULL, SYNC_PHASE_SWAPPING
from waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

NOTE_7 = {"number7x": {"memory/7/note-7.md"}}
KILLS = [8, pytest.param(20, marks=pytest.mark.all_kills)]


@pytest.fixture
def crash(daemons, tmp_path):
    with embedding_server() as server:
        yield CrashFixture(daemons, server, tmp_path).prepare()


@pytest.mark.parametrize("kills", KILLS)
def test_a_first_index(crash, kills):
    before = crash.markdown()
    for seconds in points(kills, crash.seconds, seed=1):
        crash.delete_state()
        kill(crash.daemons.start(), seconds)
        crash.check_recovery(NOTE_7, at_once=False)
    assert crash.markdown() == before
    in_the_middle = [count for count in crash.found_cached if 0 < count < max(crash.found_cached)]
    assert in_the_middle, "no kill came in the middle: slow the provider down"


@pytest.mark.parametrize("kills", KILLS)
def test_a_sync_of_what_changed(crash, kills):
    chance = random.Random(2)
    numbers = list(range(10, FILES))
    for turn, seconds in enumerate(points(kills, crash.seconds, seed=2)):
        for number in chance.sample(numbers, 40):
            crash.daemons.write(f"memory/{number % 8}/note-{number}.md", note(number, f"kestrel{turn}"))
        gone = numbers.pop()
        (crash.daemons.memory / f"{gone % 8}" / f"note-{gone}.md").unlink()
        crash.daemons.write(f"memory/new-{turn}.md", note(1000 + turn, "stork"))
        before = crash.markdown()
        kill(crash.daemons.start(), seconds)
        new = {f"number{1000 + turn}x": {f"memory/new-{turn}.md"}, f"number{gone}x": set()}
        crash.check_recovery({**NOTE_7, **new}, at_once=True)
        assert crash.markdown() == before


def rebuild(crash, die):
    """Starts a rebuild under searches, lets `die` kill the daemon in it, and returns how many were answered."""
    asked = len(crash.server.texts)
    served = crash.daemons.start()
    with client(served) as connection:
        # The first sync must not be under way, or the rebuild is refused.
        wait_until(lambda: not connection.status().active_sync.sync_id)
        stream = connection.sync(mode=SYNC_MODE_FULL)
        next(iter(stream))
        with SearchLoop(served, "number7x") as searches:
            errors, answers = die(served, stream, searches)
        ends(stream)
    assert errors == []
    assert 0 not in answers
    assert all("reeds" not in text for text in crash.server.texts[asked:]), "what is cached is not paid for again"
    return len(answers)


@pytest.mark.parametrize("kills", KILLS)
def test_a_rebuild(crash, kills):
    before = crash.markdown()
    moments = iter(points(kills, crash.seconds, seed=3))

    def die(served, _stream, searches):
        return kill(served, next(moments), searches)

    answered = 0
    for _ in range(kills):
        answered += rebuild(crash, die)
        crash.check_recovery(NOTE_7, at_once=True)
    assert answered
    assert crash.markdown() == before


@pytest.mark.parametrize("kills", KILLS)
def test_a_swap(crash, kills):
    """A swap takes milliseconds: the kill follows its announcement."""
    moments = iter(points(kills, 0.02, seed=4))

    def die(served, stream, searches):
        assert any(event.progress.phase == SYNC_PHASE_SWAPPING for event in stream)
        return kill(served, next(moments), searches)

    answered = 0
    for _ in range(kills):
        answered += rebuild(crash, die)
        crash.check_recovery(NOTE_7, at_once=True)
    assert answered
