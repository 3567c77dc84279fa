"""Cached frequencies and names are right at the revision of the reader."""

import dataclasses
import math

from index_fixture import connection_of
from memoryd_server.sqlite.keyword import SymbolList
from memoryd_server.text import QueryTerm


def check(opened, expected):
    with opened.store.read() as reader:
        words = reader.vocabulary
        assert {term: words.frequency(term) for term in expected} == expected


def test_frequencies_are_counted_in_chunks(opened):
    opened.write("memory/a.md", "heron heron heron")
    opened.write("memory/b.md", "heron kestrel")
    opened.sync()
    for _ in range(2):
        check(opened, {"heron": 2, "kestrel": 1, "absent": 0})


def test_frequencies_follow_changes_and_removals(opened):
    file = opened.write("memory/a.md", "heron")
    opened.write("memory/b.md", "heron")
    opened.sync()
    check(opened, {"heron": 2})
    file.unlink()
    opened.write("memory/b.md", "kestrel")
    opened.sync()
    check(opened, {"heron": 0, "kestrel": 1})


def test_two_snapshots_have_their_own_frequencies(opened):
    opened.write("memory/a.md", "heron")
    opened.sync()
    with opened.store.read() as before:
        assert before.vocabulary.frequency("heron") == 1
        opened.write("memory/b.md", "heron")
        opened.sync()
        check(opened, {"heron": 2})
        assert before.vocabulary.frequency("heron") == 1
    check(opened, {"heron": 2})


def test_prefixes_are_counted_in_chunks(opened):
    opened.write("memory/a.md", "成语 成人 heron")
    opened.write("memory/b.md", "成功")
    opened.sync()
    with opened.store.read() as reader:
        prefixes = [QueryTerm(prefix, prefix=True) for prefix in ("成", "her", "zz", '"')]
        assert list(map(reader.vocabulary.term_frequency, prefixes)) == [2, 1, 0, 0]
        assert reader.vocabulary.frequency("成") == 0


def test_occurring_returns_the_terms_in_the_index(opened):
    opened.write("memory/a.md", "foo_bar")
    opened.sync()
    with opened.store.read() as reader:
        assert reader.vocabulary.occurring(["foo_bar", "bar_baz"]) == ("foo_bar",)
        assert reader.vocabulary.occurring(["bar_baz"]) == ()
        assert reader.vocabulary.occurring([]) == ()


def test_chunks_are_counted_as_the_keyword_table_counts_them(opened):
    assert_chunks(opened)
    for number in range(300):
        opened.write(f"memory/{number}.md", "heron " * (number + 1))
    opened.sync()
    assert_chunks(opened)
    for number in range(0, 300, 2):
        (opened.workspace / f"memory/{number}.md").unlink()
    opened.sync()
    assert_chunks(opened)


def assert_chunks(opened):
    with opened.store.read() as reader:
        (held,) = connection_of(reader).execute("SELECT count(*) FROM keyword").fetchone()
        assert reader.vocabulary.chunks() == held


def test_names_with_a_piece_come_with_the_closest_first(opened):
    opened.write("memory/a.md", "index_manager_of_all index_manager v1.2 plain")
    opened.sync()
    with opened.store.read() as reader:
        assert reader.vocabulary.names_containing("ex_mana", 5) == ["index_manager", "index_manager_of_all"]
        assert reader.vocabulary.names_containing("ex_mana", 1) == ["index_manager"]
        assert reader.vocabulary.names_containing("plain", 5) == []
        assert reader.vocabulary.names_containing("a\nb", 5) == []


def test_new_names_are_known_after_a_change_once_the_old_list_has_been_used_long_enough(opened):
    memo = opened.reader_caches.vocabulary
    for name in ("first_name", "other_name"):
        opened.write(f"memory/{name}.md", name)
        opened.sync()
        if memo.names is not None:
            memo.names = dataclasses.replace(memo.names, use_until=0.0)
        with opened.store.read() as reader:
            assert name in reader.vocabulary.names_containing("_name", 9)


def test_an_old_list_of_names_is_used_for_a_while(opened):
    memo = opened.reader_caches.vocabulary
    memo.names = SymbolList(revision=0, lines="gone_name\n", use_until=math.inf)
    opened.write("memory/a.md", "new_name")
    opened.sync()
    with opened.store.read() as reader:
        assert reader.vocabulary.names_containing("_name", 9) == ["gone_name"]
        assert reader.vocabulary.frequency("gone_name") == 0
