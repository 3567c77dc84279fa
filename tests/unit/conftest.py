import pytest

from index_fixture import IndexFixture


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path)
    yield index
    index.close()


@pytest.fixture
def opened(index):
    return index.open()
