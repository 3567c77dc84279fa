from pathlib import Path

import pytest

from e2e.town import Town
from tiers import keep_cases

# Each case starts processes of a second each. The fast tier runs so many cases of a parametrized test.
FAST_CASES = 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    keep_cases(items, Path(__file__).parent, FAST_CASES)


@pytest.fixture
def town(tmp_path):
    town = Town(tmp_path)
    yield town
    town.close()
