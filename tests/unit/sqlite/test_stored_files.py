"""The SQLite files of a home are read for a copy without a change to them or next to them."""

import os
import shutil
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from memoryd_server.errors import IndexBusy
from memoryd_server.sqlite import (
    EmbeddingCache,
    SqliteWriteHistory,
    StoredFileUnusable,
    open_index_vectors,
    open_stored_cache,
    open_stored_history,
    stored_cache_path,
    stored_index_path,
    unused,
)
from memoryd_server.sqlite.connection import JournalMode
from memoryd_server.store import CacheKey, WriteKind, WriteRecord
from memoryd_server.system import FileLock

NOW_MS = 1_770_000_000_000
KEY = CacheKey("openai", "small", "k")


def text(number):
    return sha256(b"%d" % number).digest()


def new_cache(path, journal=JournalMode.LOG):
    cache = EmbeddingCache(path, 1_000, lambda: NOW_MS, journal)
    cache.put(KEY, {text(number): b"%08d" % number for number in range(5)})
    return cache


def new_history(path):
    history = SqliteWriteHistory(path, max_age_seconds=1e6, max_bytes=1 << 20, now_ms=lambda: NOW_MS)
    record = WriteRecord(
        version_id="v1",
        path="memory/a.md",
        kind=WriteKind.CREATE,
        time_ms=NOW_MS,
        caller="tests",
        after=sha256(b"a gull").digest(),
        after_bytes=6,
    )
    history.begin(record, None, b"a gull")
    return history


def state_of(folder):
    """The bytes and times of all files of a folder."""
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}


def killed(path, folder):
    """Copy a database with its journals to a folder, as a killed process leaves them; return its path there."""
    folder.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        if not file.name.endswith("-shm"):
            shutil.copy2(file, folder)
    return folder / path.name


def link_of(descriptor):
    """Return what a descriptor of this process refers to; empty if it was closed since it was listed."""
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return ""


def vectors_of(path):
    with open_stored_cache(path) as cache:
        return [each.hash for _, batch in cache.vectors() for each in batch]


def test_closed_files_are_read_in_place(tmp_path):
    cache, history = new_cache(tmp_path / "c.sqlite"), new_history(tmp_path / "h.sqlite")
    history.finish("v1")
    cache.close()
    history.close()
    before = state_of(tmp_path)
    assert len(vectors_of(tmp_path / "c.sqlite")) == 5
    with open_stored_history(tmp_path / "h.sqlite") as stored:
        (record,) = stored.records(1)
        assert (record.version_id, record.sequence, record.is_done, stored.next_sequence) == ("v1", 1, True, 2)
        assert stored.content(record.after).size_bytes == 6
        assert stored.content(b"none") is None
        assert list(stored.records(2)) == []
    assert state_of(tmp_path) == before


@pytest.mark.parametrize("mode", [0o700, 0o500])
def test_the_log_of_a_killed_process_is_applied_to_a_copy(tmp_path, mode):
    (tmp_path / "live").mkdir()
    cache, history = new_cache(tmp_path / "live" / "c.sqlite"), new_history(tmp_path / "live" / "h.sqlite")
    left, left_history = (killed(tmp_path / "live" / f"{name}.sqlite", tmp_path / name) for name in "ch")
    cache.close()
    history.close()
    assert left.with_name("c.sqlite-wal").stat().st_size
    before = state_of(left.parent), state_of(left_history.parent)
    left.parent.chmod(mode)
    try:
        with open_stored_cache(left) as stored:
            # A killed migration leaves no text in the temporary folder.
            (copy,) = (link for link in map(link_of, Path("/proc/self/fd").iterdir()) if "memoryd-migrate-" in link)
            assert copy.endswith(" (deleted)")
            assert stored.count == 5
        assert len(vectors_of(left)) == 5
        with open_stored_history(left_history) as stored:
            assert [record.is_done for record in stored.records(1)] == [False]
    finally:
        left.parent.chmod(0o700)
    assert (state_of(left.parent), state_of(left_history.parent)) == before


