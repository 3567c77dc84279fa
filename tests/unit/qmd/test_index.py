"""qmd's index over the fake: locks between processes, and mending."""

import os
import threading
import time

import pytest

from fake_qmd.installs import make_fake
from memoryd_server.qmd.client import QmdClient, QmdFailure, QmdFailureReason, QmdSearchMode
from memoryd_server.qmd.config import QmdConfig, QmdLimitsConfig, QmdUpdateConfig
from memoryd_server.qmd.home import Collection, QmdHome
from memoryd_server.qmd.host import file_lock, make_private_folder
from memoryd_server.qmd.index import QmdIndex, UpdateCounts
from memoryd_server.qmd.process import ProcessGuard


class QmdIndexFixture:
    def __init__(self, folder):
        self.folder = folder
        self.fake = make_fake(folder / "bin")
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.guard = ProcessGuard()
        self.unwanted = False
        self.exports = 0

    def write(self, **notes):
        for name, text in notes.items():
            (self.notes / f"{name}.md").write_text(text)

    def index(self, seconds=20.0):
        collections = (Collection("notes", str(self.notes)),)
        update = QmdUpdateConfig(False, False, 0, 0, 0, seconds, seconds, seconds)
        limits = QmdLimitsConfig(6, 700, 4000, 4)
        home = QmdHome(self.folder / "qmd", collections, {"PATH": "/bin:/usr/bin"})
        config = QmdConfig(
            home.folder,
            str(self.fake.path),
            QmdSearchMode.QUERY,
            collections,
            {},
            update,
            limits,
            None,
            None,
            True,
            self.folder / "run" / "lock",
        )
        client = QmdClient(config.command, home, self.guard)
        return QmdIndex(config, client, export=self._export, should_stop=lambda: self.unwanted)

    def _export(self):
        self.exports += 1


@pytest.fixture
def qmd(tmp_path):
    qmd = QmdIndexFixture(tmp_path)
    yield qmd
    qmd.guard.close()


def run(run):
    return run.run()


def test_an_update_returns_its_counts(qmd):
    index = qmd.index()
    qmd.write(a="one", b="two")
    assert not index.ready
    assert index.update(run) == UpdateCounts(new=2)
    assert index.ready
    qmd.write(a="other", c="three")
    (qmd.notes / "b.md").unlink()
    done = index.update(run)
    assert (done, done.documents) == (UpdateCounts(new=1, changed=1, removed=1), 2)
    assert qmd.exports == 2


def test_vectors_are_counted(qmd):
    qmd.write(a="one", b="two")
    index = qmd.index()
    index.update(run)
    assert (index.documents(run).total, index.documents(run).pending) == (2, 2)
    assert index.embed(run).vectors == 2


def test_an_index_that_is_no_database_is_rebuilt(qmd):
    qmd.write(a="one")
    index = qmd.index()
    index.update(run)
    (qmd.folder / "qmd" / "xdg-cache" / "qmd" / "index.sqlite").write_text("nonsense")
    assert index.update(run) == UpdateCounts(new=1)
    assert index.ready


@pytest.mark.parametrize("fault", ["busy", "fail", "segfault"])
def test_an_update_that_fails_is_a_failure(qmd, fault):
    qmd.write(a="one")
    index = qmd.index()
    qmd.fake.faults(update=fault)
    with pytest.raises(QmdFailure):
        index.update(run)
    assert not index.ready


def test_an_embedding_that_leaves_some_out_is_a_failure(qmd):
    qmd.write(a="one")
    index = qmd.index()
    index.update(run)
    qmd.fake.faults(embed="nothing")
    with pytest.raises(QmdFailure, match="1 documents have no vector"):
        index.embed(run)
    qmd.fake.faults(embed="embedding-elsewhere")
    with pytest.raises(QmdFailure, match="another process") as failed:
        index.embed(run)
    assert failed.value.reason is QmdFailureReason.BUSY


