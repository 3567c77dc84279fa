"""Another analyzer builds the keyword leg anew from the index alone, all of it or nothing."""

import pytest

from index_fixture import ANALYZER, SOUND, RecordingObserver, connection_of
from memoryd_server.errors import SyncCancelled
from memoryd_server.sqlite import schema
from memoryd_server.sqlite.maintenance import refresh_keyword
from memoryd_server.sync.progress import SyncMode
from memoryd_server.text.analyzer import ANALYZER_VERSION

GERMAN = "Der Reiher steht in den Häusern und wartet auf die Fische, weil es nicht zu kalt ist."


def outdated(index, files=5):
    """An index whose keyword leg another analyzer made, of words that nobody asks for."""
    for number in range(files):
        index.write(f"memory/{number}.md", f"---\ntitle: Waders\n---\n# Birds\n\nherons number{number}\n")
    index.write("memory/de.md", GERMAN)
    index.sync()
    connection = index.connection
    connection.execute("INSERT INTO keyword(keyword) VALUES('delete-all')")
    connection.execute("INSERT INTO keyword(rowid, body, context) SELECT id, 'oldword', '' FROM chunks")
    connection.execute("UPDATE files SET language = 'xx'")
    schema.set_meta(connection, "analyzer_version", "0")
    schema.set_meta(connection, "revision", index.revision() + 1)
    return index.reopen()


def meta(index, key):
    return schema.get_meta(index.connection, key)


def test_the_next_sync_makes_the_words_of_the_present_analyzer(opened):
    index = outdated(opened)
    assert index.store.keyword_outdated
    assert not index.store.build_differences
    before, notes = index.revision(), RecordingObserver()
    index.sync(observer=notes)
    assert not index.store.keyword_outdated
    assert meta(index, "analyzer_version") == ANALYZER_VERSION
    assert notes.revisions == [index.revision()]
    assert index.revision() > before
    assert len(index.found("heron")) == 5
    assert len(index.found("wader")) == 5
    assert index.found("Haus") == ["memory/de.md"]
    assert index.found("oldword") == []
    assert index.integrity() == SOUND
    assert not index.reopen().store.keyword_outdated


def test_the_index_is_that_of_a_build_from_scratch(opened):
    index = outdated(opened)
    index.sync()
    refreshed = words(index)
    index.sync(SyncMode.FULL)
    assert refreshed == words(index)


def words(index):
    with index.store.read() as reader:
        connection = connection_of(reader)
        files = sorted(connection.execute("SELECT path, language FROM files"))
        return files, connection.execute("SELECT * FROM temp.vocabulary").fetchall()


def test_no_file_is_read_and_no_vector_is_touched(opened):
    index = outdated(opened)
    index.connection.execute("INSERT INTO vectors SELECT id, x'00' FROM chunks")
    for file in (index.workspace / "memory").iterdir():
        file.unlink()
    index.store.refresh_keyword(ANALYZER, lambda: False)
    assert len(index.found("heron")) == 5
    assert index.sql("SELECT count(*) FROM vectors") == [(6,)]


def test_searches_find_the_old_words_until_the_new_ones_are_there(opened):
    index = outdated(opened)
    with index.store.read() as reader:
        reader.counts()
        index.store.refresh_keyword(ANALYZER, lambda: False)
        assert reader.vocabulary.frequency("oldword") == 6
    assert index.found("oldword") == []


def test_a_refresh_that_is_stopped_changes_nothing(opened):
    index = outdated(opened)
    before = index.revision()
    with pytest.raises(SyncCancelled):
        index.sync(should_stop=lambda: True)
    assert index.store.keyword_outdated
    assert index.revision() == before
    assert len(index.found("oldword")) == 6
    index.sync()
    assert len(index.found("heron")) == 5


def test_a_refresh_that_fails_changes_nothing(opened):
    index = outdated(opened)

    class Failing:
        language_of = ANALYZER.language_of
        index_tokens = None

    with pytest.raises(TypeError):
        refresh_keyword(index.connection, Failing(), lambda: False)
    assert len(index.found("oldword")) == 6
    assert meta(index, "analyzer_version") == "0"


def test_an_empty_index_is_refreshed(opened):
    schema.set_meta(opened.connection, "analyzer_version", "0")
    opened.reopen().sync()
    assert not opened.store.keyword_outdated


def test_a_rebuild_leaves_nothing_to_refresh(opened):
    index = outdated(opened)
    index.sync(SyncMode.FULL)
    assert not index.store.keyword_outdated
    assert len(index.found("heron")) == 5
