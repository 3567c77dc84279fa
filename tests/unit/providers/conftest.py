from pathlib import Path

import pytest

from fake_providers import embedding_server
from memoryd_server.providers.model_files import LocalModelFile
from tiers import keep_cases

# Most cases start a server. The fast tier runs so many cases of a parametrized test.
FAST_CASES = 4


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    keep_cases(items, Path(__file__).parent, FAST_CASES)


@pytest.fixture
def server():
    with embedding_server() as server:
        yield server


@pytest.fixture(scope="session")
def model_file(model_path):
    return LocalModelFile(model_path)
