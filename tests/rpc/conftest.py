import functools
import os
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pytest

from fake_providers import embedding_server
from fake_qmd.installs import make_fake
from memoryd_server.access import admission
from memoryd_server.app import config, plugins
from memoryd_server.providers import ThrottleConfig
from memoryd_server.qmd import fallback
from memoryd_server.qmd.fallback import CircuitBreaker
from rpc.sync_streams import PausedSync
from rpc.wire import Home, quiet, start
from tiers import keep_cases

# Each case starts a daemon. The fast tier runs so many cases of a parametrized test.
FAST_CASES = 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    store = config.getoption("store")
    # The markers of the stores without which a test cannot run.
    names = {"sqlite": [], "postgres": ["sqlite_only"], "documents": ["sqlite_only", "folder_only"]}[store]
    for item, name in product(items, names):
        for marker in item.iter_markers(name):
            item.add_marker(pytest.mark.skip(*marker.args))
    keep_cases(items, Path(__file__).parent, FAST_CASES)


@pytest.fixture(scope="session", autouse=True)
def databases(request):
    """Give each home a database with `--store=postgres` or `documents`, and none otherwise."""
    if request.config.getoption("store") == "sqlite":
        yield None
        return
    from rpc.databases import running_databases  # noqa: PLC0415 -- the extra is optional

    with running_databases() as databases:
        Home.databases, Home.has_documents = databases, request.config.getoption("store") == "documents"
        yield databases
        Home.databases, Home.has_documents = None, False


@pytest.fixture(autouse=True)
def databases_of_test(databases):
    """Drop the databases of the test's homes after it."""
    with nullcontext() if databases is None else databases.dropped():
        yield


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.fixture
def qmd_home(home):
    """The `home` of the test with one note, and with no more of an environment than a fake qmd needs."""
    home.environ = {"PATH": os.defpath, "HOME": str(home.root)}
    home.write(a="# Harbour\n\na crane\n")
    return home


@pytest.fixture
def fake(tmp_path):
    """A qmd that fails as it is told to."""
    return make_fake(tmp_path / "bin")


@pytest.fixture
async def serve(home):
    """Starts daemons and stops them after the test. Without `background` nothing happens that no call asks for."""
    started = []

    async def serve(settings=None, *, background=False, at=home, **flags):
        running = await start(at, settings if background else quiet(settings), background=background, **flags)
        started.append(running)
        return running

    yield serve
    for running in started:
        await running.stop()


@pytest.fixture
def provider():
    """A server whose vectors are near where texts share words."""
    with embedding_server() as server:
        yield server


@pytest.fixture
def elsewhere(monkeypatch):
    """Give a fake provider the address of another machine, which is reached through a proxy on loopback."""
    return lambda server: monkeypatch.setenv(*server.behind_proxy("embeddings.example"))


@pytest.fixture
def remote_provider(provider, elsewhere):
    """The `provider`, at the address of another machine: what is sent there may cost money."""
    elsewhere(provider)
    return provider


@pytest.fixture
def frequent_file_checks(monkeypatch):
    """Check token files and certificates every 50 ms."""
    monkeypatch.setattr(admission, "LOOK_SECONDS", 0.05)


@pytest.fixture
def without_lancedb(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.fixture
def before_open(monkeypatch, home):
    """Call `action(store)` before each `open` of a store: one of an index, unless `store_class` is another."""

    def before_open(action, store_class=home.store.store_class):
        open_store = store_class.open

        def opened(store):
            action(store)
            open_store(store)

        monkeypatch.setattr(store_class, "open", opened)

    return before_open


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    """Retry calls of a provider soon after a failure: the real pauses cost seconds in every test of a failure."""
    quick = functools.partial(ThrottleConfig, first_pause_seconds=0.01)
    for module in (config, plugins):
        monkeypatch.setattr(module, "ThrottleConfig", quick)


@pytest.fixture
def short_trial_pauses(monkeypatch):
    """Try qmd again soon after a failure."""
    monkeypatch.setattr(fallback, "CircuitBreaker", functools.partial(CircuitBreaker, first_pause_seconds=0.05))


@pytest.fixture
def pause_sync(monkeypatch):
    holds = []

    def pause_sync(running, at=0, agent_id="main"):
        holds.append(PausedSync(running, monkeypatch, at, agent_id))
        return holds[-1]

    yield pause_sync
    for held in holds:
        held.release()
