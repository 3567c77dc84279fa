import os
from collections.abc import Callable
from pathlib import Path

import pytest

from memoryd_server.sources.roots import Roots


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "memory").mkdir(parents=True)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.md").write_text("secret")
    return folder


@pytest.fixture
def roots(workspace: Path) -> Roots:
    return Roots(os.fspath(workspace), ())


@pytest.fixture
def forbid(tmp_path: Path) -> Callable[[Path], None]:
    """Takes all permissions of a path away; skips the test for those (root) to whom nothing is forbidden."""
    probe = tmp_path / "probe"
    probe.touch(mode=0)
    try:
        probe.read_bytes()
    except PermissionError:
        return lambda path: path.chmod(0)
    pytest.skip("nothing is forbidden to this user")


@pytest.fixture
def filled(workspace) -> Path:
    for name in ("memory/old.md", "memory/sub/deep/old.md", "other/x.md"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("o")
    return workspace
