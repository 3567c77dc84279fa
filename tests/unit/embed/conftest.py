import pytest

from fake_providers import embedding_server
from memoryd_server.embed.model_files import FileOnDisk


@pytest.fixture
def server():
    with embedding_server() as server:
        yield server


@pytest.fixture(scope="session")
def model_file(model_path):
    return FileOnDisk(model_path)
