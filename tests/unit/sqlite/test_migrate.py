"""An index of an older memoryd is upgraded in place, or rebuilt; one of a newer memoryd is not changed."""

import gzip
import hashlib
from pathlib import Path

import apsw
import pytest

from embedding_fixture import EmbeddingFixture
from index_fixture import SOUND
from memoryd_server.errors import IndexReadOnly, IndexTooNew
from memoryd_server.sqlite import schema
from memoryd_server.sqlite.connection import open_writer
from memoryd_server.sqlite.opening import open_read_only
from memoryd_server.sqlite.vector_index import VectorIndex, load
from memoryd_server.sync.progress import SyncMode

STEPS = schema._STEPS

# Written by the memoryd of that schema, from these notes; the second holds a vector of the first note.
DATA = Path(__file__).parent / "data"
SCHEMA_1 = DATA / "schema_1.sqlite.gz"
SCHEMA_2 = DATA / "schema_2.sqlite.gz"
NOTES = {
    "memory/harbour.md": "# Harbour\n\nThe crane lifts containers while gulls circle over pier seven.\n",
    "memory/reiher.md": "# Reiher\n\nDer Reiher steht im Schilf, und die Fische sind nicht weit von ihm.\n",
}


@pytest.fixture
def old(index):
    for path, text in NOTES.items():
        index.write(path, text)
    index.path.parent.mkdir(parents=True)
    index.path.write_bytes(gzip.decompress(SCHEMA_1.read_bytes()))
    return index


def version_of(path):
    return int.from_bytes(path.read_bytes()[60:64], "big")


def ask(path, query):
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def tables(path):
    """Return each table and index with its columns, in any order."""
    return {
        (kind, name): sorted(ask(path, f"SELECT name, type FROM pragma_table_info('{name}')"))
        for kind, name in ask(path, "SELECT type, name FROM sqlite_master")
    }


def mark(path, version):
    connection = open_writer(path)
    connection.execute(f"PRAGMA user_version={version}").fetchall()
    connection.close()


def test_an_index_of_schema_1_is_searchable_after_opening_and_reads_no_file_again(old):
    assert version_of(old.path) == 1
    old.open()
    assert version_of(old.path) <= schema.SCHEMA_VERSION
    assert old.found("crane") == ["memory/harbour.md"]
    assert (old.store.degradations(), old.store.build_differences) == ((), ())
    assert old.store.keyword_outdated
    outcome = old.sync()
    assert (outcome.indexed_files, outcome.unchanged_files, outcome.removed_files) == (0, 2, 0)
    # FTS5 checks a table by what a connection remembers of it, so one that has remembered nothing has to ask.
    assert old.reopen().integrity() == SOUND
    with old.store.read() as reader:
        assert "de" in reader.counts().languages
    assert old.found("Fisch") == ["memory/reiher.md"], "by its stem, which the old words did not have"


def test_an_upgraded_index_equals_a_rebuilt_one(old):
    old.open().sync()
    old.close()
    upgraded = tables(old.path)
    rows = old.open().rows()
    old.sync(SyncMode.FULL)
    assert old.rows() == rows
    old.close()
    assert upgraded == tables(old.path)
    assert version_of(old.path) == schema.SCHEMA_VERSION


def test_the_revision_of_an_upgraded_index_still_rises(old):
    old.open()
    before = old.revision()
    old.write("memory/late.md", "kestrel")
    assert old.sync().revision > before


def test_an_upgraded_index_takes_vectors(tmp_path):
    embedding = EmbeddingFixture(tmp_path)
    for path, text in NOTES.items():
        embedding.index.write(path, text)
    embedding.index.close()
    embedding.index.path.write_bytes(gzip.decompress(SCHEMA_1.read_bytes()))
    embedding.open(embedding.index.identity)
    assert embedding.sync().pending_embeddings == 0
    assert len(embedding.vectors()) == 2
    embedding.close()


def test_an_index_of_schema_2_lists_the_chunks_without_a_vector(index):
    index.path.parent.mkdir(parents=True)
    index.path.write_bytes(gzip.decompress(SCHEMA_2.read_bytes()))
    for path, text in NOTES.items():
        index.write(path, text)
    index.open()
    assert index.integrity() == SOUND
    index.close()
    assert version_of(index.path) == schema.SCHEMA_VERSION
    assert ask(
        index.path, "SELECT path FROM unembedded JOIN chunks c ON c.id = chunk_id JOIN files f ON f.id = file_id"
    ) == [("memory/reiher.md",)]


@pytest.mark.parametrize("version", range(1, schema.SCHEMA_VERSION))
def test_an_index_of_every_past_schema_is_searchable_after_opening_and_becomes_a_current_one(index, version):
    """A new schema brings a file here, written by the last memoryd of the schema before it."""
    for path, text in NOTES.items():
        index.write(path, text)
    index.path.parent.mkdir(parents=True)
    index.path.write_bytes(gzip.decompress((DATA / f"schema_{version}.sqlite.gz").read_bytes()))
    assert version_of(index.path) == version
    index.open()
    assert index.found("crane") == ["memory/harbour.md"]
    assert index.store.degradations() == ()
    before = index.revision()
    outcome = index.sync()
    assert (outcome.indexed_files, outcome.removed_files) == (0, 0)
    assert outcome.revision >= before
    assert index.reopen().integrity() == SOUND
    index.close()
    assert version_of(index.path) == schema.SCHEMA_VERSION
    upgraded = tables(index.path)
    index.open().sync(SyncMode.FULL)
    index.close()
    assert upgraded == tables(index.path)


