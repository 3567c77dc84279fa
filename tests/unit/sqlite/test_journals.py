"""On network and virtual file systems the write-ahead log is not used, and everything works all the same."""

import shutil

import apsw
import pytest

from index_fixture import IDENTITY, SOUND, IndexFixture, searching
from memoryd_server.sources.watch_scope import file_system_of
from memoryd_server.sqlite import opening
from memoryd_server.sqlite.connection import JournalMode, journal_for, open_writer
from memoryd_server.sqlite.store import SqliteStore
from memoryd_server.sync.progress import SyncMode

LINE = "{number} 25 0:{number} / {point} rw,relatime shared:1 - {kind} source rw\n"


def table_of(folder, *mounts):
    table = folder / "mountinfo"
    lines = [LINE.format(number=number, point=point, kind=kind) for number, (point, kind) in enumerate(mounts, 30)]
    table.write_text("".join(lines))
    return table


class RemoteIndexFixture(IndexFixture):
    """Hold an index whose state directory is on NFS according to the mount table."""

    def open(self, identity=IDENTITY):
        table = table_of(self.workspace.parent, ("/", "ext4"), (self.path.parent, "nfs4"))
        self.store = SqliteStore(self.path, identity, mount_table=table)
        self.store.open()
        return self


@pytest.fixture
def remote(tmp_path):
    index = RemoteIndexFixture(tmp_path)
    for number in range(50):
        index.write(f"memory/n{number}.md", f"heron number{number}x")
    yield index.open()
    index.close()


def mode_of(path):
    """1 is a rollback journal, 2 the write-ahead log: the file's header says so."""
    return path.read_bytes()[18]


@pytest.mark.parametrize(
    ("kind", "journal"),
    [
        *((kind, JournalMode.LOG) for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuseblk", "f2fs")),
        *((kind, JournalMode.ROLLBACK) for kind in ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "vboxsf", "ceph")),
        *(
            (kind, JournalMode.ROLLBACK)
            for kind in ("fuse.sshfs", "fuse.grpcfuse", "fuse.glusterfs", "fakeowner", "afs")
        ),
    ],
)
def test_the_journal_is_the_one_that_the_file_system_can_carry(tmp_path, kind, journal):
    found, reason = journal_for(tmp_path / "state", table_of(tmp_path, ("/", "ext4"), (tmp_path, kind)))
    assert found is journal
    assert (kind in reason) is (journal is JournalMode.ROLLBACK)


def test_the_innermost_mount_counts_and_of_those_on_one_point_the_last(tmp_path):
    inner = tmp_path / "a b"
    point = str(inner).replace(" ", "\\040")
    assert file_system_of(inner / "x", table_of(tmp_path, (tmp_path, "nfs"), (point, "ext4"), ("/", "xfs"))) == "ext4"
    assert file_system_of(inner, table_of(tmp_path, (point, "ext4"), (point, "nfs"))) == "nfs"
    assert file_system_of(tmp_path, table_of(tmp_path, ("/", "xfs"), (point, "nfs"))) == "xfs"
    assert file_system_of(tmp_path, tmp_path / "absent") == ""


