import pytest

# Before a test module imports them.
pytest.register_assert_rewrite("unit.sources.corpus_contract", "unit.store.contract", "unit.store.history_contract")

from index_fixture import IndexFixture  # noqa: E402 -- see above


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path)
    yield index
    index.close()


@pytest.fixture
def opened(index):
    return index.open()
