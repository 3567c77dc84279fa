import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from memoryd_server.writing import memory_file
from tiers import keep_cases
from unit.writing.patient import PatientAppender

# Most cases start a process. The fast tier runs so many cases of a parametrized test.
FAST_CASES = 4


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    keep_cases(items, Path(__file__).parent, FAST_CASES)


CHILD = Path(__file__).parent / "appending_child.py"


@dataclass
class AppendFixture:
    """A workspace with a ledger, and processes that append to it."""

    workspace: Path
    ledger: Path

    def appender(self):
        return PatientAppender(self.workspace, self.ledger)

    def start(self, path, key, text, *, step="none", count=1):
        command = [sys.executable, CHILD, self.workspace, self.ledger, path, key, text, step, str(count)]
        return subprocess.Popen([str(part) for part in command])

    def file(self, path):
        return self.workspace / path

    def lines(self, path, appended):
        return self.file(path).read_bytes().split(b"\n")[appended.start_line - 1 : appended.end_line]


@pytest.fixture
def replace_write(monkeypatch):
    """Replace how memory files are written: `replace_write(write)` with `write(fd, data)`; None restores it."""
    write_all = memory_file.write_all
    return lambda write: monkeypatch.setattr(memory_file, "write_all", write or write_all)


@pytest.fixture
def fixture(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return AppendFixture(workspace, tmp_path / "state" / "memory" / "main.appends")
