"""`kill -9` at random moments of each kind of work: nothing lost, nothing twice, no file left, the old index serving.

Two moments of each kind, and twenty. The moments are printed, and the same in each run.
"""

import random

import pytest

from e2e.crashes import FILES, Ruin, ends, kill, note, points
from e2e.town import Questioner, client, eventually
from fake_providers import embedding_server
from memoryd.v1.sync_event_pb2 import SYNC_MODE_FULL, SYNC_PHASE_SWAPPING

pytestmark = [pytest.mark.faults, pytest.mark.slow]

NOTE_7 = {"number7x": {"memory/7/note-7.md"}}
KILLS = [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]


@pytest.fixture
def ruin(town, tmp_path):
    with embedding_server() as server:
        yield Ruin(town, server, tmp_path).prepare()


@pytest.mark.parametrize("kills", KILLS)
def test_a_first_index(ruin, kills):
    before = ruin.markdown()
    for seconds in points(kills, ruin.seconds, seed=1):
        ruin.begin_anew()
        kill(ruin.town.start(), seconds)
        ruin.check_recovery(NOTE_7, at_once=False)
    assert ruin.markdown() == before
    in_the_middle = [count for count in ruin.found_cached if 0 < count < max(ruin.found_cached)]
    assert in_the_middle or kills < 10, "no kill came in the middle: slow the provider down"


@pytest.mark.parametrize("kills", KILLS)
def test_a_sync_of_what_changed(ruin, kills):
    chance = random.Random(2)
    numbers = list(range(10, FILES))
    for turn, seconds in enumerate(points(kills, ruin.seconds, seed=2)):
        for number in chance.sample(numbers, 40):
            ruin.town.write(f"memory/{number % 8}/note-{number}.md", note(number, f"kestrel{turn}"))
        gone = numbers.pop()
        (ruin.town.memory / f"{gone % 8}" / f"note-{gone}.md").unlink()
        ruin.town.write(f"memory/new-{turn}.md", note(1000 + turn, "stork"))
        before = ruin.markdown()
        kill(ruin.town.start(), seconds)
        new = {f"number{1000 + turn}x": {f"memory/new-{turn}.md"}, f"number{gone}x": set()}
        ruin.check_recovery({**NOTE_7, **new}, at_once=True)
        assert ruin.markdown() == before


def rebuild(ruin, die):
    """Starts a rebuild under searches, lets `die` kill the daemon in it, and returns how many were answered."""
    asked = len(ruin.server.texts)
    served = ruin.town.start()
    with client(served) as connection:
        # The first sync must not be under way, or the rebuild is refused.
        eventually(lambda: not connection.status().active_sync.sync_id)
        stream = connection.sync(mode=SYNC_MODE_FULL)
        next(iter(stream))
        with Questioner(served, "number7x") as questioner:
            errors, answers = die(served, stream, questioner)
        ends(stream)
    assert errors == []
    assert 0 not in answers
    assert all("reeds" not in text for text in ruin.server.texts[asked:]), "what is cached is not paid for again"
    return len(answers)


@pytest.mark.parametrize("kills", KILLS)
def test_a_rebuild(ruin, kills):
    before = ruin.markdown()
    moments = iter(points(kills, ruin.seconds, seed=3))

    def die(served, _stream, questioner):
        return kill(served, next(moments), questioner)

    answered = 0
    for _ in range(kills):
        answered += rebuild(ruin, die)
        ruin.check_recovery(NOTE_7, at_once=True)
    assert answered
    assert ruin.markdown() == before


@pytest.mark.parametrize("kills", KILLS)
def test_a_swap(ruin, kills):
    """A swap takes milliseconds: the kill follows its announcement."""
    moments = iter(points(kills, 0.02, seed=4))

    def die(served, stream, questioner):
        assert any(event.progress.phase == SYNC_PHASE_SWAPPING for event in stream)
        return kill(served, next(moments), questioner)

    answered = 0
    for _ in range(kills):
        answered += rebuild(ruin, die)
        ruin.check_recovery(NOTE_7, at_once=True)
    assert answered
