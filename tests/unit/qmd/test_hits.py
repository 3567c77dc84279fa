"""Rows into hits: the text is the file's, at its present place."""

import dataclasses
import os
from datetime import UTC, datetime

import pytest

from memoryd_server.model import Source
from memoryd_server.qmd.client import QmdRow
from memoryd_server.qmd.hits import CollectionFiles, rank, within_budgets
from memoryd_server.qmd.home import Collection
from memoryd_server.search.query import RankingConfig, SearchMode, SearchQuery
from memoryd_server.sources.roots import ExtraPath, Roots

TEXT = "# Title\n\none\ntwo\nthree\nfour\n"
PLAIN = RankingConfig(decay=False)
NOW = datetime(2026, 6, 1, tzinfo=UTC)
QUERY = SearchQuery("q", 6, 0.35, False, (), SearchMode.HYBRID, 700, False, None, 0.0, NOW)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "w" / "memory").mkdir(parents=True)
    (tmp_path / "s").mkdir()
    return tmp_path


@pytest.fixture
def files(folder):
    workspace = folder / "w"
    collections = (
        Collection("memory-root", str(workspace), "memory/**/*.md", builtin=True),
        Collection("sessions", str(folder / "s"), "**/*.md", Source.SESSIONS),
        Collection("docs", str(workspace / "docs"), "**/*.md"),
    )
    return CollectionFiles(Roots(str(workspace)), collections, 1_000)


def write(folder, path, text=TEXT):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_a_file_that_the_pattern_of_an_extra_path_matches_is_no_hit_unless_it_is_memory(folder):
    extra = folder / "extra"
    for name in ("a.md", "b.txt", ".openclaw-repair/c.md"):
        write(extra, name)
    collections = (Collection("extra-1", str(extra), "**", builtin=True),)
    files = CollectionFiles(Roots(str(folder / "w"), (ExtraPath(str(extra), "**"),)), collections, 1_000)
    assert files.locate("extra-1", "a.md").path == "../extra/a.md"
    assert files.locate("extra-1", "b.txt") is None
    assert files.locate("extra-1", ".openclaw-repair/c.md") is None


def test_the_ignore_file_of_an_extra_path_holds_for_a_pattern_that_names_one_file(folder):
    for name in ("a.md", "b.md"):
        write(folder, f"extra/{name}")
    write(folder, "extra/.memoryignore", "a.md\n")
    extra = str(folder / "extra")
    collections = tuple(Collection(name[0], extra, name, builtin=True) for name in ("a.md", "b.md"))
    files = CollectionFiles(Roots(str(folder / "w"), (ExtraPath(extra, "{a,b}.md"),)), collections, 1_000)
    assert files.location_of(row("qmd://a/a.md")) is None
    assert files.location_of(row("qmd://b/b.md")).path == "../extra/b.md"


def row(uri="qmd://memory-root/memory/a.md", *, snippet="one\ntwo\n", start=3, count=2, score=0.5, line=3):
    return QmdRow(uri, score, snippet, start, count, line)


def place(files, given):
    hit, moved = files.hit(given, 700)
    return None if hit is None else (hit.path, hit.start_line, hit.end_line, hit.snippet), moved


def test_a_row_is_shown_as_the_file_has_it(files, folder):
    write(folder, "w/memory/a.md")
    assert place(files, row()) == (("memory/a.md", 3, 4, "one\ntwo"), False)


def test_the_empty_line_that_ends_a_file_is_not_shown(files, folder):
    write(folder, "w/memory/a.md")
    assert place(files, row(snippet="three\nfour\n", start=5, count=3)) == (("memory/a.md", 5, 6, "three\nfour"), False)


def test_a_snippet_that_qmd_cut_is_shown_whole(files, folder):
    write(folder, "w/memory/a.md", "x" * 400 + " 🦩 end\n")
    assert place(files, row(snippet="x" * 297 + "...", start=1, count=1))[0][3].endswith("end")
    half = "x" * 400 + " \ud83e..."
    assert place(files, row(snippet=half, start=1, count=1))[0][3].endswith("end")


def test_text_that_has_moved_is_shown_where_it_is(files, folder):
    write(folder, "w/memory/a.md", "new\nnew\nnew\n" + TEXT)
    assert place(files, row()) == (("memory/a.md", 6, 7, "one\ntwo"), True)


