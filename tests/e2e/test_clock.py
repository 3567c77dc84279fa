"""The wall clock is set back, or far ahead, under a daemon at work: nothing is lost, refused or repeated for it."""

import shutil

import pytest

from e2e.daemon_fixture import client, last_event, paths
from e2e.shifted_clock import Clock
from memoryd.messages import IndexState
from waiting import wait_until

pytestmark = pytest.mark.faults

DAY = 86_400


@pytest.fixture
def clock(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("the clock is moved by a C file, and there is no compiler")
    return Clock(tmp_path)


@pytest.fixture
def served(daemons, clock):
    daemons.configure(debounce_ms=50, reconcile_seconds=1)
    daemons.write("memory/a.md", "the first heron\n")
    return daemons.start(within=clock.within)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [-2 * DAY, -40 * 365 * DAY, 30 * DAY])
def test_changes_are_found_and_revisions_rise_with_any_clock(daemons, clock, served, shift):
    with client(served) as connection:
        wait_until(lambda: paths(connection, "heron") == ["memory/a.md"])
        revisions = [last_event(connection).index_revision]
        for number, moved in enumerate([shift, 0, shift]):
            clock.set(moved)
            assert abs(clock.seen(connection) - moved) < 60
            word = f"kestrel{number}x"
            daemons.write(f"memory/b{number}.md", f"a {word} hovers\n")
            # By its event or by a pass, and not by a call.
            wait_until(lambda w=word, n=number: paths(connection, w) == [f"memory/b{n}.md"])
            (daemons.memory / "a.md").write_text(f"the heron of turn{number}x\n")
            wait_until(lambda n=number: paths(connection, f"turn{n}x") == ["memory/a.md"])
            (daemons.memory / f"b{number}.md").unlink()
            wait_until(lambda w=word: paths(connection, w) == [])
            wait_until(lambda: not connection.status().index.dirty)
            status = connection.status()
            assert IndexState.Name(status.index.state) == "INDEX_STATE_READY"
            assert not status.degradations
            revisions.append(last_event(connection).index_revision)
        assert revisions == sorted(revisions)
        assert len(set(revisions)) == len(revisions)


@pytest.mark.slow
def test_appends_go_to_the_day_of_the_clock_and_a_repeated_one_is_known(daemons, clock, served):
    with client(served) as connection:
        first = connection.append(text="an otter", idempotency_key="one")
        clock.set(-2 * DAY)
        again = connection.append(text="an otter", idempotency_key="one")
        assert (again.path, again.end_line) == (first.path, first.end_line)
        other = connection.append(text="a stork", idempotency_key="two")
        days = {f"memory/{clock.today(-2 * DAY + seconds)}.md" for seconds in (-60, 0)}
        assert other.path in days
    files = [file.read_text() for file in daemons.memory.glob("20*.md")]
    assert sum(text.count("an otter") for text in files) == 1


@pytest.mark.slow
def test_an_index_lost_while_the_clock_was_set_back_begins_above_the_old_one(daemons, clock, served):
    """A revision that falls would make every caller wait who wants to see what it has written."""
    with client(served) as connection:
        before = last_event(connection).index_revision
        clock.set(-2 * DAY)
        for file in daemons.index.parent.glob("main.memoryd.sqlite*"):
            if not file.name.endswith(".lock"):
                file.unlink()
        wait_until(lambda: connection.status().index.revision > before)
        wait_until(lambda: paths(connection, "heron") == ["memory/a.md"])
