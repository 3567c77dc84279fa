"""The list of an agent's files: a long one is kept for its next pages."""

from memoryd_server.agent.files import LISTING_SECONDS, FileListing
from memoryd_server.model import FileStat, Source, SourceFile
from memoryd_server.sources import Discovery, ForgottenSources
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
    forgotten = ForgottenSources(tmp_path / "forgotten")
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
