"""Maintenance between syncs, without a call."""

import subprocess
import sys
import time

import pytest

from rpc.wire import paths
from waiting import eventually

WORD = "xylophonographer"

READ_UNTIL_CLOSED = """
import sqlite3, sys
index = sqlite3.connect(sys.argv[1])
index.execute("BEGIN")
index.execute("SELECT count(*) FROM files").fetchone()
print("reading", flush=True)
sys.stdin.read()
"""


def stored(home):
    """Return where the word is stored."""
    return home.store.places_of(WORD)


@pytest.mark.slow
async def test_words_of_a_deleted_file_vanish_from_the_disk_by_themselves(home, serve):
    home.write(secret=f"the {WORD} lives here", other="nothing of note")
    settings = {
        "memoryd": {"reconcileSeconds": 1},
        "agents": {"defaults": {"memorySearch": {"sync": {"watch": False}}}},
    }
    daemon = await serve(settings, background=True)
    await daemon.synced()
    assert (await daemon.search(WORD)).results

    assert stored(home)
    (home.workspace / "memory" / "secret.md").unlink()
    await daemon.synced()
    await eventually(lambda: not stored(home))
    assert not (await daemon.search(WORD)).results


@pytest.mark.parametrize("change", ["deleted", "edited"])
async def test_words_of_a_deleted_file_are_not_on_the_disk_after_a_stop(home, serve, change):
    home.write(secret=f"the {WORD} lives here", other="nothing of note")
    daemon = await serve()
    await daemon.synced()
    if change == "deleted":
        (home.workspace / "memory" / "secret.md").unlink()
    else:
        home.write(secret="nobody lives here")
    await daemon.synced()
    # PostgreSQL shows no deleted rows, to a superuser either.
    assert bool(stored(home)) is home.store.is_sqlite
    await daemon.stop()
    assert stored(home) == []
    again = await serve()
    assert paths(await again.search("nothing of note")) == ["memory/other.md"]


@pytest.mark.sqlite_only("another program reads the file of the index")
@pytest.mark.faults
async def test_a_program_that_reads_the_index_delays_a_stop_by_little(home, serve):
    home.write(secret=f"the {WORD} lives here", other="nothing of note")
    daemon = await serve()
    await daemon.synced()
    with index_reader(home) as reader:
        assert reader.stdout.readline() == b"reading\n"
        (home.workspace / "memory" / "secret.md").unlink()
        await daemon.synced()
        began = time.monotonic()
        await daemon.stop()
        assert time.monotonic() - began < 4
        assert stored(home)
        reader.stdin.close()
    # What could not be overwritten is overwritten at the next opportunity.
    await (await serve()).stop()
    assert stored(home) == []


def index_reader(home):
    # A process of its own: SQLite's locks do not exclude another SQLite library of the same process.
    command = [sys.executable, "-c", READ_UNTIL_CLOSED, str(home.state_dir / "memory" / "main.memoryd.sqlite")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