def test_two_writers_wait_for_each_other(qmd):
    qmd.write(a="one")
    indexes = [qmd.index(), qmd.index()]
    qmd.fake.faults(update="counted")
    threads = [threading.Thread(target=index.update, args=(run,)) for index in indexes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert qmd.fake.calls("update") == ["update", "update"]
    assert (qmd.fake.path.with_name("most-updates")).read_text() == "1"


def test_a_lock_is_waited_for_as_long_as_it_is_wanted(qmd):
    index = qmd.index(seconds=0.3)
    index.prepare()
    with file_lock(qmd.folder / "qmd" / "writer.lock", "it", 1, lambda: False):
        with pytest.raises(QmdFailure) as failed:
            index.update(run)
        assert failed.value.reason is QmdFailureReason.BUSY
        qmd.unwanted = True
        began = time.monotonic()
        with pytest.raises(QmdFailure) as failed:
            qmd.index(seconds=60).update(run)
        assert failed.value.reason is QmdFailureReason.CANCELLED
        assert time.monotonic() - began < 10


def test_a_folder_that_cannot_be_made_is_a_failure(qmd):
    (qmd.folder / "qmd").write_text("a file")
    with pytest.raises(QmdFailure, match="cannot be written"):
        qmd.index().update(run)


def test_a_failed_forget_is_repeated_after_the_next_update(qmd):
    qmd.write(a="one")
    index = qmd.index()
    index.update(run)
    assert qmd.fake.calls("cleanup") == []
    qmd.write(a="two")
    qmd.fake.faults(cleanup="fail")
    index.update(run)
    qmd.fake.faults()
    index.update(run)
    index.update(run)
    assert qmd.fake.calls("cleanup") == ["cleanup"] * 2


def _link_to_file(lock):
    lock.parent.mkdir(mode=0o700)
    (lock.parent.parent / "target").write_text("untouched")
    lock.symlink_to(lock.parent.parent / "target")


def _link_to_nothing(lock):
    lock.parent.mkdir(mode=0o700)
    lock.symlink_to(lock.parent.parent / "created")


def _folder(lock):
    lock.mkdir(parents=True)


def _linked_folder(lock):
    (lock.parent.parent / "elsewhere").mkdir()
    lock.parent.symlink_to(lock.parent.parent / "elsewhere")


def _file_as_folder(lock):
    lock.parent.write_text("a file")


def _open_folder(lock):
    lock.parent.mkdir()
    lock.parent.chmod(0o1777)


def _folder_of_another_user(lock):
    if os.geteuid():
        pytest.skip("only root can give a folder to another user")
    lock.parent.mkdir(mode=0o700)
    os.chown(lock.parent, 65_534, 65_534)


def _missing_parent(lock):
    lock.parent.parent.joinpath("run").symlink_to("absent/run")


OBSTACLES = [
    _link_to_file,
    _link_to_nothing,
    _folder,
    _linked_folder,
    _file_as_folder,
    _open_folder,
    _folder_of_another_user,
    _missing_parent,
]


@pytest.mark.attacks
@pytest.mark.parametrize("obstruct", OBSTACLES)
def test_embedding_lock_that_cannot_be_used_is_named_and_does_not_prevent_the_embedding(qmd, obstruct):
    qmd.write(a="one")
    index = qmd.index()
    index.update(run)
    lock = qmd.folder / "run" / "lock"
    obstruct(lock)
    assert index.embed(run).pending == 0
    assert str(lock) in index.embed_lock_problem
    assert not (qmd.folder / "created").exists()
    assert not (qmd.folder / "elsewhere" / "lock").exists()
    lock.parent.rename(qmd.folder / "away")
    index.embed(run)
    assert index.embed_lock_problem == ""
    assert lock.is_file()
    assert lock.parent.stat().st_mode & 0o777 == 0o700


def test_embedding_waits_for_the_lock_of_another_daemon(qmd):
    qmd.write(a="one")
    index = qmd.index(seconds=0.3)
    index.prepare()
    make_private_folder(qmd.folder / "run")
    with file_lock(qmd.folder / "run" / "lock", "it", 1, lambda: False), pytest.raises(QmdFailure) as failed:
        index.embed(run)
    assert failed.value.reason is QmdFailureReason.BUSY
