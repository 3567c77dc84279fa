import pytest

from memoryd_server.access.tokens import TokenFiles


@pytest.fixture
def files(tmp_path):
    return TokenFiles.beneath(tmp_path / "state", None)
