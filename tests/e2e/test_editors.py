"""However an editor saves, the final content is found, and nothing else."""

import shutil
import threading
import time

import pytest

from e2e.daemon_fixture import client, last_event, paths
from editors import SAVES
from memoryd.messages import FILE_STATE_GONE
from waiting import wait_until


@pytest.fixture
def served(daemons):
    daemons.write("memory/a.md", "the first heron\n")
    served = daemons.start()
    with client(served) as connection:
        wait_until(lambda: paths(connection, "heron") == ["memory/a.md"])
    return served


def check_found(served, found, *, gone=()):
    """Each query of `found` gives its paths in the end, without a sync being asked for, and those of `gone` nothing."""
    with client(served) as connection:
        for query, expected in found.items():
            wait_until(lambda q=query, e=expected: sorted(paths(connection, q)) == e)
        for query in gone:
            wait_until(lambda q=query: paths(connection, q) == [])
        # A search hides what is gone at once; the index lets go of it with the next sync.
        wait_until(lambda: FILE_STATE_GONE not in [file.state for file in connection.list_files().files])
        files = [file.path for file in connection.list_files().files]
    assert [path for path in files if not path.endswith(".md") or "/." in path] == []
    return files


@pytest.mark.parametrize(
    "save",
    SAVES,
    ids=lambda s: s.__name__,
)
def test_the_final_content_of_a_save_is_found(daemons, served, save):
    file = daemons.memory / "a.md"
    save(file, "a second kestrel\n")
    check_found(served, {"kestrel": ["memory/a.md"]}, gone=["heron"])
    save(file, "a third osprey\n")
    assert check_found(served, {"osprey": ["memory/a.md"]}, gone=["kestrel"]) == ["memory/a.md"]


def test_files_renamed_in_out_and_within_are_followed(daemons, served, tmp_path):
    daemons.write("memory/in.tmp", "kestrel").rename(daemons.memory / "in.md")
    (daemons.memory / "a.md").rename(daemons.memory / "within.md")
    check_found(served, {"kestrel": ["memory/in.md"], "heron": ["memory/within.md"]})
    (daemons.memory / "within.md").rename(tmp_path / "out.md")
    (daemons.memory / "in.md").rename(daemons.memory / "in.txt")
    assert check_found(served, {}, gone=["kestrel", "heron"]) == []


@pytest.mark.slow
def test_folders_moved_in_within_and_out_are_followed(daemons, served, tmp_path):
    outside = tmp_path / "project"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "k.md").write_text("kestrel")
    outside.rename(daemons.memory / "project")
    check_found(served, {"kestrel": ["memory/project/deep/k.md"]})
    (daemons.memory / "project").rename(daemons.memory / "renamed")
    check_found(served, {"kestrel": ["memory/renamed/deep/k.md"]})
    daemons.write("memory/renamed/deep/new.md", "osprey")
    check_found(served, {"osprey": ["memory/renamed/deep/new.md"]})
    (daemons.memory / "renamed").rename(tmp_path / "gone")
    check_found(served, {}, gone=["kestrel", "osprey"])


@pytest.mark.slow
def test_a_folder_replaced_by_another_is_watched_again(daemons, served):
    for word in ("kestrel", "osprey"):
        shutil.rmtree(daemons.memory)
        daemons.write("memory/new/b.md", word)
        check_found(served, {word: ["memory/new/b.md"]}, gone=["heron"])


@pytest.mark.slow
def test_reading_the_files_starts_no_sync(daemons, served):
    with client(served) as connection:
        last_event(connection)
        wait_until(lambda: not connection.status().active_sync.sync_id)
        before = len(daemons.events("complete-sync"))
        for _ in range(20):
            (daemons.memory / "a.md").read_text()
            list(daemons.memory.iterdir())
        daemons.write("memory/ignored.tmp", "x")
        daemons.write("memory/last.md", "kestrel")
        wait_until(lambda: paths(connection, "kestrel"))
    assert len(daemons.events("complete-sync")) == before + 1


@pytest.mark.slow
def test_a_change_is_found_without_a_watcher_within_the_reconcile_interval(daemons):
    daemons.configure(watch=False, reconcile_seconds=1)
    daemons.write("memory/a.md", "heron")
    served = daemons.start()
    with client(served) as connection:
        wait_until(lambda: paths(connection, "heron"))
        daemons.write("memory/b.md", "kestrel")
        wait_until(lambda: len(daemons.events("complete-sync")) > 1)
        assert paths(connection, "kestrel") == ["memory/b.md"]


@pytest.mark.slow
def test_a_file_that_never_rests_does_not_keep_a_sync_from_ending(daemons):
    for number in range(300):
        daemons.write(f"memory/{number}.md", f"note {number}")
    daemons.write("memory/busy.md", "the first heron\n")
    served = daemons.start()
    stop = threading.Event()

    def append():
        while not stop.wait(0.02):
            with (daemons.memory / "busy.md").open("a") as file:
                file.write("one more heron\n")

    writer = threading.Thread(target=append)
    writer.start()
    try:
        with client(served) as connection:
            for _ in range(3):
                began = time.monotonic()
                assert last_event(connection).failed_files == 0
                assert time.monotonic() - began < 10
                assert paths(connection, "heron") == ["memory/busy.md"]
            passes = len(daemons.events("complete-sync"))
            # Under a steady stream the debounce is cut short: the index follows all the same.
            wait_until(lambda: len(daemons.events("complete-sync")) > passes + 1)
    finally:
        stop.set()
        writer.join()


@pytest.mark.slow
def test_a_storm_of_ten_thousand_files_in_new_folders_is_found_in_few_passes(daemons, served):
    before = len(daemons.events("complete-sync"))
    for number in range(10_000):
        daemons.write(f"memory/storm/{number % 200}/{number % 7}/note-{number}.md", f"kestrel number{number}x\n")
    with client(served) as connection:
        wait_until(
            lambda: connection.status(timeout=30).index.pending_files == 0 and paths(connection, "number9999x"), 100
        )
        for number in (0, 1, 777, 5000, 9999):
            assert len(paths(connection, f"number{number}x")) == 1, number
        wait_until(lambda: not connection.status(timeout=30).index.dirty)
    assert len(daemons.events("complete-sync")) - before < 30
