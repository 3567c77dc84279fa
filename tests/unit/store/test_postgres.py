"""The PostgreSQL driver fulfils the store contract."""

import importlib
import importlib.util

import pytest

from postgres_server import postgres_server  # noqa: F401 -- a fixture
from unit.store.contract import StoreContract

CHILD = "unit.store.postgres_child"


class TestPostgres(StoreContract):
    """With a real server, which all tests share; each test has an agent of its own."""

    child = CHILD

    @pytest.fixture(autouse=True)
    def _server(self, postgres_server, tmp_path):  # noqa: F811 -- the fixture
        self.module = importlib.import_module(CHILD)
        self.url = postgres_server.url
        (tmp_path / self.module.URL_FILE).write_text(self.url)
        self.database = self.module.Database(self.module.DatabaseConfig(self.url))

    def new_store(self, folder):
        return self.module.new_store(folder, self.database)
