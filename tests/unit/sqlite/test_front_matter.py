"""The values of front matter are stored with their file, removed with it, and filled by an upgrade."""

from datetime import date
from types import SimpleNamespace

import apsw
import pytest

from documents_fixture import documents_of
from index_fixture import SOUND, IndexFixture
from memoryd_server.agent.forget import ForgetJob
from memoryd_server.agent.requests import ForgetRequest
from memoryd_server.errors import IndexUnavailable
from memoryd_server.model import Source
from memoryd_server.sources import FolderCorpus, ForgottenFile, ForgottenSources
from memoryd_server.store.filters import ChunkFilter, FileFilter, FrontMatterCondition
from memoryd_server.store.rows import MAX_KEY_CHARS, MAX_VALUE_CHARS, MAX_VALUES, front_matter_values
from memoryd_server.sync.progress import SyncMode
from old_schema import downgrade, downgrade_to_6

NOTE = "---\ntags: [Billing, '#Ops']\nproject: Straße\nmeta:\n  kind: log\n---\nheron\n"
ROWS = [("meta.kind", "log"), ("project", "strasse"), ("tags", "billing"), ("tags", "ops")]


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path).open()
    yield index
    index.close()


def rows(index):
    return index.sql("SELECT key, value FROM front_matter ORDER BY key, value")


def tagged(index, value, key="tags"):
    """The paths of the chunks with this value."""
    among = ChunkFilter(FileFilter(front_matter=(FrontMatterCondition(key, (value,)),)))
    with index.store.read() as reader:
        selected = reader.chunks(reader.selected(among).ids.tolist())
        assert {row.path for row in selected.values()} == {path for _, path in reader.matching_files(among)}
    return sorted({row.path for row in selected.values()})


@pytest.mark.parametrize(
    ("metadata", "values"),
    [
        ({"tags": "a, #B ,,"}, [("tags", "a"), ("tags", "b")]),
        ({"tags": ["a, b"]}, [("tags", "a, b")]),
        ({"Tags": "a, b"}, [("Tags", "a, b")]),
        ({"type": " #Log "}, [("type", "log")]),
        ({"type": ["x", "X", "#x"]}, [("type", "x")]),
        ({"type": ""}, [("type", "")]),
        ({"type": ["x" * MAX_VALUE_CHARS, "x" * (MAX_VALUE_CHARS + 1)]}, [("type", "x" * MAX_VALUE_CHARS)]),
        ({"k" * (MAX_KEY_CHARS + 1): "x"}, []),
        ({"type": {"no": "list"}, "other": [1, None, "x"]}, [("other", "x")]),
        ({}, []),
    ],
)
def test_values_are_compared_without_case_spaces_and_number_sign(metadata, values):
    assert front_matter_values(metadata) == values


def test_only_the_first_values_of_a_file_are_stored():
    stored = front_matter_values({"tags": [f"t{number}" for number in range(MAX_VALUES + 10)], "type": "x"})
    assert len(stored) == MAX_VALUES
    assert stored[-1] == ("tags", f"t{MAX_VALUES - 1}")


def test_values_follow_their_file(index):
    file = index.write("memory/a.md", NOTE)
    index.write("memory/b.md", NOTE)
    index.sync()
    assert rows(index) == sorted(ROWS * 2)
    assert tagged(index, "billing") == ["memory/a.md", "memory/b.md"]
    assert tagged(index, "log", "meta.kind") == ["memory/a.md", "memory/b.md"]
    index.write("memory/a.md", "---\ntags: ops\n---\nheron\n")
    index.sync()
    assert rows(index) == sorted([*ROWS, ("tags", "ops")])
    assert tagged(index, "billing") == ["memory/b.md"]
    index.sync(SyncMode.FULL)
    assert rows(index) == sorted([*ROWS, ("tags", "ops")])
    file.unlink()
    index.sync()
    assert rows(index) == ROWS


def test_forgetting_a_file_leaves_none_of_its_values(index, tmp_path):
    index.write("memory/a.md", NOTE)
    index.sync()
    forgotten = ForgottenSources(ForgottenFile(tmp_path / "forgotten"))
    documents = documents_of(index, FolderCorpus(index.roots))
    job = ForgetJob(index.store, documents, forgotten, lambda: config_of(index), lambda: None, now_ns=index.now_ns)
    receipt = job.carry_out(ForgetRequest(path="memory/a.md"), lambda: False)
    assert (receipt.chunks, receipt.keyword_entries) == (1, 1)
    assert rows(index) == []
    assert index.sql("SELECT path, metadata, date FROM files") == [("memory/a.md", None, None)]
    assert job.purge(lambda: False)
    index.close()
    assert b"strasse" not in index.path.read_bytes()
    index.open()


