"""What is deleted from the files is soon nowhere on the disk."""

import random

import pytest

from index_fixture import SOUND, IndexFixture

PLANTED = [f"secret{word}" for word in ("heron", "kestrel", "curlew", "plover", "dunlin")]


def traces(index):
    """The planted words that stand in the index or its log."""
    data = b"".join(file.read_bytes() for file in index.path.parent.iterdir() if file.name.startswith(index.path.name))
    return [word for word in PLANTED if word.encode() in data]


def filled(index, files=40):
    chance = random.Random(3)
    words = [f"word{i}" for i in range(400)]
    for number in range(files):
        index.write(f"memory/{number}.md", " ".join(chance.choice(words) for _ in range(300)))
    for number, word in enumerate(PLANTED):
        index.write(f"memory/planted-{number}.md", f"# {word}\n\nThe word is {word}, and again {word}.")
    index.sync()
    return index


def forget(index):
    for number in range(len(PLANTED)):
        (index.workspace / f"memory/planted-{number}.md").unlink()
    index.sync()


@pytest.mark.parametrize("files", [0, 1, 40, 400])
def test_removed_words_are_purged(index, files):
    filled(index.open(), files)
    assert traces(index) == PLANTED
    forget(index)
    assert index.store.has_deleted_text
    assert index.store.purge()
    assert not index.store.has_deleted_text
    assert traces(index) == []
    assert index.integrity() == SOUND


def test_replaced_words_are_purged(opened):
    filled(opened)
    for number in range(len(PLANTED)):
        opened.write(f"memory/planted-{number}.md", "nothing is left of it")
    opened.sync()
    assert opened.store.purge()
    assert traces(opened) == []
    assert opened.found("nothing left")


def test_words_are_purged_after_many_small_syncs(opened):
    filled(opened, 3)
    for number in range(30):
        opened.write(f"memory/more-{number}.md", f"word{number} and more")
        opened.sync()
    forget(opened)
    opened.write("memory/later.md", "something later")
    opened.sync()
    assert opened.store.purge()
    assert traces(opened) == []


def test_words_deleted_before_a_restart_are_purged_after_it(index):
    filled(index.open())
    forget(index)
    index.reopen()
    assert index.store.has_deleted_text
    assert index.store.purge()
    assert traces(index) == []


def test_a_second_purge_has_nothing_to_do_and_harms_nothing(opened):
    filled(opened)
    forget(opened)
    assert opened.store.purge()
    assert opened.store.purge()
    assert opened.integrity() == SOUND


def test_new_words_leave_nothing_to_purge(opened):
    filled(opened)
    assert not opened.store.has_deleted_text


def test_a_purge_that_is_stopped_is_still_due(opened):
    filled(opened)
    forget(opened)
    assert not opened.store.purge(lambda: True)
    assert opened.store.has_deleted_text


def test_a_purge_that_a_reader_keeps_from_its_end_is_still_due(opened):
    filled(opened)
    opened.connection.set_busy_timeout(1)
    with opened.store.read() as reader:
        reader.counts()
        forget(opened)
        assert not opened.store.purge()
        assert opened.store.has_deleted_text
    assert opened.store.purge()
    assert traces(opened) == []


def test_an_empty_index_can_be_purged(tmp_path):
    index = IndexFixture(tmp_path).open()
    assert index.store.purge()
    index.close()
