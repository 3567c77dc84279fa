from pathlib import Path

import pytest

from daemon_process import LAUNCHER
from e2e.daemon_fixture import DaemonFixture
from tiers import keep_cases

# Each case starts processes of a second each. The fast tier runs so many cases of a parametrized test.
FAST_CASES = 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    keep_cases(items, Path(__file__).parent, FAST_CASES)


@pytest.fixture(autouse=True)
def preloaded_modules(request):
    """Fork `memoryd` from a process with its modules in the long tier; the fast tier starts it as users do."""
    with LAUNCHER.used(request.node.get_closest_marker("slow") is not None):
        yield


@pytest.fixture
def daemons(tmp_path):
    daemons = DaemonFixture(tmp_path)
    yield daemons
    daemons.close()


@pytest.fixture
def places(tmp_path):
    """A home, a workspace with one note, and a state directory that is private, as doctor wants it."""
    home, workspace, state = tmp_path / "h", tmp_path / "w", tmp_path / "s"
    for folder in (home, workspace / "memory", state):
        folder.mkdir(parents=True)
    state.chmod(0o700)
    (workspace / "memory" / "a.md").write_text("the red ferry sails at dawn")
    return home, workspace, state