def config_of(index):
    return SimpleNamespace(sync=SimpleNamespace(max_file_bytes=index.max_file_bytes), has_replicas=False)


def test_an_index_of_schema_6_gets_dates_and_values_without_reading_a_file(index):
    index.write("memory/a.md", NOTE)
    index.write("memory/2026-05-01-b.md", "heron")
    index.write("memory/c.md", "---\nday: 2026-05-02\n---\nheron")
    index.sync()
    expected = rows(index), dates(index)
    index.close()
    downgrade_to_6(index.path)
    index.open()
    assert (rows(index), dates(index)) == expected
    assert dates(index) == [
        ("memory/2026-05-01-b.md", "2026-05-01"),
        ("memory/a.md", None),
        ("memory/c.md", "2026-05-02"),
    ]
    assert tagged(index, "ops") == ["memory/a.md"]
    assert found_in_may(index) == ["memory/2026-05-01-b.md", "memory/c.md"]
    assert index.sync().indexed_files == 0
    assert index.integrity() == SOUND


def dates(index):
    return index.sql("SELECT path, date FROM files ORDER BY path")


def found_in_may(index):
    among = ChunkFilter(FileFilter(since=date(2026, 5, 1), until=date(2026, 5, 31)), (Source.MEMORY,))
    with index.store.read() as reader:
        return sorted(row.path for row in reader.chunks(reader.selected(among).ids.tolist()).values())


def test_an_index_of_schema_4_gets_them_too_and_its_origins_with_the_next_sync(index):
    index.write("memory/a.md", NOTE)
    index.sync()
    index.close()
    downgrade(index.path)
    index.open()
    assert rows(index) == ROWS
    by_origin = ChunkFilter(origins=("agent",))
    with index.store.read() as reader:
        assert not reader.has_chunks(by_origin)
    index.sync()
    with index.store.read() as reader:
        assert reader.has_chunks(by_origin)
    assert rows(index) == ROWS


@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        "[]",
        "7",
        "null",
        '"text"',
        "[" * 100_000,
        '{"tags": 7, "type": {"a": []}}',
        '{"tags": ["\\ud800"]}',
        "\x00",
        "{}x",
    ],
)
def test_damaged_front_matter_does_not_fail_an_upgrade(index, damaged):
    index.write("memory/a.md", NOTE)
    index.write("memory/b.md", NOTE)
    index.sync()
    index.sql("UPDATE files SET metadata = ? WHERE path = 'memory/a.md'", (damaged,))
    index.close()
    downgrade_to_6(index.path)
    index.open()
    assert index.store.degradations() == ()
    assert set(rows(index)) >= set(ROWS)
    assert tagged(index, "billing") == ["memory/b.md"]
    assert index.sync().removed_files == 0
    assert index.integrity() == SOUND


def test_an_upgrade_that_fails_at_its_end_changes_nothing(index):
    def execute(statement):
        connection = apsw.Connection(str(index.path))
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    index.write("memory/a.md", NOTE)
    index.sync()
    index.close()
    downgrade_to_6(index.path)
    execute("CREATE INDEX files_by_date ON files(path)")
    before = execute("SELECT * FROM sqlite_master"), execute("PRAGMA user_version")
    with pytest.raises(IndexUnavailable, match="files_by_date already exists"):
        index.open()
    assert (execute("SELECT * FROM sqlite_master"), execute("PRAGMA user_version")) == before
    execute("DROP INDEX files_by_date")
    index.open()
    assert rows(index) == ROWS


def test_the_indexes_of_an_upgraded_index_have_the_columns_of_a_new_one(index):
    def columns(path):
        connection = apsw.Connection(str(path))
        try:
            return connection.execute(
                "SELECT sqlite_master.name, info.seqno, info.name FROM sqlite_master,"
                " pragma_index_info(sqlite_master.name) AS info WHERE type = 'index' ORDER BY 1, 2"
            ).fetchall()
        finally:
            connection.close()

    index.close()
    new = columns(index.path)
    assert ("chunks_by_file", 2, "origin") in new
    downgrade_to_6(index.path)
    assert columns(index.path) != new
    index.open().close()
    assert columns(index.path) == new
    index.open()
