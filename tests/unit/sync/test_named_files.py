"""If it is known which files have changed, a sync reads only these, as long as that is safe."""

import shutil

import pytest

from index_fixture import ANALYZER, IDENTITY, MOST_FILE_BYTES, IndexFixture, RecordingObserver
from memoryd_server.model import Clock
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sync.engine import SyncEngine
from memoryd_server.sync.plan import DUE_SCOPE, FULL_SCOPE, PendingScope, SyncPlanner, SyncScope
from memoryd_server.sync.prepare import FilePreparer
from memoryd_server.sync.progress import SyncMode

A, B = "memory/a.md", "memory/b.md"


class Looked(SyncPlanner):
    """Counts how often all files were looked for."""

    looks = 0

    def discover(self):
        self.looks += 1
        return super().discover()


class Named:
    """A synced workspace of two files, whose next sync gets the names of changed files."""

    def __init__(self, folder, *, synced=True):
        self.index = IndexFixture(folder, extra_paths=("../team",)).open()
        self.asks = PendingScope()
        corpus = FolderCorpus(self.index.roots)
        self.survey = Looked(corpus, self.asks)
        files = {"read": corpus.read, "open_transcript": corpus.open_transcript}
        preparer = FilePreparer(ANALYZER, IDENTITY, MOST_FILE_BYTES, self.index.now_ns, **files)
        self.engine = SyncEngine(self.index.store, self.survey, preparer, files_per_transaction=10, clock=Clock())
        for path in (A, B, "../team/c.md"):
            self.index.write(path, "the heron\n")
        if synced:
            self.sync(FULL_SCOPE)

    def append(self, path, text):
        with (self.index.workspace / path).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def sync(self, *asks):
        """Returns the outcome, and whether all files were looked for."""
        self.survey.looks = 0
        for ask in asks:
            self.asks.add(ask)
        outcome = self.engine.run(SyncMode.INCREMENTAL, RecordingObserver(), lambda: False)
        return outcome, self.survey.looks > 0


@pytest.fixture
def named(tmp_path):
    named = Named(tmp_path)
    yield named
    named.index.close()


def test_a_file_that_was_named_is_indexed_and_no_other_is_looked_for(named):
    named.append(A, "a kestrel")
    named.append(B, "a stork")
    outcome, everywhere = named.sync(SyncScope.of_files(A))
    assert (outcome.indexed_files, outcome.removed_files, everywhere) == (1, 0, False)
    assert named.index.found("kestrel") == [A]
    assert named.index.found("stork") == []
    assert named.engine.compare().plan.pending == 1
    outcome, everywhere = named.sync(DUE_SCOPE)
    assert (outcome.indexed_files, everywhere) == (1, True)
    assert named.index.found("stork") == [B]


def test_several_named_files_are_indexed_in_one_run(named):
    named.append(A, "a kestrel")
    named.append(B, "a stork")
    outcome, everywhere = named.sync(SyncScope.of_files(A), SyncScope.of_files(B))
    assert (outcome.indexed_files, everywhere) == (2, False)


def test_a_full_scope_covers_all_files(named):
    named.append(B, "a stork")
    outcome, everywhere = named.sync(SyncScope.of_files(A), DUE_SCOPE)
    assert (outcome.indexed_files, everywhere) == (1, True)
    assert named.index.found("stork") == [B]


def make_new(named):
    named.index.write("memory/new.md", "a kestrel\n")
    return "memory/new.md"


def replace_by_another(named):
    """As editors save: the name is another file's now."""
    path = named.index.workspace / A
    other = path.with_suffix(".tmp")
    other.write_text("a kestrel\n")
    other.rename(path)
    return A


def remove(named):
    (named.index.workspace / A).unlink()
    return A


def let_it_fail_before(named):
    """A file that was too large: whether it counts now is not for its stat to say."""
    path = named.index.workspace / A
    with path.open("r+b") as file:
        file.truncate(MOST_FILE_BYTES + 1)
    named.sync(FULL_SCOPE)
    path.write_text("a kestrel\n")
    return A


