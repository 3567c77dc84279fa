"""Rows read in one step are equal to rows read one by one."""

import json
import math

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.sqlite import readers

DIMENSIONS = 5


@pytest.fixture(scope="module")
def database():
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE vectors(chunk_id INTEGER PRIMARY KEY, embedding BLOB)").fetchall()
    connection.execute("CREATE TABLE numbers(id INTEGER PRIMARY KEY, score REAL, name TEXT)").fetchall()
    yield connection
    connection.close()


floats = st.floats(width=32, allow_nan=False)
blobs = st.lists(floats, min_size=DIMENSIONS, max_size=DIMENSIONS).map(lambda v: np.array(v, "<f4").tobytes())


@given(st.dictionaries(st.integers(0, 2**62), blobs | st.binary(max_size=30), max_size=20))
def test_vectors_are_those_of_the_table(database, stored):
    database.execute("DELETE FROM vectors").fetchall()
    database.executemany("INSERT INTO vectors VALUES(?,?)", list(stored.items()))
    ids, vectors = readers.vectors(database, [*stored, 7], DIMENSIONS)
    fitting = {key: blob for key, blob in stored.items() if len(blob) == 4 * DIMENSIONS}
    assert {key: vector.tobytes() for key, vector in zip(ids.tolist(), vectors, strict=True)} == fitting
    assert vectors.shape == (len(fitting), DIMENSIONS)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20))
def test_scores_keep_every_digit_and_their_order(database, scores):
    database.execute("DELETE FROM numbers").fetchall()
    database.executemany("INSERT INTO numbers(id, score) VALUES(?,?)", list(enumerate(scores)))
    found = readers.scored(database, "SELECT id, score FROM numbers ORDER BY id DESC LIMIT ?", (100,))
    assert [number for number, _ in found] == list(range(len(scores)))[::-1]
    assert all(math.isclose(a, b, rel_tol=0, abs_tol=0) for (_, a), b in zip(found, scores[::-1], strict=True))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=10))
def test_a_table_of_any_text_comes_back(database, names):
    database.execute("DELETE FROM numbers").fetchall()
    database.executemany("INSERT INTO numbers(id, name) VALUES(?,?)", list(enumerate(names)))
    assert sorted(readers.table(database, "id, name", "FROM numbers", ())) == [[*row] for row in enumerate(names)]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=10))
def test_a_table_with_any_long_text_comes_back(database, names):
    database.execute("DELETE FROM numbers").fetchall()
    database.executemany("INSERT INTO numbers(id, name) VALUES(?,?)", list(enumerate(names)))
    found = readers.table_with_text(database, "id, 1", "name", "FROM numbers WHERE id < ?", (100,))
    assert sorted(found) == [[number, 1, name] for number, name in enumerate(names)]


def test_a_list_of_ids_is_json():
    assert json.loads(readers.id_list([1, -2, 2**62])) == [1, -2, 2**62]
