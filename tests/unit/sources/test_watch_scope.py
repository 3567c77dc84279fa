import os

import pytest

from memoryd_server.sources.roots import Roots
from memoryd_server.sources.watch_scope import WatchScope, mount_without_events, targets

WORKSPACE = WatchScope("/ws", (0, 0), frozenset({"MEMORY.md", "memory.md"}), frozenset({"memory"}))
EXTRA = WatchScope("/home/.venv/node_modules/docs", (0, 0))


@pytest.mark.parametrize(
    ("scope", "folder", "entered"),
    [
        (WORKSPACE, (), True),
        (WORKSPACE, ("memory",), True),
        (WORKSPACE, ("memory", ".hidden"), True),
        (WORKSPACE, ("src",), False),
        (WORKSPACE, ("memory", "Node_Modules"), False),
        (WORKSPACE, ("memory", ".git", "x"), False),
        (EXTRA, (), True),
        (EXTRA, ("a", "venv-notes"), True),
        (EXTRA, ("a", "__pycache__"), False),
        (EXTRA, (".tox",), False),
        (EXTRA, ("d",) * 64, True),
        (EXTRA, ("d",) * 65, False),
    ],
)
def test_ignored_folders_are_not_entered_under_any_parent(scope, folder, entered):
    assert scope.enters(folder) is entered


@pytest.mark.parametrize(
    ("scope", "file", "counted"),
    [
        (WORKSPACE, ("MEMORY.md",), True),
        (WORKSPACE, ("memory.md",), True),
        (WORKSPACE, ("README.md",), False),
        (WORKSPACE, ("memory", "a.md"), True),
        (WORKSPACE, ("memory", "a.md~"), False),
        (WORKSPACE, ("memory", ".a.md.swp"), False),
        (WORKSPACE, ("memory", "4913"), False),
        (WORKSPACE, ("memory", "a.tmp"), False),
        (WORKSPACE, ("memory", "a.MD"), False),
        (EXTRA, ("README.md",), True),
    ],
)
def test_only_markdown_that_can_be_memory_counts(scope, file, counted):
    assert scope.counts(file) is counted


def test_each_root_is_a_target_and_a_missing_one_says_why(workspace, tmp_path):
    (tmp_path / "team").mkdir()
    (tmp_path / "one.md").touch()
    (tmp_path / "link").symlink_to(tmp_path / "team")
    roots = Roots(os.fspath(workspace), ("../team", "../one.md", "../none", "../link"))
    found = {target.display: target for target in targets(roots)}
    assert list(found) == [".", "../team", "../one.md", "../none", "../link"]
    assert found["../one.md"].scope == WatchScope(
        os.fspath(tmp_path), (tmp_path.stat().st_dev, tmp_path.stat().st_ino), frozenset({"one.md"}), frozenset()
    )
    for display in ("../none", "../link"):
        assert found[display].scope is None
        assert "missing" in found[display].reason


def check_mounts(tmp_path, scope: WatchScope, expected: str) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:30 / /ws/memory/shared rw,relatime shared:1 - virtiofs tag rw\n"
        "3 1 0:31 / /ws/src/nfs rw - nfs4 host:/x rw\n"
        "4 1 0:32 / /my\\040share rw - cifs //host/x rw\n"
        "a line that says nothing\n"
    )
    assert mount_without_events(scope, table) == expected


def test_a_mount_without_events_is_detected_for_its_roots(tmp_path):
    check_mounts(tmp_path, WORKSPACE, "virtiofs")
    check_mounts(tmp_path, WatchScope("/my share/notes", (0, 0)), "cifs")
    check_mounts(tmp_path, WatchScope("/ws/src", (0, 0)), "nfs4")
    check_mounts(tmp_path, WatchScope("/ws/src/nfs/deep/er", (0, 0)), "nfs4")
    check_mounts(tmp_path, WatchScope("/ws2", (0, 0)), "")
    assert mount_without_events(WORKSPACE, tmp_path / "no-table") == ""