def add_vec0_table(path):
    """A vec0 table as an extension would have left it, and no extension to read it with."""
    connection = apsw.Connection(str(path))
    try:
        load(connection, None)
        connection.execute("CREATE VIRTUAL TABLE copy USING vec0(chunk_id INTEGER PRIMARY KEY, embedding FLOAT[8])")
        connection.execute("INSERT INTO copy VALUES(1, ?)", (bytes(32),))
    finally:
        connection.close()


@pytest.mark.parametrize("version", range(1, schema.SCHEMA_VERSION))
def test_an_old_index_that_holds_a_vec0_table_is_upgraded_without_the_extension(index, version):
    for path, text in NOTES.items():
        index.write(path, text)
    index.path.parent.mkdir(parents=True)
    index.path.write_bytes(gzip.decompress((DATA / f"schema_{version}.sqlite.gz").read_bytes()))
    add_vec0_table(index.path)
    index.open()
    assert index.store.degradations() == ()
    outcome = index.sync()
    assert (outcome.indexed_files, outcome.removed_files) == (0, 0)
    assert index.found("crane") == ["memory/harbour.md"]


@pytest.mark.parametrize("has_extension", [True, False])
def test_an_index_that_holds_a_vec0_table_keeps_its_vectors(tmp_path, *, has_extension):
    missing = None if has_extension else str(tmp_path / "no-such-extension")
    vector_index = VectorIndex(sqlite_vec=True, extension_path=missing, memory_budget_bytes=0)
    vector_index.probe()
    embedding = EmbeddingFixture(tmp_path)
    for path, text in NOTES.items():
        embedding.index.write(path, text)
    embedding.sync()
    identity, stored, calls = embedding.index.identity, embedding.vectors(), len(embedding.provider.texts)
    embedding.index.close()
    add_vec0_table(embedding.index.path)
    embedding.open(identity)
    assert (embedding.index.store.degradations(), embedding.index.store.build_differences) == ((), ())
    assert next(path for path, _ in embedding.nearest("crane gulls pier", vector_index)) == "memory/harbour.md"
    assert embedding.sync().indexed_files == 0
    assert embedding.vectors().keys() == stored.keys()
    assert len(embedding.provider.texts) == calls, "no text is embedded again"
    embedding.write(late="kestrel")
    (embedding.index.workspace / "memory" / "reiher.md").unlink()
    embedding.sync()
    assert embedding.index.store.purge()
    embedding.index.store.release_memory()
    assert {path for path, _ in embedding.nearest("kestrel", vector_index)} == {"memory/harbour.md", "memory/late.md"}
    embedding.sync(SyncMode.FULL)
    assert {path for path, _ in embedding.nearest("kestrel", vector_index)} == {"memory/harbour.md", "memory/late.md"}
    assert vector_index.engine.engine == ("sqlite-vec" if has_extension else "exact")
    embedding.close()


def test_an_upgrade_that_fails_leaves_the_old_index_as_it_was(old, monkeypatch):
    def fail(_connection):
        raise apsw.FullError("database or disk is full")

    steps = {**STEPS, schema.SCHEMA_VERSION: fail}
    monkeypatch.setattr(schema, "_STEPS", steps)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    with pytest.raises(Exception, match="full"):
        old.open()
    assert version_of(old.path) == 1
    assert ask(old.path, "SELECT count(*) FROM sqlite_master WHERE name = 'vectors'") == [(0,)]
    assert ask(old.path, "SELECT count(*) FROM chunks") == [(2,)]
    monkeypatch.undo()
    old.open()
    assert old.found("crane") == ["memory/harbour.md"]


def test_an_index_of_a_schema_without_an_upgrade_is_rebuilt_with_a_degradation(index):
    index.write("memory/a.md", "heron")
    before = index.open().sync().revision
    index.close()
    mark(index.path, 0)
    index.open()
    (impairment,) = index.store.degradations()
    assert "older memoryd (schema 0)" in impairment.reason
    assert index.found("heron") == []
    assert index.sync().revision > before
    assert index.found("heron") == ["memory/a.md"]
    assert index.store.degradations() == ()


def test_a_newer_index_is_refused_and_not_a_byte_of_it_is_touched(index):
    index.write("memory/a.md", "heron")
    index.open().sync()
    index.close()
    mark(index.path, schema.SCHEMA_VERSION + 1)
    index.path.chmod(0o640)
    ready = index.path.with_name(index.path.name + ".ready")
    ready.write_bytes(b"what a newer memoryd left")
    before, stamp = hashlib.sha256(index.path.read_bytes()).digest(), index.path.stat()
    with pytest.raises(IndexTooNew, match="upgrade memoryd, or delete the file"):
        index.open()
    after = index.path.stat()
    assert hashlib.sha256(index.path.read_bytes()).digest() == before
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_mode) == (
        stamp.st_mtime_ns,
        stamp.st_ctime_ns,
        stamp.st_mode,
    )
    assert ready.read_bytes() == b"what a newer memoryd left"
    assert index.file_names() == ["main.sqlite", "main.sqlite.lock", "main.sqlite.ready"]


def test_an_index_on_a_read_only_disk_that_needs_an_upgrade_is_refused(old):
    with pytest.raises(IndexReadOnly, match=r"the disk is read-only.*older memoryd"):
        open_read_only(old.path, 1, IndexReadOnly("the disk is read-only"))


def test_every_step_leads_to_the_next_version():
    assert sorted(STEPS) == list(range(1, schema.SCHEMA_VERSION))
