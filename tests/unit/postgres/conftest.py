"""The PostgreSQL driver, with a server that the tests of a session share."""

import importlib
from types import SimpleNamespace

import pytest

from postgres_server import postgres_server  # noqa: F401 -- a fixture


@pytest.fixture(scope="session")
def postgres_module(postgres_server):  # noqa: F811 -- the fixture
    """The driver, its server, and functions that make databases and stores of agents of their own."""
    child = importlib.import_module("unit.store.postgres_child")

    def database(url=postgres_server.url, **options):
        return child.Database(child.DatabaseConfig(url, **options))

    shared = database()

    # By default, one that holds the lease of the agent while it is open, so that the tests can write at any time.
    def new_store(agent, of=shared, *, keeps_lease=True, **options):
        return child.PostgresStore(of, str(agent), child.IDENTITY, keeps_lease=keeps_lease, **options)

    return SimpleNamespace(server=postgres_server, database=database, new_store=new_store, child=child)


@pytest.fixture
def new_memory(postgres_module, request):
    """A function that makes the documents of an agent, by default of one of the test alone."""
    module = importlib.import_module("unit.postgres.document_memory")
    made = []

    def new(agent=request.node.nodeid, database=None, **options):
        made.append(module.DocumentMemory(database or postgres_module.database(), str(agent), **options))
        return made[-1]

    yield new
    for memory in made:
        memory.close()
