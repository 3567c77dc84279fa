"""A store closes the readers of other processes before its file is replaced, and reports changes of vectors to them."""

import pytest

from index_fixture import IDENTITY
from memoryd_server.sqlite.connection import file_ids
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.sqlite.vector_index import VectorIndex
from memoryd_server.store import VectorIdentity

MODEL = VectorIdentity("p", "m", "", 2, "", "")


class RecordingReaders:
    """Records the calls of a store, each with the file that is at the path at that moment."""

    is_idle = True

    def __init__(self, path):
        self._path = path
        self.calls = []
        self.changes = []

    def _files(self):
        return file_ids(self._path)

    def opened(self, path, ids):
        assert (path, ids) == (self._path, self._files())
        self.calls.append(("opened", ids))

    def close(self):
        self.calls.append(("close", self._files()))

    def release_memory(self):
        self.calls.append(("release", None))

    def apply(self, added, removed):
        self.changes.append((set(added), set(removed)))

    def reset(self):
        self.changes.append("reset")


@pytest.fixture
def readers(tmp_path):
    return RecordingReaders(tmp_path / "main.sqlite")


@pytest.fixture
def store(tmp_path, readers):
    vectors = VectorIndex(sqlite_vec=False, extension_path=None, memory_budget_bytes=1 << 20)
    store = SqliteStore(tmp_path / "main.sqlite", IDENTITY, vectors, outside=readers)
    store.open()
    yield store
    store.close()


def test_readers_may_open_an_opened_index_and_close_it_with_the_store(store, readers):
    first = readers.calls[0][1]
    store.release_memory()
    store.close()
    assert readers.calls == [("opened", first), ("release", None), ("close", first)]


def test_readers_close_the_old_file_before_a_rebuild_replaces_it(store, readers):
    first = readers.calls.pop()[1]
    with store.rebuild():
        assert readers.calls == []
    (closed, old), (opened, new) = readers.calls
    assert (closed, old, opened) == ("close", first, "opened")
    assert new != first


def test_readers_close_the_old_file_before_a_repair_replaces_it(store, readers, tmp_path):
    readers.calls.clear()
    (tmp_path / "main.sqlite").unlink()
    assert store.repair()
    (closed, old), (opened, new) = readers.calls
    assert (closed, old[0], opened) == ("close", None, "opened")
    assert None not in new


def test_readers_do_not_open_an_index_with_a_rollback_journal(tmp_path, readers):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 1 0:1 / {tmp_path} rw - nfs4 server:/share rw\n")
    store = SqliteStore(tmp_path / "main.sqlite", IDENTITY, None, mounts, outside=readers)
    store.open()
    store.close()
    assert [call for call, _ in readers.calls] == ["close"]


def test_readers_receive_the_changes_of_vectors(store, readers):
    writer = store.writer()
    writer.begin_vectors(MODEL)
    writer.put_vectors({1: bytes(8), 2: bytes(8)})
    assert readers.changes == ["reset", ({1, 2}, set())]
