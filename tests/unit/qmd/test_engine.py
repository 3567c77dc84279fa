"""The engine of an agent without an index of memoryd's own."""

import pytest

from memoryd_server.model import Clock
from memoryd_server.qmd.backend import QmdSyncRunner
from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.roots import Roots
from memoryd_server.sync.planner import FULL_SCOPE
from memoryd_server.sync.progress import SyncMode


class Watcher:
    def __getattr__(self, _):
        return lambda *_: None


class Desk:
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
def desk(tmp_path):
    return Desk(tmp_path)


def test_before_the_first_update_everything_waits(desk):
    desk.write(a="one", b="two")
    state = desk.engine.compare()
    assert (state.plan.pending, len(state.rows)) == (2, 0)
    assert desk.engine.estimate(SyncMode.FULL, FULL_SCOPE).files == 2


def test_what_qmd_took_in_is_what_was_there_before_its_update(desk):
    desk.write(a="one", b="two", c="three")
    desk.covered = discover_files(desk.roots)
    assert desk.engine.compare().plan.pending == 0
    desk.write(a="changed", d="four")
    (desk.memory / "b.md").unlink()
    outcome = desk.run()
    assert (outcome.files, outcome.indexed_files, outcome.removed_files, outcome.unchanged_files) == (3, 2, 1, 1)
    assert outcome.changed
    plan = desk.engine.compare().plan
    assert [file.path for file in plan.changed] == ["memory/a.md", "memory/d.md"]
    assert [row.path for row in plan.removed] == ["memory/b.md"]


def test_nothing_changed_is_nothing_to_do(desk):
    desk.write(a="one")
    desk.covered = discover_files(desk.roots)
    assert not desk.run().changed
