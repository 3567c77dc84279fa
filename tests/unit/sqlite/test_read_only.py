"""With a read-only state directory the index is searched as it is; writing resumes when the directory is writable."""

import shutil

import pytest

from disks import unwritable
from index_fixture import SOUND
from memoryd_server.errors import IndexBusy, IndexReadOnly
from memoryd_server.model import DegradationKind
from memoryd_server.sqlite import opening
from memoryd_server.sync.progress import SyncMode
from memoryd_server.system import FileLock


@pytest.fixture
def filled(index):
    for number in range(20):
        index.write(f"memory/n{number}.md", f"heron number{number}x")
    index.open().sync()
    index.close()
    return index


def check_reads(index):
    assert index.found("number7x") == ["memory/n7.md"]
    (impairment,) = index.store.degradations()
    assert impairment.kind is DegradationKind.INDEX_IMPAIRED
    assert "cannot be written" in impairment.reason
    for mode in SyncMode:
        with pytest.raises(IndexReadOnly, match="make it writable"):
            index.sync(mode)
    assert not index.store.has_deleted_text
    assert index.found("number8x") == ["memory/n8.md"]


def test_an_index_that_was_closed_answers(filled):
    with unwritable(filled.path.parent):
        filled.open()
        check_reads(filled)
        filled.close()


def test_an_index_of_a_daemon_that_was_killed_answers_with_all_that_it_had(filled):
    filled.open()
    filled.write("memory/late.md", "kestrel")
    filled.sync()
    crashed = filled.path.parent.with_name("crashed")
    shutil.copytree(filled.path.parent, crashed)
    filled.close()
    shutil.rmtree(filled.path.parent)
    crashed.rename(filled.path.parent)
    assert filled.path.with_name("main.sqlite-wal").stat().st_size
    with unwritable(filled.path.parent):
        filled.open()
        assert filled.found("kestrel") == ["memory/late.md"]
        check_reads(filled)
        filled.close()


def test_a_complete_rebuild_that_was_not_swapped_in_is_read(filled):
    shutil.copy(filled.path, opening.ready_path(filled.path))
    filled.path.write_bytes(filled.path.read_bytes()[:5000])
    with unwritable(filled.path.parent):
        filled.open()
        check_reads(filled)
        filled.close()
    filled.open()
    assert filled.found("number7x") == ["memory/n7.md"]


def test_without_an_index_the_folder_is_refused(index):
    index.path.parent.mkdir(parents=True)
    with unwritable(index.path.parent), pytest.raises(IndexReadOnly, match="no index yet"):
        index.open()
    index.open()
    assert index.sync().files == 0


def test_a_damaged_index_is_refused_with_both_reasons(filled):
    filled.path.write_bytes(bytes(4096) + filled.path.read_bytes()[4096:])
    with unwritable(filled.path.parent), pytest.raises(IndexReadOnly, match=r"cannot be written.*damaged"):
        filled.open()
    filled.open().sync()
    assert filled.integrity() == SOUND


def test_the_first_sync_after_it_can_be_written_again_takes_everything_up(filled):
    with unwritable(filled.path.parent):
        filled.open()
        filled.write("memory/late.md", "kestrel")
        check_reads(filled)
    before = filled.revision()
    assert filled.sync().indexed_files == 1
    assert filled.found("kestrel") == ["memory/late.md"]
    assert filled.revision() > before
    assert filled.store.degradations() == ()
    assert filled.integrity() == SOUND
    with pytest.raises(IndexBusy):
        FileLock(filled.path.with_name("main.sqlite.lock")).acquire()


def test_an_index_that_another_process_may_be_writing_is_not_read(filled):
    lock = FileLock(filled.path.with_name("main.sqlite.lock"))
    lock.acquire()
    with unwritable(filled.path.parent), pytest.raises(IndexBusy):
        filled.open()
    lock.release()


def test_an_index_without_a_lock_file_can_be_read_too(filled):
    filled.path.with_name("main.sqlite.lock").unlink()
    with unwritable(filled.path.parent):
        filled.open()
        check_reads(filled)
        filled.close()


def test_a_folder_that_becomes_read_only_is_searched_and_written_again_later(filled):
    filled.open()
    with unwritable(filled.path.parent):
        filled.write("memory/late.md", "kestrel")
        assert filled.found("number7x") == ["memory/n7.md"]
    filled.sync()
    assert filled.found("kestrel") == ["memory/late.md"]
