"""Text that MemoryAppend acknowledges is in the file at its path, for every edit of that file by another program."""

import asyncio
import fcntl
import os
from contextlib import contextmanager

import pytest

from rpc.test_append_trouble import begun
from rpc.wire import check_refused
from waiting import eventually

LOG = "memory/log.md"
TEXT = "decided to keep the cache"

pytestmark = pytest.mark.faults


@contextmanager
def locked(file):
    """Hold the lock of a file through a descriptor of our own, as another program would."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def log(home):
    return home.put(LOG, "before\n")


@pytest.fixture
def append_meanwhile(serve, home, log):
    """Sends an append that waits for the lock of the log, calls `change` and releases the lock; returns the reply."""

    async def append_meanwhile(change, **request):
        running = await serve()
        with locked(log):
            waiting = asyncio.ensure_future(running.append(TEXT, path=LOG, **request))
            await eventually((home.state_dir / "memory" / "main.appends").exists)
            await asyncio.sleep(0.1)
            assert not waiting.done()
            change()
        return running, await waiting

    return append_meanwhile


def replace(log, text="from the editor\n"):
    beside = log.with_name(".log.md.tmp")
    beside.write_text(text)
    beside.rename(log)


def move_folder(log):
    log.parent.rename(log.parent.with_name("old"))
    log.parent.mkdir()
    log.write_text("from the editor\n")


def move_folder_away(log):
    log.parent.rename(log.parent.with_name("old"))


@pytest.mark.parametrize(
    ("change", "before"),
    [
        (replace, "from the editor\n"),
        (move_folder, "from the editor\n"),
        (move_folder_away, ""),
        (os.unlink, ""),
    ],
)
@pytest.mark.parametrize("key", ["", "k"])
async def test_text_goes_to_the_file_that_replaced_the_locked_one(append_meanwhile, log, change, before, key):
    running, reply = await append_meanwhile(lambda: change(log), idempotency_key=key)
    assert log.read_text() == f"{before}{TEXT}\n"
    assert not reply.already_appended
    line = before.count("\n") + 1
    assert (reply.start_line, reply.end_line) == (line, line)
    if key:
        again = await running.append(TEXT, path=LOG, idempotency_key=key)
        assert (again.already_appended, again.start_line) == (True, line)
        assert log.read_text() == f"{before}{TEXT}\n"


async def test_text_goes_to_the_last_of_several_replacements(append_meanwhile, serve, log):
    names = [log.with_name(f"{number}.tmp") for number in range(5)]
    for name in names:
        name.write_text(f"save {name.stem}\n")

    def change():
        for name in names:
            name.rename(log)

    running, _ = await append_meanwhile(change, idempotency_key="k")
    assert log.read_text() == f"save 4\n{TEXT}\n"
    assert (await running.append(TEXT, path=LOG, idempotency_key="k")).already_appended


async def test_a_replacement_that_is_locked_too_is_waited_for(serve, home, log):
    running = await serve()
    beside = log.with_name("beside.tmp")
    beside.write_text("from the editor\n")
    with locked(beside):
        with locked(log):
            waiting = asyncio.ensure_future(running.append(TEXT, path=LOG, idempotency_key="k"))
            await eventually((home.state_dir / "memory" / "main.appends").exists)
            beside.rename(log)
        await asyncio.sleep(0.15)
        assert not waiting.done()
        assert log.read_text() == "from the editor\n"
    await waiting
    assert log.read_text() == f"from the editor\n{TEXT}\n"


async def test_a_link_in_place_of_the_locked_file_is_refused(serve, home, log):
    running = await serve()
    outside = home.root / "outside.md"
    outside.write_text("theirs\n")
    with locked(log):
        waiting = running.append(TEXT, path=LOG, idempotency_key="k")
        refused = asyncio.ensure_future(check_refused(waiting, "PERMISSION_DENIED", "PATH_NOT_ALLOWED"))
        await eventually((home.state_dir / "memory" / "main.appends").exists)
        log.unlink()
        log.symlink_to(outside)
    await refused
    assert outside.read_text() == "theirs\n"


async def test_a_file_that_is_replaced_without_end_fails_and_the_retry_writes_once(serve, home, log, monkeypatch):
    from memoryd_server.writing import memory_file  # noqa: PLC0415 -- the one place where a write can be followed by a rename

    running = await serve()
    write_all, saves = memory_file.write_all, []

    def write_and_save(fd, data):
        write_all(fd, data)
        saves.append(data)
        replace(log, f"save {len(saves)}\n")

    with monkeypatch.context() as patched:
        patched.setattr(memory_file, "write_all", write_and_save)
        call = running.append(TEXT, path=LOG, idempotency_key="k")
        found = await check_refused(call, "UNAVAILABLE", "INDEX_BUSY", retry=True, mentions="replaced")
    assert found.metadata["path"] == LOG
    assert 1 < len(saves) < 100
    assert TEXT not in log.read_text()
    assert not (await running.append(TEXT, path=LOG, idempotency_key="k")).already_appended
    assert log.read_text().count(TEXT) == 1


async def test_a_crash_before_a_save_that_moved_the_text_does_not_write_it_twice(serve, home):
    home.put(LOG, f"a new first line\n{TEXT}\nand an edit below\n")
    ledger = home.state_dir / "memory" / "main.appends"
    ledger.parent.mkdir(parents=True)
    after_crash = (home.workspace / LOG).read_text()
    ledger.write_bytes(begun(home, before="earlier\n"))
    home.put(LOG, after_crash)
    running = await serve()
    reply = await running.append(TEXT, path=LOG, idempotency_key="k")
    assert (reply.already_appended, reply.start_line, reply.end_line) == (True, 2, 2)
    assert (home.workspace / LOG).read_text() == after_crash


async def test_an_equal_line_of_the_user_is_not_taken_for_a_text_that_a_crash_lost(serve, home):
    ledger = home.state_dir / "memory" / "main.appends"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(begun(home, before=f"{TEXT}\n", copies_before=1))
    home.put(LOG, f"a new first line\n{TEXT}\n")
    running = await serve()
    reply = await running.append(TEXT, path=LOG, idempotency_key="k")
    assert (reply.already_appended, reply.start_line) == (False, 3)
    assert (home.workspace / LOG).read_text() == f"a new first line\n{TEXT}\n{TEXT}\n"


async def test_a_lost_text_of_an_earlier_build_is_written_again(serve, home):
    ledger = home.state_dir / "memory" / "main.appends"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(begun(home, before=f"{TEXT}\n", copies_before=None))
    home.put(LOG, f"a new first line\n{TEXT}\n")
    running = await serve()
    assert not (await running.append(TEXT, path=LOG, idempotency_key="k")).already_appended
    assert (home.workspace / LOG).read_text() == f"a new first line\n{TEXT}\n{TEXT}\n"
