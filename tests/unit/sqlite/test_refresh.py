"""Another analyzer version rebuilds the keyword index from the stored text, in one transaction."""

import pytest

from desk import ANALYZER, SOUND, Notes
from memoryd_server.errors import SyncCancelled
from memoryd_server.sqlite import schema
from memoryd_server.sqlite.maintenance import refresh_keyword
from memoryd_server.sync.progress import SyncMode
from memoryd_server.text.analyzer import ANALYZER_VERSION

GERMAN = "Der Reiher steht in den Häusern und wartet auf die Fische, weil es nicht zu kalt ist."


def outdated(desk, files=5):
    """An index whose keyword index was built by another analyzer, with other words."""
    for number in range(files):
        desk.write(f"memory/{number}.md", f"---\ntitle: Waders\n---\n# Birds\n\nherons number{number}\n")
    desk.write("memory/de.md", GERMAN)
    desk.sync()
    connection = desk.store._connection
    connection.execute("INSERT INTO keyword(keyword) VALUES('delete-all')")
    connection.execute("INSERT INTO keyword(rowid, body, context) SELECT id, 'oldword', '' FROM chunks")
    connection.execute("UPDATE files SET language = 'xx'")
    schema.set_meta(connection, "analyzer_version", "0")
    schema.set_meta(connection, "revision", desk.revision() + 1)
    return desk.reopen()


def meta(desk, key):
    return schema.get_meta(desk.store._connection, key)


def test_the_next_sync_makes_the_words_of_the_present_analyzer(opened):
    desk = outdated(opened)
    assert desk.store.keyword_outdated
    assert not desk.store.build_differences
    before, notes = desk.revision(), Notes()
    desk.sync(notes=notes)
    assert not desk.store.keyword_outdated
    assert meta(desk, "analyzer_version") == ANALYZER_VERSION
    assert notes.revisions == [desk.revision()]
    assert desk.revision() > before
    assert len(desk.found("heron")) == 5
    assert len(desk.found("wader")) == 5
    assert desk.found("Haus") == ["memory/de.md"]
    assert desk.found("oldword") == []
    assert desk.integrity() == SOUND
    assert not desk.reopen().store.keyword_outdated


def test_the_index_is_that_of_a_build_from_scratch(opened):
    desk = outdated(opened)
    desk.sync()
    refreshed = words(desk)
    desk.sync(SyncMode.FULL)
    assert refreshed == words(desk)


def words(desk):
    with desk.store.read() as reader:
        connection = reader._connection
        files = sorted(connection.execute("SELECT path, language FROM files"))
        return files, connection.execute("SELECT * FROM temp.vocabulary").fetchall()


def test_no_file_is_read_and_no_vector_is_touched(opened):
    desk = outdated(opened)
    desk.store._connection.execute("INSERT INTO vectors SELECT id, x'00' FROM chunks")
    for file in (desk.workspace / "memory").iterdir():
        file.unlink()
    desk.store.refresh_keyword(ANALYZER, lambda: False)
    assert len(desk.found("heron")) == 5
    assert desk.store._connection.execute("SELECT count(*) FROM vectors").fetchall() == [(6,)]


def test_searches_find_the_old_words_until_the_new_ones_are_there(opened):
    desk = outdated(opened)
    with desk.store.read() as reader:
        reader.counts()
        desk.store.refresh_keyword(ANALYZER, lambda: False)
        assert reader.vocabulary.frequency("oldword") == 6
    assert desk.found("oldword") == []


def test_a_refresh_that_is_stopped_changes_nothing(opened):
    desk = outdated(opened)
    before = desk.revision()
    with pytest.raises(SyncCancelled):
        desk.sync(should_stop=lambda: True)
    assert desk.store.keyword_outdated
    assert desk.revision() == before
    assert len(desk.found("oldword")) == 6
    desk.sync()
    assert len(desk.found("heron")) == 5


def test_a_refresh_that_fails_changes_nothing(opened):
    desk = outdated(opened)

    class Failing:
        language_of = ANALYZER.language_of
        index_tokens = None

    with pytest.raises(TypeError):
        refresh_keyword(desk.store._connection, Failing(), lambda: False)
    assert len(desk.found("oldword")) == 6
    assert meta(desk, "analyzer_version") == "0"


def test_an_empty_index_is_refreshed(opened):
    schema.set_meta(opened.store._connection, "analyzer_version", "0")
    opened.reopen().sync()
    assert not opened.store.keyword_outdated


def test_a_rebuild_leaves_nothing_to_refresh(opened):
    desk = outdated(opened)
    desk.sync(SyncMode.FULL)
    assert not desk.store.keyword_outdated
    assert len(desk.found("heron")) == 5
