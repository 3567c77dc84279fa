"""The list of an agent's files: a long one is kept for its next pages."""

import os
from datetime import UTC, date, datetime
from functools import partial

import pytest

from index_fixture import IndexFixture
from memoryd_server.agent.file_listing import LISTING_SECONDS, FileListing, indexed_files
from memoryd_server.model import FileStat, Source, SourceFile
from memoryd_server.sources import Discovery, ExcludedPlace, ForgottenFile, ForgottenSources
from memoryd_server.store import ALL_CHUNKS, ChunkFilter, FileFilter, FrontMatterCondition
from memoryd_server.sync import DiskComparison
from memoryd_server.sync.plan import make_plan


class Disk:
    """Files of these names, and how often they were compared with the index."""

    def __init__(self, *names):
        self.names = names
        self.compared = 0

    def compare(self):
        self.compared += 1
        stat = FileStat(1, 2, 3, 4, 5)
        files = tuple(SourceFile(f"memory/{name}", Source.MEMORY, "/w", ("memory", name), stat) for name in self.names)
        discovery = Discovery(files, (), ())
        return DiskComparison(discovery, {}, make_plan(discovery, {}), None)


def listing(disk, tmp_path, now=lambda: 0.0):
    forgotten = ForgottenSources(ForgottenFile(tmp_path / "forgotten"))
    return FileListing(disk.compare, forgotten, now, most_compared_per_page=2)


def paths(files):
    return [file.path for file in files]


def test_long_list_is_kept_for_its_next_pages(tmp_path):
    disk = Disk("c.md", "a.md", "b.md")
    files = listing(disk, tmp_path)
    made = files.make()
    assert paths(made) == ["memory/a.md", "memory/b.md", "memory/c.md"]
    assert files.kept() is made
    assert disk.compared == 1


def test_short_list_is_made_for_each_page(tmp_path):
    files = listing(Disk("a.md", "b.md"), tmp_path)
    files.make()
    assert files.kept() is None


def test_kept_list_is_dropped_when_it_is_old_or_has_become_short(tmp_path):
    disk, now = Disk("a.md", "b.md", "c.md"), [100.0]
    files = listing(disk, tmp_path, lambda: now[0])
    files.make()
    now[0] += LISTING_SECONDS - 0.1
    assert files.kept() is not None
    now[0] += 0.1
    assert files.kept() is None
    files.make()
    disk.names = ("a.md",)
    files.make()
    assert files.kept() is None


def test_kept_list_is_of_one_filter(tmp_path):
    disk = Disk("a.md", "b.md", "c.md")
    files = listing(disk, tmp_path)
    only_a = ChunkFilter(FileFilter(path_prefixes=("memory/a",)))
    made = files.make(only_a)
    assert paths(made) == ["memory/a.md"]
    assert files.kept(only_a) is made
    assert files.kept() is files.kept(ChunkFilter(FileFilter(path_prefixes=("memory/b",)))) is None
    assert files.kept(only_a) is made, "another caller's page does not drop it"
    every = files.make()
    assert (files.kept(), files.kept(only_a)) == (every, None)
    assert paths(every) == ["memory/a.md", "memory/b.md", "memory/c.md"]


def test_a_kept_list_is_one_with_or_without_what_is_excluded(tmp_path):
    disk, calls = Disk("b.md", "d.md"), []

    def excluded():
        calls.append(None)
        return [ExcludedPlace("memory/c.md", "a rule"), ExcludedPlace("memory/a/", "a rule")]

    forgotten = ForgottenSources(ForgottenFile(tmp_path / "forgotten"))
    files = FileListing(disk.compare, forgotten, lambda: 0.0, excluded=excluded, most_compared_per_page=2)
    assert paths(files.make()) == ["memory/b.md", "memory/d.md"]
    assert calls == []
    made = files.make(excluded=True)
    assert paths(made) == ["memory/a/", "memory/b.md", "memory/c.md", "memory/d.md"]
    assert [file.rule for file in made] == ["a rule", "", "a rule", ""]
    assert files.kept(excluded=True) is made
    assert files.kept() is None


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path)
    index.write("memory/2026-05-01-trip.md", "---\ntags: [Billing, x]\n---\nheron")
    index.write("memory/tagged.md", "---\ndate: 2026-04-02\ntags: billing, y\n---\nheron")
    index.write("projects/plain.md", "heron")
    yield index.open()
    index.close()


def listing_of(index, tmp_path):
    indexed = partial(indexed_files, index.store)
    return FileListing(
        index.engine().compare, ForgottenSources(ForgottenFile(tmp_path / "f")), lambda: 0.0, indexed=indexed
    )


CONDITIONS = {
    "path": ({"path_prefixes": ("memory/t", "projects/")}, ["memory/tagged.md", "projects/plain.md"]),
    "date": ({"since": date(2026, 4, 1), "until": date(2026, 4, 30)}, ["memory/tagged.md"]),
    "name": ({"since": date(2026, 5, 1), "until": date(2026, 5, 1)}, ["memory/2026-05-01-trip.md"]),
    "tag": (
        {"front_matter": (FrontMatterCondition("tags", ("billing",)),)},
        ["memory/2026-05-01-trip.md", "memory/tagged.md"],
    ),
}


@pytest.mark.parametrize(("conditions", "expected"), CONDITIONS.values(), ids=CONDITIONS)
def test_indexed_files_match_by_the_index(index, tmp_path, conditions, expected):
    index.roots = type(index.roots)(str(index.workspace), ("projects",))
    index.sync()
    files = FileListing(
        index.engine().compare,
        ForgottenSources(ForgottenFile(tmp_path / "f")),
        lambda: 0.0,
        indexed=partial(indexed_files, index.store),
    )
    assert paths(files.make(ChunkFilter(FileFilter(**conditions)))) == expected
    assert len(files.make(ALL_CHUNKS)) == len(files.make(ChunkFilter(sources=(Source.MEMORY,)))) == 3
    assert files.make(ChunkFilter(sources=(Source.SESSIONS,))) == []


def test_files_that_are_not_indexed_match_by_path_name_and_time_and_not_by_front_matter(index, tmp_path):
    files = FileListing(
        index.engine().compare,
        ForgottenSources(ForgottenFile(tmp_path / "f")),
        lambda: 0.0,
        indexed=partial(indexed_files, index.store),
    )

    def found(**conditions):
        return paths(files.make(ChunkFilter(FileFilter(**conditions))))

    assert found(since=date(2026, 5, 1), until=date(2026, 5, 1)) == ["memory/2026-05-01-trip.md"]
    last_second = int(datetime(2025, 3, 4, 23, 59, 59, tzinfo=UTC).timestamp())
    os.utime(index.workspace / "memory" / "tagged.md", (last_second, last_second))
    assert (
        found(since=date(2025, 3, 4), until=date(2025, 3, 4)) == found(until=date(2026, 4, 30)) == ["memory/tagged.md"]
    )
    assert found(until=date(2025, 3, 3)) == []
    assert found(path_prefixes=("memory/2026",)) == ["memory/2026-05-01-trip.md"]
    assert found(front_matter=(FrontMatterCondition("tags", ("billing",)),)) == []
    index.sync()
    assert found(front_matter=(FrontMatterCondition("tags", ("x",)),)) == ["memory/2026-05-01-trip.md"]
