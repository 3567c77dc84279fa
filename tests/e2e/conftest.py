import pytest

from e2e.town import Town


@pytest.fixture
def town(tmp_path):
    town = Town(tmp_path)
    yield town
    town.close()