def test_files_that_a_daemon_uses_can_be_read(tmp_path):
    cache = new_cache(tmp_path / "c.sqlite")
    with open_stored_cache(tmp_path / "c.sqlite", in_use=True) as stored:
        cache.put(KEY, {text(9): b"12345678"})
        assert stored.count == 5
    assert cache.count() == 6
    cache.close()


def test_missing_and_empty_files_have_no_rows(tmp_path):
    (tmp_path / "empty.sqlite").touch()
    for name in ("missing.sqlite", "empty.sqlite"):
        assert vectors_of(tmp_path / name) == []
        with open_stored_history(tmp_path / name) as stored:
            assert (stored.count, stored.next_sequence, list(stored.records(1))) == (0, 1, [])
    assert not (tmp_path / "missing.sqlite").exists()


def test_damaged_foreign_and_newer_files_are_named(tmp_path):
    path = tmp_path / "h.sqlite"
    path.write_bytes(b"no database" * 1_000)
    with pytest.raises(StoredFileUnusable, match="it is damaged"), open_stored_history(path):
        pass
    with pytest.raises(StoredFileUnusable, match="it is damaged"), open_stored_cache(path):
        pass
    path.unlink()
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE notes(x)").fetchall()
    with pytest.raises(StoredFileUnusable, match="another program"), open_stored_history(path):
        pass
    connection.close()
    path.unlink()
    new_history(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=9").fetchall()
    connection.close()
    with pytest.raises(StoredFileUnusable, match="schema version 9"), open_stored_history(path):
        pass


def test_a_damaged_page_is_found_while_rows_are_read(tmp_path):
    path = tmp_path / "c.sqlite"
    cache = EmbeddingCache(path, 10_000, lambda: NOW_MS)
    cache.put(KEY, {text(number): b"%08d" % number * 100 for number in range(2_000)})
    cache.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * 8192)
    read = []
    with pytest.raises(StoredFileUnusable, match="not completely"), open_stored_cache(path) as stored:
        read += [each for _, batch in stored.vectors() for each in batch]


def test_a_lock_of_a_daemon_is_named_and_no_lock_file_is_created(tmp_path):
    index = tmp_path / "main.memoryd.sqlite"
    with unused(index):
        pass
    assert list(tmp_path.iterdir()) == []
    for name in ("main.memoryd.sqlite.lock", "main.sqlite.lock"):
        lock = FileLock(tmp_path / name)
        lock.acquire()
        with pytest.raises(IndexBusy, match=f"process {os.getpid()}.*stop the daemon"), unused(index):
            pass
        lock.release()
        with unused(index), pytest.raises(IndexBusy):
            lock.acquire()
        lock.release()


def test_files_of_memoryd_0_1_0_are_found(tmp_path):
    index = tmp_path / "main.memoryd.sqlite"
    assert stored_index_path(index) == index
    assert stored_cache_path(index) == tmp_path / "main.memoryd.embeddings.sqlite"
    new_history(tmp_path / "main.sqlite").close()
    new_cache(tmp_path / "main.embeddings.sqlite").close()
    assert stored_index_path(index) == tmp_path / "main.sqlite"
    assert stored_cache_path(index) == tmp_path / "main.embeddings.sqlite"
    # As after a relocation that was interrupted between the two files.
    (tmp_path / "main.embeddings.sqlite").rename(tmp_path / "main.memoryd.embeddings.sqlite")
    assert stored_cache_path(index) == tmp_path / "main.memoryd.embeddings.sqlite"


def test_an_index_without_vectors_has_none(tmp_path):
    new_history(tmp_path / "no-index.sqlite").close()
    with open_index_vectors(tmp_path / "missing", tmp_path / "missing", NOW_MS) as stored:
        assert stored.count == 0
    with (
        pytest.raises(StoredFileUnusable),
        open_index_vectors(tmp_path / "no-index.sqlite", tmp_path / "missing", NOW_MS),
    ):
        pass
