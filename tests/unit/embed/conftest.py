import importlib.util
import os
from pathlib import Path

import pytest

from embedding_server import embedding_server
from memoryd_server.embed.model_files import FileOnDisk

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def server():
    with embedding_server() as server:
        yield server


@pytest.fixture(scope="session")
def model_path():
    """A real model, where the extra and a model are present."""
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is missing: `make setup-local` installs it")
    beside = REPOSITORY.parent / "shared" / "models" / "all-minilm-l6-v2-q8_0.gguf"
    path = Path(os.environ.get("MEMORYD_TEST_MODEL") or beside)
    if not path.is_file():
        pytest.skip(f"no model at {path}; MEMORYD_TEST_MODEL names one")
    return path


@pytest.fixture(scope="session")
def model_file(model_path):
    return FileOnDisk(model_path)
