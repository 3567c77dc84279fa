"""MemoryAppend writes each entry once, whole, into the right file, and says where and since which revision."""

import asyncio
import datetime as dt
import os
import subprocess
from contextlib import contextmanager
from zoneinfo import ZoneInfo

import pytest

from rpc.wire import check_refused, paths

NOON = {"seconds": 1_770_552_000}  # 2026-02-08 12:00 UTC
LATE = {"seconds": 1_770_593_400}  # 2026-02-08 23:30 UTC


async def test_fifty_at_once_are_fifty_entries(serve, home):
    running = await serve()
    replies = await asyncio.gather(
        *(running.append(f"entry {n}\nsecond line {n}", path="memory/log.md") for n in range(50))
    )
    lines = (home.workspace / "memory" / "log.md").read_text().splitlines()
    assert len(lines) == 100
    assert sorted(r.start_line for r in replies) == list(range(1, 101, 2))
    for n, reply in enumerate(replies):
        assert lines[reply.start_line - 1 : reply.end_line] == [f"entry {n}", f"second line {n}"]
        assert not reply.already_appended
        assert reply.index_revision > 0


async def test_the_same_key_writes_once_even_at_once(serve, home):
    running = await serve()
    replies = await asyncio.gather(*(running.append("only once", idempotency_key="k1", now=NOON) for _ in range(20)))
    assert (home.workspace / "memory" / "2026-02-08.md").read_text() == "only once\n"
    assert sorted(reply.already_appended for reply in replies) == [False] + [True] * 19
    assert {(r.path, r.start_line, r.end_line) for r in replies} == {("memory/2026-02-08.md", 1, 1)}


async def test_a_key_works_across_a_restart_and_a_lost_index(serve, home):
    running = await serve()
    first = await running.append("zebra", idempotency_key="k", path="memory/log.md")
    await running.stop()
    home.store.lose_index()
    again = await serve()
    reply = await again.append("zebra", idempotency_key="k", path="memory/log.md")
    assert (reply.already_appended, reply.start_line) == (True, first.start_line)
    assert (home.workspace / "memory" / "log.md").read_text() == "zebra\n"
    assert paths(await again.search("zebra", min_revision=reply.index_revision)) == ["memory/log.md"]


@pytest.mark.parametrize(
    "other", [{"text": "other"}, {"path": "memory/other.md"}, {"heading": "Other"}, {"text": "text", "path": ""}]
)
async def test_a_key_used_again_for_something_else_is_refused(serve, home, other):
    running = await serve()
    request = {"text": "text", "path": "memory/log.md", "idempotency_key": "k"}
    await running.append(**request)
    await check_refused(
        running.append(**{**request, **other}), "INVALID_ARGUMENT", "INVALID_REQUEST", violations={"idempotency_key"}
    )
    assert (home.workspace / "memory" / "log.md").read_text() == "text\n"


async def test_a_retry_after_midnight_is_the_same_request(serve, home):
    running = await serve()
    await running.append("text", idempotency_key="k", now=LATE, time_zone="UTC")
    reply = await running.append("text", idempotency_key="k", now={"seconds": LATE["seconds"] + 3_600}, time_zone="UTC")
    assert (reply.already_appended, reply.path) == (True, "memory/2026-02-08.md")


async def test_calls_without_a_key_are_not_protected(serve, home):
    running = await serve()
    for _ in range(2):
        assert not (await running.append("twice", path="memory/log.md")).already_appended
    assert (home.workspace / "memory" / "log.md").read_text() == "twice\ntwice\n"


@pytest.mark.parametrize(
    ("setting", "time_zone", "now", "day"),
    [
        ("UTC", "", NOON, "2026-02-08"),
        ("UTC", "Pacific/Kiritimati", NOON, "2026-02-09"),
        ("Asia/Tokyo", "", LATE, "2026-02-09"),
        ("Asia/Tokyo", "America/New_York", LATE, "2026-02-08"),
    ],
)
async def test_the_log_is_that_of_the_caller_s_day(serve, setting, time_zone, now, day):
    running = await serve({"agents": {"defaults": {"userTimezone": setting}}})
    assert (await running.append("text", time_zone=time_zone, now=now)).path == f"memory/{day}.md"


async def test_without_a_clock_the_daemon_s_day_counts(serve):
    running = await serve()
    days = {dt.datetime.now(ZoneInfo("UTC")).date()}
    path = (await running.append("text", time_zone="UTC")).path
    days.add(dt.datetime.now(ZoneInfo("UTC")).date())
    assert path in {f"memory/{day}.md" for day in days}


@pytest.mark.parametrize(
    ("now", "time_zone"),
    [(253_402_300_799, "Pacific/Kiritimati"), (-62_135_596_800, "America/New_York"), (10**15, "UTC")],
)
async def test_a_time_without_a_date_is_named(serve, now, time_zone):
    running = await serve()
    await check_refused(
        running.append("text", now={"seconds": now}, time_zone=time_zone),
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
        violations={"now"},
    )


