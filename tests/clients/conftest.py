"""What the tests of all clients share: the daemons and the runners."""

from pathlib import Path

import pytest

from clients.daemon_fixture import ClientsDaemon
from clients.runner import running
from daemon_process import LAUNCHER
from tiers import keep_cases

# Each case starts a client. The fast tier runs so many cases of a parametrized test; `make clients` runs all.
FAST_CASES = 6


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    keep_cases(items, Path(__file__).parent, FAST_CASES)


@pytest.fixture(autouse=True)
def preloaded_modules(request):
    """Fork daemons from a process with their modules if the test is of `make clients` or of the long tier."""
    enabled = any(request.node.get_closest_marker(name) for name in ("clients", "slow"))
    with LAUNCHER.used(enabled):
        yield


@pytest.fixture(scope="module")
def daemons(tmp_path_factory):
    """A daemon that speaks TLS, a `plain` one, and a `mutual` one, each started when it is first asked for."""
    made = {}

    def daemon(**kind):
        name = str(sorted(kind.items()))
        if name not in made:
            made[name] = ClientsDaemon(tmp_path_factory.mktemp("g"), **kind).start()
        return made[name]

    yield daemon
    for each in made.values():
        each.stop()


@pytest.fixture(scope="module")
def runners(request, tmp_path_factory):
    """The runners of a language."""
    with running(request.param.or_skip().command, tmp_path_factory) as runner:
        yield runner