def test_a_state_directory_behind_a_link_counts_where_it_leads(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    table = table_of(tmp_path, ("/", "ext4"), (tmp_path / "far", "virtiofs"))
    assert journal_for(tmp_path / "near", table)[0] is JournalMode.ROLLBACK


def test_syncs_searches_rebuilds_and_restarts_work_without_a_log(remote):
    remote.sync()
    assert remote.found("number7x") == ["memory/n7.md"]
    remote.write("memory/n7.md", "kestrel")
    (remote.workspace / "memory/n8.md").unlink()
    before = remote.sync().revision
    assert (remote.found("kestrel"), remote.found("number7x"), remote.found("number8x")) == (["memory/n7.md"], [], [])
    assert remote.store.purge()
    assert remote.sync(SyncMode.FULL).revision > before
    assert remote.integrity() == SOUND
    remote.reopen()
    assert remote.found("kestrel") == ["memory/n7.md"]
    assert mode_of(remote.path) == 1
    assert not [name for name in remote.file_names() if name.endswith(("-wal", "-shm"))]


def test_the_reason_is_told_to_the_operator_and_in_no_answer(remote):
    (remark,) = remote.store.remarks()
    assert (remark.wanted, remark.used) == ("write-ahead log", "rollback journal")
    assert "nfs4" in remark.reason
    assert "--state-dir" in remark.reason
    assert remote.store.degradations() == ()


def test_an_index_moves_between_file_systems_with_what_it_holds(tmp_path):
    here = IndexFixture(tmp_path)
    here.write("memory/a.md", "heron")
    here.open().sync()
    assert mode_of(here.path) == 2
    revision = here.revision()
    here.close()
    there = RemoteIndexFixture(tmp_path).open()
    assert (there.found("heron"), there.revision(), mode_of(there.path)) == (["memory/a.md"], revision, 1)
    there.write("memory/b.md", "kestrel")
    there.sync()
    there.close()
    here.open()
    assert (here.found("kestrel"), mode_of(here.path)) == (["memory/b.md"], 2)
    here.close()


def test_deleted_words_are_gone_from_the_disk_without_a_log_too(remote):
    remote.write("memory/secret.md", "xyzzyplugh")
    remote.sync()
    (remote.workspace / "memory/secret.md").unlink()
    remote.sync()
    assert remote.store.purge()
    for file in remote.path.parent.iterdir():
        assert b"xyzzyplugh" not in file.read_bytes()


@pytest.mark.slow
def test_searches_on_many_threads_never_fail_while_syncs_commit(remote):
    remote.sync()
    with searching(remote, "number3x", "memory/n3.md"):
        for turn in range(10):
            for number in range(10, 30):
                remote.write(f"memory/n{number}.md", f"kestrel turn{turn}x " * 50)
            remote.sync(SyncMode.FULL if turn % 3 == 2 else SyncMode.INCREMENTAL, files_per_transaction=5)
    assert remote.integrity() == SOUND


def in_the_middle_of_a_transaction(index):
    """A copy of the folder as a daemon leaves it that is killed while it writes."""
    crashed = index.path.parent.with_name("crashed")
    connection = index.connection
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM chunks")
    connection.execute("PRAGMA cache_spill=ON")
    connection.cache_flush()
    shutil.copytree(index.path.parent, crashed)
    connection.execute("ROLLBACK")
    return crashed


def test_a_sync_stopped_in_a_transaction_leaves_the_index_as_it_was(remote):
    remote.sync()
    rows = remote.rows()
    crashed = in_the_middle_of_a_transaction(remote)
    assert remote.rows() == rows
    remote.close()
    assert (crashed / "main.sqlite-journal").stat().st_size, "a transaction was under way"
    shutil.rmtree(remote.path.parent)
    crashed.rename(remote.path.parent)
    remote.open()
    assert remote.rows() == rows
    assert remote.integrity() == SOUND


def test_a_rollback_journal_of_the_old_index_does_not_haunt_the_new_one(remote):
    """Why it must go before the swap's last rename: what it holds are pages of the old file."""
    remote.sync()
    remote.write("memory/late.md", "kestrel")
    remote.sync(SyncMode.FULL)
    new = remote.path.parent.with_name("new.sqlite")
    shutil.copy(remote.path, new)
    crashed = in_the_middle_of_a_transaction(remote)
    remote.close()
    shutil.rmtree(remote.path.parent)
    crashed.rename(remote.path.parent)
    shutil.copy(new, opening.ready_path(remote.path))
    remote.open()
    assert remote.integrity() == SOUND
    assert remote.found("kestrel") == ["memory/late.md"]
    assert remote.path.with_name("main.sqlite.ready").exists() is False


def test_damage_and_removal_heal_without_a_log_too(remote):
    remote.sync()
    before = remote.revision()
    with remote.path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(remote.path.stat().st_size - 4096))
    remote.reopen()
    remote.sync()
    remote.path.unlink()
    assert remote.sync().revision > before
    assert len(remote.paths()) == 50
    assert remote.integrity() == SOUND


def test_a_journal_that_sqlite_does_not_grant_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("memoryd_server.sqlite.connection.BUSY_TIMEOUT_MS", 10)
    path = tmp_path / "a.sqlite"
    open_writer(path).close()
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN")
    holder.execute("SELECT * FROM sqlite_master").fetchall()
    with pytest.raises(apsw.BusyError, match="locked"):
        open_writer(path, JournalMode.ROLLBACK)
    holder.close()