@pytest.mark.parametrize(
    ("before", "request_", "after", "lines"),
    [
        (None, {}, "text\n", (1, 1)),
        ("", {}, "text\n", (1, 1)),
        ("old", {}, "old\ntext\n", (2, 2)),
        ("old\n", {}, "old\ntext\n", (2, 2)),
        ("old\n", {"text": "two\nlines\n"}, "old\ntwo\nlines\n", (2, 3)),
        (None, {"heading": "Title"}, "## Title\n\ntext\n", (1, 3)),
        ("old", {"heading": " Title "}, "old\n\n## Title\n\ntext\n", (3, 5)),
        ("old\n", {"heading": "Title"}, "old\n\n## Title\n\ntext\n", (3, 5)),
        ("old\n\n", {"heading": "Title"}, "old\n\n## Title\n\ntext\n", (3, 5)),
    ],
)
async def test_an_append_is_written_below_the_existing_text(serve, home, *, before, request_, after, lines):
    if before is not None:
        home.put("MEMORY.md", before)
    running = await serve()
    reply = await running.append(**{"text": "text", "path": "MEMORY.md", **request_})
    assert (home.workspace / "MEMORY.md").read_text() == after
    assert (reply.path, reply.start_line, reply.end_line) == ("MEMORY.md", *lines)
    shown = await running.get("MEMORY.md", start_line=lines[0], line_count=lines[1] - lines[0] + 1)
    assert shown.text == "\n".join(after.split("\n")[lines[0] - 1 : lines[1]])


async def test_appended_text_is_found_at_the_revision_returned(serve):
    running = await serve()
    for word in ("zebra", "lion", "walrus"):
        reply = await running.append(f"a {word} was seen", path=f"memory/deep/er/{word}.md")
        answer = await running.search(word, min_revision=reply.index_revision)
        assert paths(answer) == [f"memory/deep/er/{word}.md"]
        assert answer.info.index_revision >= reply.index_revision


async def test_the_largest_text_is_taken(serve, home):
    text = "é" * (128 * 1024)
    await (await serve()).append(text, path="memory/large.md")
    assert (home.workspace / "memory" / "large.md").read_text() == text + "\n"


async def test_a_file_of_an_extra_path_is_not_written(serve, home):
    shared = home.root / "shared"
    shared.mkdir()
    (shared / "team.md").write_text("theirs")
    running = await serve({"agents": {"defaults": {"memorySearch": {"extraPaths": [str(shared)]}}}})
    for path in ("../shared/team.md", str(shared / "team.md")):
        await check_refused(running.append("mine", path=path), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")
    assert (shared / "team.md").read_text() == "theirs"


@pytest.mark.folder_only("documents in a database need no workspace")
async def test_a_workspace_that_does_not_exist_is_not_made(serve, home):
    running = await serve(workspace=str(home.root / "absent"))
    missing = f"{home.root / 'absent'} does not exist; create it"
    await check_refused(running.append("text"), "NOT_FOUND", "FILE_NOT_FOUND", mentions=missing)
    assert not (home.root / "absent").exists()


@contextmanager
def mounted(folder, size):
    """An empty file system of its own over `folder`, gone afterwards."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting needs root's privileges")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def read_only(home):
    """The workspace mounted read-only, with one file in it."""
    with mounted(home.workspace, "1m"):
        home.put("memory/old.md", "old\n")
        subprocess.run(["mount", "-o", "remount,ro", str(home.workspace)], check=True)
        yield home


@pytest.fixture
def tiny(home):
    """The workspace on a file system that is soon full."""
    with mounted(home.workspace, "64k"):
        yield home


@pytest.mark.folder_only("documents in a database need no workspace")
@pytest.mark.parametrize("path", ["memory/old.md", "memory/new.md", "memory/new/folder.md", ""])
async def test_a_read_only_workspace_is_named(serve, read_only, path):
    running = await serve()
    await running.sync()
    await check_refused(running.append("text", path=path), "FAILED_PRECONDITION", "WORKSPACE_READ_ONLY")
    await check_refused(
        running.append("text", path=path, idempotency_key="k"), "FAILED_PRECONDITION", "WORKSPACE_READ_ONLY"
    )
    assert (await running.get("memory/old.md")).text == "old\n"


@pytest.mark.folder_only("documents in a database need no workspace")
async def test_a_full_disk_is_named_and_leaves_nothing_behind(serve, tiny):
    running = await serve()
    await running.append("kept", path="memory/log.md")
    full = running.append("x" * 200_000, path="memory/log.md", idempotency_key="k")
    await check_refused(full, "RESOURCE_EXHAUSTED", "DISK_FULL")
    assert (tiny.workspace / "memory" / "log.md").read_text() == "kept\n"
    await running.append("kept too", path="memory/log.md")
