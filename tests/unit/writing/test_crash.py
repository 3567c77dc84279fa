"""What `kill -9` leaves behind, and what a retry makes of it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults

LOG = "memory/2026-02-08.md"
TEXT = "- decided to keep the cache\n- and to name it"
STEPS = ("ledger", "middle", "written")


def crash(fixture, step, before):
    if before:
        fixture.file(LOG).parent.mkdir(exist_ok=True)
        fixture.file(LOG).write_bytes(before)
    assert fixture.start(LOG, "k", TEXT, step=step).wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("before", [b"", b"earlier\n", b"no newline"])
@pytest.mark.parametrize("step", STEPS)
def test_a_retry_after_a_crash_makes_exactly_one_entry(fixture, step, before):
    crash(fixture, step, before)
    answer = fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    lead = b"\n" if before == b"no newline" else b""
    assert fixture.file(LOG).read_bytes() == before + lead + TEXT.encode() + b"\n"
    assert b"\n".join(fixture.lines(LOG, answer)) == TEXT.encode()
    # What a crash cut short is completed before anything else.
    assert answer.already_appended == (step != "ledger")


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_twice_at_the_same_step_still_makes_one_entry(fixture, step):
    crash(fixture, step, b"earlier\n")
    crash(fixture, step, b"")
    fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_text().count(TEXT) == 1


@pytest.mark.parametrize("step", STEPS)
def test_another_append_between_crash_and_retry_is_kept(fixture, step):
    crash(fixture, step, b"earlier\n")
    appender = fixture.appender()
    appender.append("between", path=LOG)
    for _ in range(2):
        appender.append(TEXT, path=LOG, idempotency_key="k")
    text = fixture.file(LOG).read_text()
    assert (text.count(TEXT), text.count("between\n")) == (1, 1)


def test_the_same_text_under_another_key_is_not_taken_for_the_lost_one(fixture):
    crash(fixture, "ledger", b"earlier\n")
    appender = fixture.appender()
    appender.append(TEXT, path=LOG, idempotency_key="other")
    assert not appender.append(TEXT, path=LOG, idempotency_key="k").already_appended
    assert fixture.file(LOG).read_text().count(TEXT) == 2


def test_an_editors_bytes_after_a_torn_block_are_kept(fixture):
    crash(fixture, "middle", b"earlier\n")
    with fixture.file(LOG).open("ab") as file:
        file.write(b"by hand\n")
    torn = fixture.file(LOG).read_bytes()
    fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_bytes() == torn + TEXT.encode() + b"\n"


def lose_the_draft(fixture):
    """As a power cut may: what is left of the block is in the file alone."""
    fixture.ledger.with_name(fixture.ledger.name + ".block").write_bytes(b"")


def test_a_fragment_is_reported_until_its_sender_repeats_the_append(fixture):
    crash(fixture, "middle", b"earlier\n")
    lose_the_draft(fixture)
    torn = fixture.file(LOG).read_bytes()
    appender = fixture.appender()
    appender.recover()
    assert fixture.file(LOG).read_bytes() == torn
    (issue,) = appender.issues()
    assert f"{LOG}, line 2" in issue
    appender.append(TEXT, path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_text() == f"earlier\n{TEXT}\n"
    assert appender.issues() == ()


def test_a_fragment_stays_where_something_else_was_appended_first_and_is_still_reported(fixture):
    crash(fixture, "middle", b"earlier\n")
    lose_the_draft(fixture)
    torn = fixture.file(LOG).read_text()
    appender = fixture.appender()
    appender.append("between", path=LOG)
    appender.append(TEXT, path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_text() == f"{torn}\nbetween\n{TEXT}\n"
    assert len(appender.issues()) == 1


def test_a_recovery_makes_no_file_and_no_ledger(fixture):
    fixture.appender().recover()
    assert not fixture.ledger.exists()
    crash(fixture, "written", b"earlier\n")
    fixture.file(LOG).unlink()
    fixture.appender().recover()
    assert not fixture.file(LOG).exists()
    assert [file.name for file in fixture.ledger.parent.iterdir()] == [fixture.ledger.name]


def test_a_workspace_that_is_away_does_not_stop_the_recovery(fixture):
    crash(fixture, "middle", b"earlier\n")
    away = fixture.workspace.rename(fixture.workspace.with_name("away"))
    fixture.appender().recover()
    away.rename(fixture.workspace)
    fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_text() == f"earlier\n{TEXT}\n"


def test_a_file_removed_after_the_crash_is_created_again(fixture):
    crash(fixture, "written", b"earlier\n")
    fixture.file(LOG).unlink()
    fixture.appender().append(TEXT, path=LOG, idempotency_key="k")
    assert fixture.file(LOG).read_text() == TEXT + "\n"


@pytest.fixture
def small_disk(fixture):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", fixture.workspace], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield fixture.workspace
    subprocess.run(["umount", fixture.workspace], check=True)


def test_a_full_disk_leaves_no_half_entry(fixture, small_disk: Path):
    from memoryd_server.errors import DiskFull  # noqa: PLC0415 -- only where a disk can be made

    appender = fixture.appender()
    appender.append("before", path="MEMORY.md")
    with pytest.raises(DiskFull):
        appender.append("x" * 200_000, path="MEMORY.md", idempotency_key="k")
    assert fixture.file("MEMORY.md").read_text() == "before\n"
    assert os.statvfs(small_disk).f_bavail > 0
