"""sqlite-vec is used only if it computes right distances; otherwise the exact engine is used, with the reason."""

import shutil
import sys
import threading

import apsw
import numpy as np
import pytest
import sqlite_vec

from memoryd_server.errors import DeadlineTooShort, IndexDamaged
from memoryd_server.sqlite import vector_index
from memoryd_server.sqlite.vector_index import LoadedVectorEngine
from vector_desk import VectorDesk, check_same, clusters, numbered


@pytest.fixture
def desk(tmp_path):
    desk = VectorDesk(tmp_path)
    yield desk
    desk.close()


def test_the_installed_extension_serves_and_says_its_version(desk):
    assert desk.leg(sqlite_vec=True).engine == LoadedVectorEngine("sqlite-vec", "v0.1.9", None)


def test_an_extension_file_may_have_any_name(desk, tmp_path):
    named = tmp_path / "vectors-for-me.so"
    shutil.copy(sqlite_vec.loadable_path() + ".so", named)
    assert desk.leg(sqlite_vec=True, extension_path=str(named)).engine.engine == "sqlite-vec"


def test_switched_off_is_no_failure(desk):
    assert desk.leg(sqlite_vec=False, extension_path="/nowhere").engine == LoadedVectorEngine("exact", "", None)


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


def test_an_extension_that_registers_nothing_leaves_the_exact_engine_with_the_reason(desk):
    leg = desk.leg(sqlite_vec=True, load_extension=lambda connection, path: None)
    check_exact(desk, leg, "no such function: vec_version")


def test_an_extension_with_wrong_distances_leaves_the_exact_engine_with_the_reason(desk):
    def load_extension(connection, path):
        connection.create_scalar_function("vec_version", lambda: "v0.0.0", 0)
        connection.create_scalar_function("vec_distance_cosine", lambda one, other: 0.0, 2)

    leg = desk.leg(sqlite_vec=True, load_extension=load_extension)
    check_exact(desk, leg, "v0.0.0 loaded, but computes the cosine distances 0.0 and 0.0 instead of 0 and 1")


def test_an_extension_that_does_not_answer_in_time_leaves_the_exact_engine_with_the_reason(desk):
    forever = threading.Event()
    leg = desk.leg(sqlite_vec=True, load_extension=lambda connection, path: forever.wait(), probed=False)
    leg.probe(timeout_seconds=0.01)
    forever.set()
    check_exact(desk, leg, "did not load within 0.01 s")


def test_before_the_probe_the_exact_engine_serves(desk):
    check_exact(desk, desk.leg(sqlite_vec=True, probed=False), "not been probed")


def test_an_extension_that_is_removed_after_the_probe_gives_way_to_the_exact_engine(desk, tmp_path):
    vectors = clusters(300, 24)
    desk.commit(numbered(vectors))
    file = tmp_path / "removed.so"
    shutil.copy(sqlite_vec.loadable_path() + ".so", file)
    leg = desk.leg(sqlite_vec=True, extension_path=str(file), memory_budget_bytes=0)
    file.unlink()
    check_same(desk.search(leg, vectors[0]), desk.exact(vectors[0]))
    assert (leg.engine.engine, leg.engine.version) == ("exact", "v0.1.9")
    assert "removed.so" in leg.engine.load_error
    check_same(desk.search(leg, vectors[0]), desk.exact(vectors[0]))


def test_an_extension_whose_distance_fails_gives_way_to_the_exact_engine(desk):
    def failing(one, other):
        raise apsw.SQLError("this library is broken")

    def load_extension(connection, path):
        vector_index.load(connection, path)
        if connection.filename:
            connection.create_scalar_function("vec_distance_cosine", failing, 2)

    vectors = clusters(300, 24)
    desk.commit(numbered(vectors))
    leg = desk.leg(sqlite_vec=True, load_extension=load_extension, memory_budget_bytes=0)
    check_same(desk.search(leg, vectors[0]), desk.exact(vectors[0]))
    assert leg.engine.engine == "exact"
    assert "this library is broken" in leg.engine.load_error


def test_the_extension_is_loaded_once_into_each_reader_connection_that_scans(desk):
    loaded = []

    def load_extension(connection, path):
        loaded.append(connection.filename)
        vector_index.load(connection, path)

    desk.commit(numbered(clusters(100, 24)))
    leg = desk.leg(sqlite_vec=True, load_extension=load_extension, memory_budget_bytes=0)
    for _ in range(3):
        desk.search(leg, np.ones(24))
    assert loaded == ["", str(desk.path)]


def test_a_search_in_memory_loads_no_extension(desk):
    loaded = []
    desk.commit(numbered(clusters(100, 24)))
    leg = desk.leg(sqlite_vec=True, load_extension=lambda connection, path: loaded.append(path), probed=False)
    desk.search(leg, np.ones(24))
    assert loaded == []


def test_a_damaged_index_does_not_disable_the_extension(desk):
    desk.commit({1: np.ones(4)})
    leg = desk.leg(sqlite_vec=True, memory_budget_bytes=0)
    desk.connection.execute("DROP TABLE vectors")
    with pytest.raises(IndexDamaged, match="no such table"):
        desk.search(leg, np.ones(4))
    assert leg.engine == LoadedVectorEngine("sqlite-vec", "v0.1.9", None)


def test_a_deadline_interrupts_the_scan_and_does_not_disable_the_extension(desk):
    desk.commit(numbered(clusters(5_000, 8)))
    leg = desk.leg(sqlite_vec=True, memory_budget_bytes=0)

    def interrupted():
        with desk.read() as reader:
            reader.connection.set_progress_handler(lambda: True, 20_000)
            try:
                leg.search(reader, np.ones(8), 10)
            finally:
                reader.connection.set_progress_handler(None)

    with pytest.raises(DeadlineTooShort):
        interrupted()
    assert leg.engine.engine == "sqlite-vec"
    check_same(desk.search(leg, np.ones(8)), desk.exact(np.ones(8)))
