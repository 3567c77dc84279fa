"""qmd's index over the fake: locks between processes, and mending."""

import threading
import time

import pytest

from fake_qmd.installs import make_fake
from memoryd_server.qmd.client import QmdClient, QmdFailure, QmdFailureReason, QmdSearchMode
from memoryd_server.qmd.config import QmdConfig, QmdLimitsConfig, QmdUpdateConfig
from memoryd_server.qmd.home import Collection, QmdHome
from memoryd_server.qmd.host import file_lock
from memoryd_server.qmd.index import QmdIndex, UpdateCounts
from memoryd_server.qmd.process import ProcessGuard


class Desk:
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
            self.folder / "lock",
        )
        client = QmdClient(config.command, home, self.guard)
        return QmdIndex(config, client, export=self._export, should_stop=lambda: self.unwanted)

    def _export(self):
        self.exports += 1


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    yield desk
    desk.guard.close()


def run(run):
    return run.run()


def test_an_update_tells_what_it_did(desk):
    index = desk.index()
    desk.write(a="one", b="two")
    assert not index.ready
    assert index.update(run) == UpdateCounts(new=2)
    assert index.ready
    desk.write(a="other", c="three")
    (desk.notes / "b.md").unlink()
    done = index.update(run)
    assert (done, done.documents) == (UpdateCounts(new=1, changed=1, removed=1), 2)
    assert desk.exports == 2


def test_vectors_are_counted(desk):
    desk.write(a="one", b="two")
    index = desk.index()
    index.update(run)
    assert (index.documents(run).total, index.documents(run).pending) == (2, 2)
    assert index.embed(run).vectors == 2


def test_an_index_that_is_no_database_is_begun_anew(desk):
    desk.write(a="one")
    index = desk.index()
    index.update(run)
    (desk.folder / "qmd" / "xdg-cache" / "qmd" / "index.sqlite").write_text("nonsense")
    assert index.update(run) == UpdateCounts(new=1)
    assert index.ready


@pytest.mark.parametrize("fault", ["busy", "fail", "segfault"])
def test_an_update_that_fails_is_a_failure(desk, fault):
    desk.write(a="one")
    index = desk.index()
    desk.fake.faults(update=fault)
    with pytest.raises(QmdFailure):
        index.update(run)
    assert not index.ready


def test_an_embedding_that_leaves_some_out_is_a_failure(desk):
    desk.write(a="one")
    index = desk.index()
    index.update(run)
    desk.fake.faults(embed="nothing")
    with pytest.raises(QmdFailure, match="1 documents have no vector"):
        index.embed(run)
    desk.fake.faults(embed="embedding-elsewhere")
    with pytest.raises(QmdFailure, match="another process") as failed:
        index.embed(run)
    assert failed.value.reason is QmdFailureReason.BUSY


def test_two_writers_wait_for_each_other(desk):
    desk.write(a="one")
    indexes = [desk.index(), desk.index()]
    desk.fake.faults(update="counted")
    threads = [threading.Thread(target=index.update, args=(run,)) for index in indexes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert desk.fake.calls("update") == ["update", "update"]
    assert (desk.fake.path.with_name("most-updates")).read_text() == "1"


def test_a_lock_is_waited_for_as_long_as_it_is_wanted(desk):
    index = desk.index(seconds=0.3)
    index.prepare()
    with file_lock(desk.folder / "qmd" / "writer.lock", "it", 1, lambda: False):
        with pytest.raises(QmdFailure) as failed:
            index.update(run)
        assert failed.value.reason is QmdFailureReason.BUSY
        desk.unwanted = True
        began = time.monotonic()
        with pytest.raises(QmdFailure) as failed:
            desk.index(seconds=60).update(run)
        assert failed.value.reason is QmdFailureReason.CANCELLED
        assert time.monotonic() - began < 10


def test_a_folder_that_cannot_be_made_is_a_failure(desk):
    (desk.folder / "qmd").write_text("a file")
    with pytest.raises(QmdFailure, match="cannot be written"):
        desk.index().update(run)


def test_what_could_not_be_forgotten_is_forgotten_after_the_next_update(desk):
    desk.write(a="one")
    index = desk.index()
    index.update(run)
    assert desk.fake.calls("cleanup") == []
    desk.write(a="two")
    desk.fake.faults(cleanup="fail")
    index.update(run)
    desk.fake.faults()
    index.update(run)
    index.update(run)
    assert desk.fake.calls("cleanup") == ["cleanup"] * 2
