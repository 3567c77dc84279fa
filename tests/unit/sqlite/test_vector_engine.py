"""sqlite-vec is used only if it computes right distances; otherwise the exact engine is used, with the reason."""

import shutil
import sys
import threading

import apsw
import numpy as np
import pytest
import sqlite_vec

from memoryd_server.errors import DeadlineTooShort, IndexDamaged
from memoryd_server.sqlite.vector_index import LoadedVectorEngine, load
from vector_fixture import VectorFixture, check_same, clusters, numbered


@pytest.fixture
def fixture(tmp_path):
    fixture = VectorFixture(tmp_path)
    yield fixture
    fixture.close()


INSTALLED = LoadedVectorEngine("sqlite-vec", "v0.1.9", None, sqlite_vec.loadable_path() + ".so")


def test_the_installed_extension_serves_and_says_its_version(fixture):
    assert fixture.new_vector_index(sqlite_vec=True).engine == INSTALLED


def test_an_extension_file_may_have_any_name(fixture, tmp_path):
    named = tmp_path / "vectors-for-me.so"
    shutil.copy(sqlite_vec.loadable_path() + ".so", named)
    assert fixture.new_vector_index(sqlite_vec=True, extension_path=str(named)).engine.engine == "sqlite-vec"


def test_switched_off_is_no_failure(fixture):
    assert fixture.new_vector_index(sqlite_vec=False, extension_path="/nowhere").engine == LoadedVectorEngine(
        "exact", "", None
    )


def check_exact(fixture, vector_index, reason):
    assert vector_index.engine.engine == "exact"
    assert reason in vector_index.engine.load_error
    vectors = clusters(1_000, 24)
    fixture.commit(numbered(vectors))
    check_same(fixture.search(vector_index, vectors[3], 20), fixture.exact(vectors[3], 20))


def test_a_missing_file_leaves_the_exact_engine_with_the_reason(fixture, tmp_path):
    vector_index = fixture.new_vector_index(sqlite_vec=True, extension_path=str(tmp_path / "absent.so"))
    check_exact(fixture, vector_index, "absent.so")


def test_a_file_that_is_no_library_leaves_the_exact_engine_with_the_reason(fixture, tmp_path):
    (tmp_path / "text.so").write_text("no library")
    vector_index = fixture.new_vector_index(sqlite_vec=True, extension_path=str(tmp_path / "text.so"))
    check_exact(fixture, vector_index, "text.so")


def test_a_package_that_is_not_installed_leaves_the_exact_engine_with_the_reason(fixture, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)
    check_exact(fixture, fixture.new_vector_index(sqlite_vec=True), "sqlite_vec")


def test_an_extension_that_registers_nothing_leaves_the_exact_engine_with_the_reason(fixture):
    vector_index = fixture.new_vector_index(sqlite_vec=True, load_extension=lambda connection, path: None)
    check_exact(fixture, vector_index, "no such function: vec_version")


def test_an_extension_with_wrong_distances_leaves_the_exact_engine_with_the_reason(fixture):
    def load_extension(connection, path):
        connection.create_scalar_function("vec_version", lambda: "v0.0.0", 0)
        connection.create_scalar_function("vec_distance_cosine", lambda one, other: 0.0, 2)

    vector_index = fixture.new_vector_index(sqlite_vec=True, load_extension=load_extension)
    check_exact(
        fixture, vector_index, "v0.0.0 loaded, but computes the cosine distances 0.0 and 0.0 instead of 0 and 1"
    )


def test_an_extension_that_does_not_answer_in_time_leaves_the_exact_engine_with_the_reason(fixture):
    forever = threading.Event()
    vector_index = fixture.new_vector_index(
        sqlite_vec=True, load_extension=lambda connection, path: forever.wait(), probed=False
    )
    vector_index.probe(timeout_seconds=0.01)
    forever.set()
    check_exact(fixture, vector_index, "did not load within 0.01 s")


def test_before_the_probe_the_exact_engine_serves(fixture):
    check_exact(fixture, fixture.new_vector_index(sqlite_vec=True, probed=False), "not been probed")


def test_an_extension_that_is_removed_after_the_probe_gives_way_to_the_exact_engine(fixture, tmp_path):
    vectors = clusters(300, 24)
    fixture.commit(numbered(vectors))
    file = tmp_path / "removed.so"
    shutil.copy(sqlite_vec.loadable_path() + ".so", file)
    vector_index = fixture.new_vector_index(sqlite_vec=True, extension_path=str(file), memory_budget_bytes=0)
    file.unlink()
    check_same(fixture.search(vector_index, vectors[0]), fixture.exact(vectors[0]))
    assert (vector_index.engine.engine, vector_index.engine.version) == ("exact", "v0.1.9")
    assert "removed.so" in vector_index.engine.load_error
    check_same(fixture.search(vector_index, vectors[0]), fixture.exact(vectors[0]))


def test_an_extension_whose_distance_fails_gives_way_to_the_exact_engine(fixture):
    def failing(one, other):
        raise apsw.SQLError("this library is broken")

    def load_extension(connection, path):
        load(connection, path)
        if connection.filename:
            connection.create_scalar_function("vec_distance_cosine", failing, 2)

    vectors = clusters(300, 24)
    fixture.commit(numbered(vectors))
    vector_index = fixture.new_vector_index(sqlite_vec=True, load_extension=load_extension, memory_budget_bytes=0)
    check_same(fixture.search(vector_index, vectors[0]), fixture.exact(vectors[0]))
    assert vector_index.engine.engine == "exact"
    assert "this library is broken" in vector_index.engine.load_error


def test_the_extension_is_loaded_once_into_each_reader_connection_that_scans(fixture):
    loaded = []

    def load_extension(connection, path):
        loaded.append(connection.filename)
        load(connection, path)

    fixture.commit(numbered(clusters(100, 24)))
    vector_index = fixture.new_vector_index(sqlite_vec=True, load_extension=load_extension, memory_budget_bytes=0)
    for _ in range(3):
        fixture.search(vector_index, np.ones(24))
    assert loaded == ["", str(fixture.path)]


def test_a_search_in_memory_loads_no_extension(fixture):
    loaded = []
    fixture.commit(numbered(clusters(100, 24)))
    vector_index = fixture.new_vector_index(
        sqlite_vec=True, load_extension=lambda connection, path: loaded.append(path), probed=False
    )
    fixture.search(vector_index, np.ones(24))
    assert loaded == []


def test_a_damaged_index_does_not_disable_the_extension(fixture):
    fixture.commit({1: np.ones(4)})
    vector_index = fixture.new_vector_index(sqlite_vec=True, memory_budget_bytes=0)
    fixture.connection.execute("DROP TABLE vectors")
    with pytest.raises(IndexDamaged, match="no such table"):
        fixture.search(vector_index, np.ones(4))
    assert vector_index.engine == INSTALLED


def test_a_deadline_interrupts_the_scan_and_does_not_disable_the_extension(fixture):
    fixture.commit(numbered(clusters(5_000, 8)))
    vector_index = fixture.new_vector_index(sqlite_vec=True, memory_budget_bytes=0)

    def interrupted():
        with fixture.read() as reader:
            reader.connection.set_progress_handler(lambda: True, 20_000)
            try:
                vector_index.search(reader, np.ones(8), 10)
            finally:
                reader.connection.set_progress_handler(None)

    with pytest.raises(DeadlineTooShort):
        interrupted()
    assert vector_index.engine.engine == "sqlite-vec"
    check_same(fixture.search(vector_index, np.ones(8)), fixture.exact(np.ones(8)))