@pytest.mark.parametrize("text", ["", "\n\n", "other\n", "one\n", "one\ntw\n", b"\xff\xfe"])
def test_text_that_is_gone_gives_no_hit(files, folder, text):
    write(folder, "w/memory/a.md", text)
    assert place(files, row()) == (None, True)


@pytest.mark.parametrize("text", [b"caf\xe9\nx\n", "caf\u00e9\r\nx\r\n".encode(), "\ufeffcafé\nx\n".encode()])
def test_bytes_are_read_as_qmd_reads_them(files, folder, text):
    write(folder, "w/memory/a.md", text)
    first = text.decode("utf-8", "replace").split("\n")[0]
    assert place(files, row(snippet=f"{first}\nx", start=1, count=2))[0][1:3] == (1, 2)


LONG = "the long beginning of a line\nsecond\nthird\n"


@pytest.mark.parametrize(
    ("snippet", "count"),
    [
        ("beginning of a line\nsecond", 2),
        ("\nsecond\nthird", 3),
        ("\ufffdof a line\nsec", 2),
        ("\udd1eof a line\nsec...", 2),
        ("long begin...", 1),
    ],
)
def test_snippet_that_begins_within_a_line_is_shown_from_the_start_of_the_line(files, folder, snippet, count):
    write(folder, "w/memory/a.md", f"zero\n{LONG}")
    hit, moved = place(files, row(snippet=snippet, start=2, count=count))
    assert (hit[1], hit[3].split("\n")[0], moved) == (2, LONG.split("\n", maxsplit=1)[0], False)


@pytest.mark.parametrize("snippet", ["long begin", "beginning\nsecond", "a line\nthird", "other...", "xline\nsecond"])
def test_snippet_that_the_line_does_not_continue_gives_no_hit(files, folder, snippet):
    write(folder, "w/memory/a.md", f"zero\n{LONG}")
    assert place(files, row(snippet=snippet, start=2, count=2)) == (None, True)


@pytest.mark.parametrize(("start", "line", "expected"), [(0, 4, (4, 5)), (0, 0, (1, 1))])
def test_without_a_header_the_line_counts(files, folder, start, line, expected):
    write(folder, "w/memory/a.md")
    snippet = "two\nthree" if line else "# Title"
    assert place(files, row(snippet=snippet, start=start, count=0, line=line))[0][1:3] == expected


def test_without_a_snippet_the_line_is_shown(files, folder):
    write(folder, "w/memory/a.md")
    assert place(files, row(snippet="", start=0, count=0, line=4))[0] == ("memory/a.md", 4, 4, "two")
    assert place(files, row(snippet="", start=0, count=0, line=99)) == (None, True)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("qmd://memory-root/memory/a.md?index=other", "memory/a.md"),
        ("qmd://memory-root/memory/b?c#d%41&.md", "memory/b?c#d%41&.md"),
        ("qmd://memory-root/memory/Cafe\u0301.md", "memory/Cafe\u0301.md"),
        ("qmd://docs/x.md", "qmd/docs/x.md"),
        ("qmd://sessions/s1.md", "qmd/sessions/s1.md"),
        ("qmd://memory-root/memory/../secret.md", None),
        ("qmd://memory-root/../w/memory/a.md", None),
        ("qmd://memory-root//memory/a.md", None),
        ("qmd://nowhere/a.md", None),
        ("qmd://", None),
        ("file:///etc/passwd", None),
        ("memory/a.md", None),
    ],
)
def test_uris_are_taken_as_they_stand_and_kept_inside(files, folder, uri, path):
    for file in (
        "w/memory/a.md",
        "w/memory/b?c#d%41&.md",
        "w/memory/Cafe\u0301.md",
        "w/docs/x.md",
        "s/s1.md",
        "w/secret.md",
    ):
        write(folder, file)
    found, _ = place(files, row(uri))
    assert (found and found[0]) == path


@pytest.mark.parametrize("link", ["file", "folder"])
def test_nothing_is_read_through_a_link(files, folder, link):
    write(folder, "elsewhere/a.md")
    if link == "file":
        (folder / "w/memory/a.md").symlink_to(folder / "elsewhere/a.md")
    else:
        (folder / "w/memory/sub").symlink_to(folder / "elsewhere")
    uri = "qmd://memory-root/memory/a.md" if link == "file" else "qmd://memory-root/memory/sub/a.md"
    assert place(files, row(uri))[0] is None


def test_a_file_that_is_too_large_or_unreadable_gives_no_hit(files, folder):
    write(folder, "w/memory/a.md", TEXT + "x" * 2_000)
    assert place(files, row())[0] is None