def remove_with_its_folder(named):
    """Whether its drive is only not mounted, discovery knows."""
    named.index.write("memory/sub/d.md", "the heron\n")
    named.sync(FULL_SCOPE)
    shutil.rmtree(named.index.workspace / "memory" / "sub")
    return "memory/sub/d.md"


def make_new_at_the_top(named):
    named.index.write("USER.md", "a kestrel\n")
    return "USER.md"


def make_new_next_to_an_unusable_ignore_file(named):
    named.index.write(".memoryignore", "x\n" * 1_000)
    return make_new(named)


def make_new_in_an_ignored_folder(named):
    named.index.write(".memoryignore", "drafts/\n*.tmp.md\n")
    named.index.write("memory/a.tmp.md", "a kestrel\n")
    named.index.write("memory/deep/drafts/new.md", "a kestrel\n")
    return "memory/deep/drafts/new.md"


@pytest.mark.parametrize("change", [make_new_next_to_an_unusable_ignore_file, make_new_in_an_ignored_folder])
def test_a_named_file_that_is_not_memory_is_not_indexed(named, change):
    path = change(named)
    for scope in (SyncScope.of_files(path), SyncScope.of_files("memory/a.tmp.md", path), DUE_SCOPE):
        _, everywhere = named.sync(scope)
        assert everywhere
        assert named.index.found("kestrel") == []


@pytest.mark.parametrize("change", [make_new_at_the_top, remove_with_its_folder, let_it_fail_before])
def test_all_files_are_discovered_if_a_named_file_may_not_be_the_indexed_one(named, change):
    path = change(named)
    _, everywhere = named.sync(SyncScope.of_files(path))
    assert everywhere
    assert named.index.found("kestrel") == ([] if change is remove_with_its_folder else [path])
    assert named.engine.compare().plan.pending == 0


@pytest.mark.parametrize(("change", "found"), [(replace_by_another, [A]), (remove, []), (make_new, ["memory/new.md"])])
def test_a_named_file_that_was_created_replaced_or_deleted_needs_no_discovery(named, change, found):
    path = change(named)
    outcome, everywhere = named.sync(SyncScope.of_files(path))
    assert (outcome.changed, everywhere) == (True, False)
    assert named.index.found("kestrel") == found
    assert named.index.found("heron") == ["../team/c.md", *([A] if change is make_new else []), B]
    assert named.engine.compare().plan.pending == 0


def test_a_replaced_file_that_has_two_names_counts_once_after_the_next_discovery(named):
    replace_by_another(named)
    (named.index.workspace / "memory" / "0.md").hardlink_to(named.index.workspace / A)
    named.sync(SyncScope.of_files(A))
    assert named.index.found("kestrel") == [A]
    named.sync(DUE_SCOPE)
    assert named.index.found("kestrel") == ["memory/0.md"]


def test_a_path_that_is_none_of_the_sources_does_no_harm(named):
    _, everywhere = named.sync(SyncScope.of_files("../../etc/passwd.md"))
    assert everywhere


def test_a_run_for_named_files_keeps_the_list_of_hidden_folders(named, tmp_path):
    shutil.move(tmp_path / "team", tmp_path / "away")
    named.sync(DUE_SCOPE)
    hidden = named.engine.last_comparison.hidden
    assert [place.files for place in hidden] == [1]
    named.append(A, "a kestrel")
    _, everywhere = named.sync(SyncScope.of_files(A))
    assert not everywhere
    assert named.engine.last_comparison.hidden == hidden
    assert sorted(named.index.paths()) == ["../team/c.md", A, B]


def test_a_first_sync_indexes_everything_with_any_scope(tmp_path):
    named = Named(tmp_path, synced=False)
    outcome, everywhere = named.sync(SyncScope.of_files(A))
    assert (outcome.indexed_files, everywhere) == (3, True)
    named.index.close()
