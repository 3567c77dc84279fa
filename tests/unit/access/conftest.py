import pytest

from memoryd_server.access.tokens import TokenFiles


@pytest.fixture
def files(tmp_path):
    return TokenFiles.in_state_dir(tmp_path / "state", None)
