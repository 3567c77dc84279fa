"""The SQLite driver fulfils the store contract."""

import pytest

from unit.store import sqlite_child
from unit.store.contract import StoreContract


class TestSqlite(StoreContract):
    """With all vectors of a small index in memory."""

    child = sqlite_child.__name__

    def new_store(self, folder):
        return sqlite_child.new_store(folder)


@pytest.mark.slow
class TestSqliteWithSignBits(TestSqlite):
    """With one bit of each number, as in a large index."""

    def new_store(self, folder):
        return sqlite_child.new_store(folder, coarse_above=2)


@pytest.mark.slow
class TestSqliteWithoutMemory(TestSqlite):
    """With no vectors in memory."""

    def new_store(self, folder):
        return sqlite_child.new_store(folder, memory_budget_bytes=0)
