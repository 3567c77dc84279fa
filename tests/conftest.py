"""What every test shares: short temporary folders, no deadline for property tests, and a real model."""

import gc
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from properties import FAST_EXAMPLES, FAST_PROFILE
from tiers import deal

REPOSITORY = Path(__file__).parents[1]

# Daemons listen on sockets in the tests' folders, and a socket's path may hold some hundred bytes only.
SHORT = Path("/tmp")
if len(tempfile.gettempdir()) > 16 and SHORT.is_dir():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHORT))

# Tests start hundreds of processes. Without compiled files, each takes two seconds to compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test may send anything to a provider that whoever runs it has a key of.
for name in [name for name in os.environ if name.endswith(("_API_KEY", "_API_KEYS"))]:
    del os.environ[name]

# Property tests try fewer examples in the fast tier: `--hypothesis-profile fast`.
settings.register_profile("memoryd", deadline=None)
settings.register_profile(FAST_PROFILE, deadline=None, max_examples=FAST_EXAMPLES)
settings.load_profile("memoryd")


def pytest_addoption(parser):
    parser.addoption(
        "--store",
        choices=("sqlite", "postgres", "documents"),
        default="sqlite",
        help="the store of the daemons in tests/rpc; with documents, their memory files are in PostgreSQL, too",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # Thousands of tests are collected, and none of their objects is garbage: looking for it takes half of the time.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = deal(items, REPOSITORY / "tests", workers)


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
