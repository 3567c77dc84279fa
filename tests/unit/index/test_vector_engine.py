"""Whether sqlite-vec serves is found out by using it; when it does not, the exact engine does, and says why."""

import shutil
import sys
import threading

import apsw
import numpy as np
import pytest
import sqlite_vec

from memoryd_server.index.vectors import VectorEngine, extension
from memoryd_server.index.vectors.copy import Vec0Copy
from vector_desk import VectorDesk, check_same, clusters, numbered


@pytest.fixture
def desk(tmp_path):
    desk = VectorDesk(tmp_path)
    yield desk
    desk.close()


def test_the_installed_extension_serves_and_says_its_version(desk):
    assert desk.leg(sqlite_vec=True).engine == VectorEngine("sqlite-vec", "v0.1.9", None)


def test_an_extension_at_a_path_serves_whatever_the_file_is_called(desk, tmp_path):
    named = tmp_path / "vectors-for-me.so"
    shutil.copy(sqlite_vec.loadable_path() + ".so", named)
    assert desk.leg(sqlite_vec=True, extension_path=str(named)).engine.engine == "sqlite-vec"


def test_switched_off_is_no_failure(desk):
    assert desk.leg(sqlite_vec=False, extension_path="/nowhere").engine == VectorEngine("exact", "", None)


def check_exact(desk, leg, reason):
    assert leg.engine.engine == "exact"
    assert reason in leg.engine.load_error
    vectors = clusters(1_000, 24)
    desk.commit(numbered(vectors))
    check_same(desk.search(leg, vectors[3], 20), desk.exact(vectors[3], 20))


def test_a_missing_file_leaves_the_exact_engine_with_the_reason(desk, tmp_path):
    leg = desk.leg(sqlite_vec=True, extension_path=str(tmp_path / "absent.so"))
    check_exact(desk, leg, "absent.so")


def test_a_file_that_is_no_library_leaves_the_exact_engine_with_the_reason(desk, tmp_path):
    (tmp_path / "text.so").write_text("no library")
    leg = desk.leg(sqlite_vec=True, extension_path=str(tmp_path / "text.so"))
    check_exact(desk, leg, "text.so")


def test_a_package_that_is_not_installed_leaves_the_exact_engine_with_the_reason(desk, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    check_exact(desk, desk.leg(sqlite_vec=True), "sqlite_vec")


def test_an_extension_that_registers_nothing_leaves_the_exact_engine_with_the_reason(desk, monkeypatch):
    monkeypatch.setattr(extension, "open_copy", lambda path: apsw.Connection(":memory:"))
    check_exact(desk, desk.leg(sqlite_vec=True), "no such module: vec0")


def test_an_extension_that_finds_nothing_leaves_the_exact_engine_with_the_reason(desk, monkeypatch):
    def create_copy(connection, dimensions):
        connection.execute("CREATE TABLE copy(chunk_id, embedding, distance, k)")

    monkeypatch.setattr(extension, "create_copy", create_copy)
    check_exact(desk, desk.leg(sqlite_vec=True), "MATCH")


def test_an_extension_that_does_not_answer_in_time_leaves_the_exact_engine_with_the_reason(desk, monkeypatch):
    forever = threading.Event()
    monkeypatch.setattr(extension, "open_copy", lambda path: forever.wait())
    leg = desk.leg(sqlite_vec=True, probed=False)
    leg.probe(timeout_seconds=0.01)
    forever.set()
    check_exact(desk, leg, "did not answer within 0.01 s")


def test_before_the_probe_the_exact_engine_serves(desk):
    check_exact(desk, desk.leg(sqlite_vec=True, probed=False), "not probed")


@pytest.mark.parametrize("doing", ["search", "add", "remove"])
def test_an_extension_that_fails_later_gives_way_to_the_exact_engine(desk, doing):
    vectors = clusters(300, 24)
    desk.commit(numbered(vectors[:200]))
    leg = desk.leg(sqlite_vec=True)
    desk.search(leg, vectors[0])
    held = leg._residency._resident
    assert isinstance(held, Vec0Copy)
    held._connection.execute("DROP TABLE copy")
    if doing == "add":
        desk.commit(numbered(vectors[200:], first=201))
    elif doing == "remove":
        desk.commit(removed=[1])
    check_same(desk.search(leg, vectors[0]), desk.exact(vectors[0]))
    assert leg.engine.engine == "exact"
    assert "copy" in leg.engine.load_error
    check_same(desk.search(leg, vectors[0]), desk.exact(vectors[0]))


def test_the_index_file_holds_no_copy(desk):
    desk.commit({1: np.ones(4)})
    desk.search(desk.leg(sqlite_vec=True), np.ones(4))
    assert [row[0] for row in desk.connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%copy%'")] == []
