"""The engine of an agent without an index of memoryd's own."""

import pytest

from memoryd_server.model import Clock
from memoryd_server.qmd.backend import QmdSyncRunner
from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.roots import Roots
from memoryd_server.sync.plan import FULL_SCOPE
from memoryd_server.sync.progress import SyncMode


class Watcher:
    def __getattr__(self, _):
        return lambda *_: None


class QmdRunnerFixture:
    def __init__(self, folder):
        self.memory = folder / "memory"
        self.memory.mkdir()
        self.roots = Roots(str(folder))
        self.covered = None
        self.engine = QmdSyncRunner(self.roots, lambda: self.covered, Clock())

    def write(self, **notes):
        for name, text in notes.items():
            (self.memory / f"{name}.md").write_text(text)

    def run(self):
        return self.engine.run(SyncMode.INCREMENTAL, Watcher(), lambda: False)


@pytest.fixture
def qmd(tmp_path):
    return QmdRunnerFixture(tmp_path)


def test_before_the_first_update_everything_waits(qmd):
    qmd.write(a="one", b="two")
    state = qmd.engine.compare()
    assert (state.plan.pending, len(state.rows)) == (2, 0)
    assert qmd.engine.estimate(SyncMode.FULL, FULL_SCOPE).files == 2


def test_the_indexed_files_are_those_listed_before_the_update(qmd):
    qmd.write(a="one", b="two", c="three")
    qmd.covered = discover_files(qmd.roots)
    assert qmd.engine.compare().plan.pending == 0
    qmd.write(a="changed", d="four")
    (qmd.memory / "b.md").unlink()
    outcome = qmd.run()
    assert (outcome.files, outcome.indexed_files, outcome.removed_files, outcome.unchanged_files) == (3, 2, 1, 1)
    assert outcome.changed
    plan = qmd.engine.compare().plan
    assert [file.path for file in plan.changed] == ["memory/a.md", "memory/d.md"]
    assert [row.path for row in plan.removed] == ["memory/b.md"]


def test_nothing_changed_is_nothing_to_do(qmd):
    qmd.write(a="one")
    qmd.covered = discover_files(qmd.roots)
    assert not qmd.run().changed
