"""Rows that searches read last are those of the state of the index in which they are returned."""

import itertools

import pytest

from memoryd_server.errors import SyncCancelled
from memoryd_server.model import Chunk, Source
from memoryd_server.sqlite.row_cache import ChunkRowCache
from memoryd_server.store import ChunkRow


def row(chunk_id, text="text", line_numbers=()):
    return ChunkRow(chunk_id, "a.md", Source.MEMORY, 1, 1, text, "", 0, 0, line_numbers=line_numbers)


def test_rows_are_returned_in_the_state_in_which_they_were_added():
    rows = ChunkRowCache()
    rows.add((7, 0), {1: row(1), 2: row(2)})
    assert rows.get((7, 0), [2, 3]) == {2: row(2)}
    assert rows.get((7, 1), [2]) == rows.get((8, 0), [2]) == {}


def test_rows_of_an_earlier_state_do_not_replace_later_ones():
    rows = ChunkRowCache()
    rows.add((7, 1), {1: row(1, "new")})
    rows.add((7, 0), {1: row(1, "old"), 2: row(2)})
    assert rows.get((7, 1), [1, 2]) == {1: row(1, "new")}
    rows.add((8, 0), {2: row(2)})
    assert rows.get((8, 0), [1, 2]) == {2: row(2)}


@pytest.mark.parametrize(("text", "line_numbers"), [("x" * 5_000, ()), ("x", tuple(range(150)))])
def test_the_rows_added_first_are_evicted(text, line_numbers):
    rows = ChunkRowCache(max_bytes=20_000)
    for chunk_id in range(50):
        rows.add((1, 0), {chunk_id: row(chunk_id, text, line_numbers)})
    kept = rows.get((1, 0), range(50))
    assert 2 <= len(kept) <= 4
    assert list(kept) == list(range(50 - len(kept), 50))


def test_columns_that_a_cancelled_sync_filled_are_read_again(opened):
    opened.write("memory/a.md", "heron")
    opened.sync()
    with opened.store.read() as reader:
        (file,) = reader.files().values()
        (chunk_id,) = reader.chunks_of((file.source, file.path), None, 10)
        assert reader.chunks([chunk_id])[chunk_id].day == ""
    ((content_hash,),) = opened.sql("SELECT content_hash FROM chunks")
    filled = Chunk("heron", 1, 1, content_hash, day="2024-05-05")
    missing = [Chunk("gull", 1, 1, b"") for _ in range(1_000)]
    stops = itertools.count()
    with pytest.raises(SyncCancelled):
        opened.store.writer().refill_transcript(file, [filled, *missing], lambda: next(stops) > 0)
    with opened.store.read() as reader:
        assert reader.chunks([chunk_id])[chunk_id].day == "2024-05-05"
