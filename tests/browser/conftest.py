import importlib.util
from pathlib import Path

import pytest

# The tests import Playwright when they are collected.
collect_ignore_glob = [] if importlib.util.find_spec("playwright") else ["test_*.py"]


def pytest_collection_modifyitems(items):
    below = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(below):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import expect  # noqa: PLC0415 -- missing without `make browser`

    from browser.chromium import AXE, STEP_MS, chromium, executable  # noqa: PLC0415

    if executable() is None:
        pytest.skip("there is no Chromium; MEMORYD_TEST_CHROMIUM can name one")
    if not AXE.exists():
        pytest.skip("axe-core is missing: `make browser` installs it")
    expect.set_options(timeout=STEP_MS)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def daemon_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("inspected")


@pytest.fixture(scope="session")
def inspected(daemon_folder):
    """The daemon of all tests that do not change how it treats them."""
    from browser.inspected_daemon import inspected_daemon  # noqa: PLC0415

    with inspected_daemon(daemon_folder, hostile=True) as inspected:
        yield inspected


@pytest.fixture(scope="session")
def token(inspected):
    """A token for all agents that may read."""
    return inspected.new_token(name="reader")[1]


@pytest.fixture
def opened(browser):
    """Opens pages without a session, and checks at the end what each of them did."""
    from browser.inspector import new_inspector  # noqa: PLC0415

    inspectors = []

    def open_page(inspected, **options):
        inspector = new_inspector(browser, inspected, **options)
        inspectors.append(inspector)
        return inspector

    yield open_page
    try:
        for inspector in inspectors:
            inspector.check()
    finally:
        for inspector in inspectors:
            inspector.context.close()


@pytest.fixture
def inspector(opened, inspected, token):
    """A page that is signed in and shows the overview."""
    return opened(inspected).sign_in(token)
