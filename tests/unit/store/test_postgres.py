"""The PostgreSQL driver fulfils the contracts of the store, of the vector cache and of the history of writes."""

import importlib
import zlib

import pytest
from hypothesis import HealthCheck, given, settings

from postgres_server import DATABASE, postgres_server  # noqa: F401 -- a fixture
from properties import examples
from unit.store.contract import StoreContract
from unit.store.history_contract import OPERATIONS, SIZE_LIMITS, HistoryContract
from unit.store.vector_cache_contract import VectorCacheContract

pytestmark = pytest.mark.postgres

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


class TestPostgresHistory(HistoryContract):
    """In the tables of an agent of its own."""

    @pytest.fixture(autouse=True)
    def _database(self, driver, postgres_server):  # noqa: F811 -- the fixture
        self.module, url = driver
        self.database = self.module.Database(self.module.DatabaseConfig(url))
        self.server = postgres_server

    def new_history(self, folder, **options):
        return self.module.PostgresWriteHistory(self.database, self.module.agent_of(folder), **options)

    def cost(self, records, contents):
        return self.module.RECORD_BYTES * len(records) + sum(len(zlib.compress(each)) for each in contents.values())

    def check_stored(self, folder, contents):
        agent = [self.module.agent_of(folder)]
        with self.server.admin(DATABASE) as connection:
            rows = "FROM memoryd.history_contents WHERE agent_id = %s"
            found = connection.execute(f"SELECT digest, data {rows}", agent).fetchall()
            records = connection.execute("SELECT count(*) FROM memoryd.history_records WHERE agent_id = %s", agent)
            total = connection.execute("SELECT sum(bytes) FROM memoryd.histories WHERE agent_id = %s", agent)
            expected = self.module.RECORD_BYTES * records.fetchone()[0] + sum(len(data) for _, data in found)
            assert (total.fetchone()[0] or 0) == expected
        assert {digest for digest, _ in found} == contents

    @settings(
        max_examples=examples(100),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(OPERATIONS, SIZE_LIMITS)
    def test_random_operations_leave_the_records_and_contents_of_the_model(self, operations, max_bytes):
        self.check_operations(operations, max_bytes)
