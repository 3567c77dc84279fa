"""A sync indexes what it can, says what it cannot, heals, stops where it may, and changes nothing without need."""

import json
import os
import shutil
import subprocess

import pytest

from index_fixture import MOST_FILE_BYTES, SOUND, IndexFixture, RecordingObserver
from memoryd_server.errors import DiskFull, SyncCancelled
from memoryd_server.model import RACY_NS
from memoryd_server.sources.files import read_file
from memoryd_server.sync.progress import SyncMode, SyncPhase

LATER_NS = 10 * RACY_NS


def check_indexed(index, text, query, path="memory/a.md"):
    index.write(path, text)
    notes = RecordingObserver()
    outcome = index.sync(observer=notes)
    assert notes.errors() == {}
    assert (outcome.indexed_files, outcome.failed_files) == (1, 0)
    assert index.found(query)[:1] == [path]


@pytest.mark.parametrize(
    "text",
    [
        b"heron\x00 in the reeds\x00",
        b"\xff\xfe heron \xc3\x28",
        b"\xef\xbb\xbfheron",
        b"heron\r\nin\r\nthe reeds\r\n",
        b"heron\rin",
        b"x" * 1_000_000 + b" heron",
        b"heron " + "é".encode() * 300_000,
        ("语" * 100_000 + " heron").encode(),
        b"\n" * 50_000 + b"heron",
        b"---\ntitle: heron\n",
        b"---\ntitle: Birds\n---\nheron\n",
        b'---\ntitle: "\\ud800"\n---\nheron\n',
        b"---\nx: " + b"[" * 3000 + b"\n---\nheron\n",
        b"# heron\n" * 3000,
        b"```\nheron",
        b"heron \xed\xa0\x80",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_odd_text_is_indexed_like_any_other(opened, text):
    check_indexed(opened, text, "heron")


@pytest.mark.parametrize("text", [b"", b"\n\n", b"   ", b"\xef\xbb\xbf", b"---\na: b\n---\n"])
def test_a_file_without_text_is_indexed_without_chunks(opened, text):
    opened.write("memory/a.md", text)
    assert opened.sync().indexed_files == 1
    assert opened.paths() == ["memory/a.md"]
    assert opened.rows()[0] == []
    assert opened.sync().changed is False


def test_front_matter_is_metadata_and_not_text_but_for_the_title(opened):
    opened.write("memory/a.md", "---\ntitle: Kestrel\ntags: [a, b]\nkind: wader\n---\nheron\n")
    opened.sync()
    assert opened.found("wader") == []
    assert opened.found("kestrel") == ["memory/a.md"]
    chunks, files = opened.rows()
    assert chunks[0][2:5] == (5, 5, "heron") or chunks[0][4].startswith("heron")
    assert json.loads(files[0][4]) == {"title": "Kestrel", "tags": ["a", "b"], "kind": "wader"}


@pytest.mark.parametrize("seconds", [0, -1, 2**31, 2**33 - 1, 9_999_999_999])
def test_a_files_clock_may_say_what_it_likes(opened, seconds):
    file = opened.write("memory/a.md", "heron")
    os.utime(file, (seconds, seconds))
    opened.sync()
    assert opened.found("heron") == ["memory/a.md"]
    opened.now_ns = lambda: file.stat().st_ctime_ns + LATER_NS
    opened.sync()
    assert opened.engine().compare().plan.pending == 0


def test_one_bad_file_does_not_stop_the_others(tmp_path):
    index = IndexFixture(tmp_path, max_file_bytes=1000).open()
    index.write("memory/a.md", "heron")
    index.write("memory/b.md", "x" * 1001)
    (index.workspace / os.fsdecode(b"memory/\xff.md")).write_text("heron")
    os.mkfifo(index.workspace / "memory/fifo.md")
    (index.workspace / "memory/link.md").symlink_to("a.md")
    (index.workspace / "memory/folder.md").mkdir()
    index.write("memory/z.md", "heron")
    notes = RecordingObserver()
    outcome = index.sync(observer=notes)
    assert index.paths() == ["memory/a.md", "memory/z.md"]
    assert sorted(notes.errors()) == ["memory/\\xff.md", "memory/b.md"]
    assert "1001 bytes" in notes.errors()["memory/b.md"]
    assert (outcome.indexed_files, outcome.failed_files, outcome.files) == (2, 2, 2)
    index.close()


def fail_reads(index, *paths, error=None):
    def read(file, max_bytes):
        if file.path in paths:
            raise error or PermissionError(13, "Permission denied")
        return read_file(file, max_bytes)

    index.read_file = read


def test_an_unreadable_file_is_reported_at_each_run_and_healed(opened):
    opened.write("memory/a.md", "heron")
    opened.write("memory/b.md", "heron")
    fail_reads(opened, "memory/a.md")
    for _ in range(2):
        notes = RecordingObserver()
        outcome = opened.sync(observer=notes)
        assert notes.errors() == {"memory/a.md": "Permission denied"}
        assert outcome.failed_files == 1
        assert opened.found("heron") == ["memory/b.md"]
    assert outcome.changed is False
    opened.read_file = read_file
    opened.sync()
    assert sorted(opened.found("heron")) == ["memory/a.md", "memory/b.md"]
    assert opened.rows()[1][0][5] is None


def test_a_file_that_becomes_unreadable_is_no_longer_found_until_it_is_healed(opened):
    opened.write("memory/a.md", "heron")
    opened.sync()
    opened.write("memory/a.md", "heron again")
    fail_reads(opened, "memory/a.md")
    opened.sync()
    assert opened.found("heron") == []
    opened.read_file = read_file
    opened.sync()
    assert opened.found("again") == ["memory/a.md"]


def test_a_failing_file_that_is_touched_does_not_stay_pending(opened):
    file = opened.write("memory/a.md", "heron")
    fail_reads(opened, "memory/a.md")
    opened.sync()
    os.utime(file, (1, 1))
    assert opened.engine().compare().plan.pending == 1
    revision = opened.revision()
    opened.sync()
    assert opened.engine().compare().plan.pending == 0
    assert opened.revision() == revision


@pytest.mark.parametrize("known", [False, True])
def test_a_file_that_vanishes_between_listing_and_reading_is_gone_and_no_failure(opened, known):
    file = opened.write("memory/a.md", "heron")
    opened.write("memory/b.md", "kestrel")
    if known:
        opened.sync()
        file.write_text("heron again")

    def read(listed, max_bytes):
        file.unlink(missing_ok=True)
        return read_file(listed, max_bytes)

    opened.read_file = read
    notes = RecordingObserver()
    outcome = opened.sync(observer=notes)
    assert (notes.errors(), outcome.removed_files) == ({}, int(known))
    assert opened.paths() == ["memory/b.md"]
    assert opened.integrity() == SOUND


def test_a_file_swapped_for_a_link_after_the_listing_gives_no_byte(opened, tmp_path):
    file = opened.write("memory/a.md", "heron")
    (tmp_path / "secret.md").write_text("secret")

    def read(listed, max_bytes):
        file.unlink()
        file.symlink_to(tmp_path / "secret.md")
        return read_file(listed, max_bytes)

    opened.read_file = read
    opened.sync()
    assert opened.found("secret") == []
    assert opened.paths() == []


def settle(index):
    """Lets the clock go on, so that nothing was changed just now."""
    newest = max(file.stat().st_ctime_ns for file in index.workspace.rglob("*.md"))
    index.now_ns = lambda: newest + LATER_NS
    index.sync()


def test_a_sync_without_changes_reads_no_file_and_writes_no_row(opened):
    for number in range(20):
        opened.write(f"memory/{number}.md", f"note {number}")
    settle(opened)
    before = opened.revision(), opened.rows()
    fail_reads(opened, *[f"memory/{n}.md" for n in range(20)])
    notes = RecordingObserver()
    outcome = opened.sync(observer=notes)
    assert (outcome.changed, outcome.unchanged_files, outcome.indexed_files) == (False, 20, 0)
    assert (notes.errors(), notes.revisions) == ({}, [])
    assert (opened.revision(), opened.rows()) == before


def test_a_touched_file_is_read_once_and_not_written(opened):
    file = opened.write("memory/a.md", "heron")
    settle(opened)
    revision = opened.revision()
    os.utime(file, (1, 1))
    opened.now_ns = lambda: file.stat().st_ctime_ns + LATER_NS
    outcome = opened.sync()
    assert (outcome.changed, outcome.unchanged_files) == (False, 1)
    fail_reads(opened, "memory/a.md")
    assert opened.sync().failed_files == 0
    assert opened.revision() == revision


def test_a_file_just_synced_is_not_reported_as_waiting(opened):
    opened.write("memory/a.md", "heron")
    opened.sync()
    plan = opened.engine().compare().plan
    assert plan.pending == 0
    assert plan.needs_run
    settle(opened)
    assert not opened.engine().compare().plan.needs_run


def test_an_edit_of_the_same_size_within_the_same_tick_is_seen(opened):
    file = opened.write("memory/a.md", "heron")
    stat = file.stat()
    opened.now_ns = lambda: stat.st_mtime_ns + 1
    opened.sync()
    file.write_text("stork")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    opened.sync()
    assert opened.found("stork") == ["memory/a.md"]
    assert opened.found("heron") == []


def test_a_run_stops_between_two_files_and_keeps_what_it_had(opened):
    for number in range(30):
        opened.write(f"memory/{number:02}.md", f"note {number}")
    looks = iter(range(100))
    with pytest.raises(SyncCancelled):
        opened.sync(should_stop=lambda: next(looks) >= 12, files_per_transaction=5)
    assert len(opened.paths()) == 12
    assert opened.integrity() == SOUND
    assert opened.sync().indexed_files == 18
    assert len(opened.paths()) == 30


@pytest.mark.parametrize(("files", "per_transaction", "commits"), [(10, 100, 1), (250, 100, 3), (7, 1, 7)])
def test_files_are_committed_by_the_batch(opened, files, per_transaction, commits):
    for number in range(files):
        opened.write(f"memory/{number}.md", f"note {number}")
    notes = RecordingObserver()
    outcome = opened.sync(observer=notes, files_per_transaction=per_transaction)
    assert len(notes.revisions) == commits
    assert notes.revisions == sorted(set(notes.revisions))
    assert outcome.revision == notes.revisions[-1] == opened.revision()


@pytest.mark.slow
def test_large_files_are_committed_before_the_batch_is_full(opened):
    for number in range(4):
        opened.write(f"memory/{number}.md", "words of a note\n" * 200_000)
    notes = RecordingObserver()
    opened.sync(observer=notes)
    assert len(notes.revisions) > 1


def test_progress_only_goes_forward_and_ends_whole(opened):
    for number in range(50):
        opened.write(f"memory/{number}.md", f"note {number}")
    notes = RecordingObserver()
    opened.sync(observer=notes)
    assert notes.progresses[0].phase is SyncPhase.PLANNING
    done = [p.completed_files for p in notes.progresses]
    assert done == sorted(done)
    last = notes.progresses[-1]
    assert (last.completed_files, last.total_files, last.completed_chunks) == (50, 50, 50)


def test_a_removed_folder_takes_its_files_out_of_the_index(opened):
    for number in range(5):
        opened.write(f"memory/old/{number}.md", "heron")
    opened.write("MEMORY.md", "heron")
    opened.sync()
    shutil.rmtree(opened.workspace / "memory")
    outcome = opened.sync()
    assert (outcome.removed_files, outcome.files) == (5, 1)
    assert opened.found("heron") == ["MEMORY.md"]


def test_an_estimate_writes_nothing_and_tells_what_a_run_then_does(opened):
    for number in range(5):
        opened.write(f"memory/{number}.md", "heron")
    before = opened.revision()
    estimate = opened.engine().estimate(SyncMode.INCREMENTAL)
    assert (estimate.files, estimate.removed_files) == (5, 0)
    assert opened.revision() == before
    outcome = opened.sync()
    assert (outcome.indexed_files, outcome.chunks) == (estimate.files, estimate.chunks)
    (opened.workspace / "memory/0.md").unlink()
    assert opened.engine().estimate(SyncMode.INCREMENTAL).removed_files == 1
    assert opened.engine().estimate(SyncMode.FULL).files == 4


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", SyncMode)
def test_a_full_disk_is_named_and_the_index_still_answers(small_disk, mode):
    index = IndexFixture(small_disk).open()
    try:
        index.write("memory/a.md", "heron")
        index.sync()
        before = index.rows(), index.revision()
        for number in range(20):
            index.write(f"memory/big-{number}.md", " ".join(f"word{number}x{i}" for i in range(20_000)))
        with pytest.raises(DiskFull, match="free some space"):
            index.sync(mode)
        assert index.found("heron") == ["memory/a.md"]
        assert index.integrity() == SOUND
        assert (index.rows(), index.revision()) == before or mode is SyncMode.INCREMENTAL
        for number in range(20):
            (index.workspace / f"memory/big-{number}.md").unlink()
        index.write("memory/b.md", "kestrel")
        index.sync()
        assert index.found("kestrel") == ["memory/b.md"]
        assert "main.sqlite.rebuilding" not in index.file_names()
    finally:
        index.close()


def test_the_limit_of_a_file_is_not_taken_for_a_limit_of_lines(opened):
    check_indexed(opened, b"heron\n" * (MOST_FILE_BYTES // 600), "heron")
