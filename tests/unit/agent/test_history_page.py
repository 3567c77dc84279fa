"""A page of the history ends before its differences become too large, and at the deadline."""

import hashlib
import itertools

import pytest

from memoryd_server.agent import history as pages
from memoryd_server.agent.edit_requests import HistoryQuery
from memoryd_server.agent.history import load_page
from memoryd_server.errors import VersionNotFound
from memoryd_server.sqlite.history import SqliteWriteHistory
from memoryd_server.store.history import WriteKind, WriteRecord


@pytest.fixture
def history(tmp_path):
    history = SqliteWriteHistory(
        tmp_path / "main.history.sqlite", max_age_seconds=86_400, max_bytes=2**28, now_ms=lambda: 1_000
    )
    yield history
    history.close()


def record(history, number, before, after):
    """Add a finished write to the history."""
    made = WriteRecord(
        version_id=f"v{number}",
        path="memory/a.md",
        kind=WriteKind.REPLACE_CONTENT,
        time_ms=1_000,
        caller="local",
        before=hashlib.sha256(before).digest(),
        before_bytes=len(before),
        after=hashlib.sha256(after).digest(),
        after_bytes=len(after),
    )
    history.begin(made, before, after)
    history.finish(made.version_id)


def load(history, *, limit=100, diffs=True, version_id="", stops=lambda: False, monotonic=lambda: 0.0):
    return load_page(history, HistoryQuery("", version_id, diffs, limit, None), stops, monotonic)


def ids(page):
    return [version.record.version_id for version in page.versions]


def test_a_page_has_the_newest_writes_and_says_whether_there_are_older_ones(history):
    for number in range(3):
        record(history, number, b"%d\n" % number, b"%d\n" % (number + 1))
    assert (ids(load(history, limit=2)), load(history, limit=2).has_more) == (["v2", "v1"], True)
    assert (ids(load(history, limit=3)), load(history, limit=3).has_more) == (["v2", "v1", "v0"], False)


def test_a_page_ends_when_its_differences_are_large_enough(history):
    texts = [b"\n".join(b"%d %d" % (number, line) for line in range(20_000)) for number in range(20)]
    for number in range(19):
        record(history, number, texts[number], texts[number + 1])
    page = load(history)
    size = sum(len(version.diff) for version in page.versions)
    assert page.has_more
    assert pages.MOST_PAGE_DIFF_BYTES < size <= pages.MOST_PAGE_DIFF_BYTES + pages.MOST_DIFF_BYTES
    assert all(version.is_cut for version in page.versions)
    # Without differences the page is whole.
    assert len(load(history, diffs=False).versions) == 19


def test_a_page_ends_when_large_contents_were_compared(history):
    size = pages.MOST_COMPARED_BYTES // 4
    for number in range(5):
        record(history, number, b"x\n" * (size // 2) + b"%d" % number, b"x\n" * (size // 2) + b"%d" % (number + 1))
    page = load(history)
    assert (ids(page), page.has_more) == (["v4", "v3"], True)


def test_a_page_ends_when_the_comparison_has_taken_its_time(history):
    for number in range(4):
        record(history, number, b"%d\n" % number, b"%d\n" % (number + 1))
    clock = itertools.count(step=pages.MOST_COMPARE_SECONDS / 3)
    page = load(history, monotonic=lambda: next(clock))
    assert (ids(page), page.has_more) == (["v3", "v2"], True)
    # Each page has at least one write.
    clock = itertools.count(step=2 * pages.MOST_COMPARE_SECONDS)
    assert ids(load(history, monotonic=lambda: next(clock))) == ["v3"]


def test_the_comparison_ends_at_the_deadline(history):
    for number in range(3):
        record(history, number, b"%d\n" % number, b"%d\n" % (number + 1))
    answers = iter([False, False, True])
    with pytest.raises(TimeoutError):
        load(history, stops=lambda: next(answers))


def test_a_write_whose_content_was_forgotten_has_no_differences(history):
    record(history, 0, b"secret\n", b"public\n")
    record(history, 1, b"public\n", b"other\n")
    history.forget_text(b"secret")
    newest, oldest = load(history).versions
    assert (bool(newest.diff), newest.record.is_restorable) == (True, True)
    assert (oldest.diff, oldest.record.is_restorable) == ("", False)


def test_one_write_is_found_by_its_id_and_an_unknown_one_is_not(history):
    record(history, 0, b"one\n", b"two\n")
    (version,) = load(history, version_id="v0").versions
    assert version.diff == "--- memory/a.md\n+++ memory/a.md\n@@ -1 +1 @@\n-one\n+two\n"
    with pytest.raises(VersionNotFound, match="'v1'"):
        load(history, version_id="v1")
