"""The PostgreSQL driver fulfils the contracts of the store and of the vector cache."""

import importlib

import pytest

from postgres_server import postgres_server  # noqa: F401 -- a fixture
from unit.store.contract import StoreContract
from unit.store.vector_cache_contract import VectorCacheContract

CHILD = "unit.store.postgres_child"


@pytest.fixture
def driver(postgres_server):  # noqa: F811 -- the fixture
    """The module that makes stores, which imports the driver, and the URL of the database."""
    return importlib.import_module(CHILD), postgres_server.url


class TestPostgres(StoreContract):
    """With a real server, which all tests share; each test has an agent of its own."""

    child = CHILD

    @pytest.fixture(autouse=True)
    def _database(self, driver, tmp_path):
        self.module, url = driver
        self.database = self.module.Database(self.module.DatabaseConfig(url))
        (tmp_path / self.module.URL_FILE).write_text(url)

    def new_store(self, folder):
        return self.module.new_store(folder, self.database)


class TestPostgresCache(VectorCacheContract):
    """In the tables of an agent of its own."""

    @pytest.fixture(autouse=True)
    def _database(self, driver):
        self.module, url = driver
        self.database = self.module.Database(self.module.DatabaseConfig(url))

    def new_cache(self, folder, max_entries, now_ms, **options):
        agent = self.module.agent_of(folder)
        return self.module.PostgresEmbeddingCache(self.database, agent, max_entries, now_ms, **options)