def ranked(files, rows, *, ranking=PLAIN, most=6, **changes):
    return rank(files, rows, dataclasses.replace(QUERY, **changes), ranking, max_results=most, max_chars=700)


def test_a_file_that_the_ignore_rules_match_gives_no_hit(files, folder):
    write(folder, "w/memory/a.md")
    write(folder, "w/memory/private/b.md")
    write(folder, "s/c.md")
    rules = write(folder, "w/.memoryignore", "private/\nc.md\n")
    private = row("qmd://memory-root/memory/private/b.md")
    assert place(files, row())[0]
    assert place(files, private) == (None, False)
    # Exported transcripts have no rules.
    write(folder, "s/.memoryignore", "c.md\n")
    assert place(files, row("qmd://sessions/c.md"))[0]
    rules.write_text("x\n" * 10_000)
    assert place(files, row()) == (None, False)
    rules.unlink()
    assert place(files, private)[0]


def test_each_file_is_shown_once_by_its_best_row(files, folder):
    write(folder, "w/memory/a.md")
    found = ranked(files, [row(score=0.2), row(snippet="three\n", start=5, count=1, score=0.7)])
    assert [(hit.start_line, hit.score) for hit in found.hits] == [(5, 0.7)]


def test_a_score_of_nothing_is_a_hit_unless_the_caller_says_otherwise(files, folder):
    write(folder, "w/memory/a.md")
    assert len(ranked(files, [row(score=0.0)]).hits) == 1
    strict = ranked(files, [row(score=0.0)], min_score_is_requested=True)
    assert (strict.hits, strict.dropped) == ((), 1)


def test_equal_scores_keep_qmds_order(files, folder):
    names = ["c", "a", "b"]
    for name in names:
        write(folder, f"w/memory/{name}.md")
    found = ranked(files, [row(f"qmd://memory-root/memory/{name}.md", score=0.0) for name in names])
    assert [hit.path for hit in found.hits] == [f"memory/{name}.md" for name in names]


def test_memory_and_transcripts_take_turns(files, folder):
    rows = []
    for number in range(3):
        write(folder, f"w/memory/{number}.md")
        write(folder, f"s/{number}.md")
        rows.append(row(f"qmd://sessions/{number}.md", score=0.9 - number / 100))
        rows.append(row(f"qmd://memory-root/memory/{number}.md", score=0.5 - number / 100))
    found = ranked(files, rows, most=4)
    assert [hit.path for hit in found.hits] == ["qmd/sessions/0.md", "memory/0.md", "qmd/sessions/1.md", "memory/1.md"]


def test_age_takes_from_the_score(files, folder):
    write(folder, "w/memory/2026-05-02.md")
    file = write(folder, "w/docs/old.md")
    os.utime(file, (NOW.timestamp() - 60 * 86_400,) * 2)
    rows = [row("qmd://docs/old.md", score=0.8), row("qmd://memory-root/memory/2026-05-02.md", score=0.8)]
    found = ranked(files, rows, ranking=RankingConfig(decay=True, half_life_days=30, decay_floor=0.1))
    assert [hit.path for hit in found.hits] == ["memory/2026-05-02.md", "qmd/docs/old.md"]
    assert [round(hit.score, 2) for hit in found.hits] == [0.4, 0.2]
    assert [round(hit.decay, 2) for hit in found.hits] == [0.5, 0.25]


def test_files_that_are_gone_are_counted_and_take_no_place(files, folder):
    write(folder, "w/memory/b.md")
    found = ranked(files, [row(), row("qmd://memory-root/memory/b.md", score=0.1)], most=1)
    assert ([hit.path for hit in found.hits], found.gone, found.moved) == (["memory/b.md"], 1, True)


def test_citations_are_of_the_range_shown(files, folder):
    write(folder, "w/memory/a.md")
    (hit,) = ranked(files, [row()], citations=True).hits
    assert hit.snippet == "one\ntwo\n\nSource: memory/a.md#L3-L4"


def test_both_budgets_bound_the_text(files, folder):
    for name in "abc":
        write(folder, f"w/memory/{name}.md")
    hits = ranked(files, [row(f"qmd://memory-root/memory/{name}.md") for name in "abc"]).hits
    assert sum(len(hit.snippet) for hit in within_budgets(hits, QUERY, 10)) == 10
    tighter = dataclasses.replace(QUERY, max_total_chars=5)
    assert sum(len(hit.snippet) for hit in within_budgets(hits, tighter, 10)) == 5
