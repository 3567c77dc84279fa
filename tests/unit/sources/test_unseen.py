"""What a look says of files that are not there: gone, or not to be looked for."""

import os
import shutil

import pytest

from memoryd_server.sources.discover import UnreadableFolder, below, discover_files
from memoryd_server.sources.discover import discover_files as discover_function
from memoryd_server.sources.roots import Roots


@pytest.fixture
def team(tmp_path):
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / "a.md").write_text("heron")
    return folder


@pytest.fixture
def both(workspace, team):
    (workspace / "memory/note.md").write_text("stork")
    return Roots(os.fspath(workspace), ("../team",))


def hidden(roots, *, device=-1):
    """Of all files that the tests make, those that may have been on `device` and still exist."""
    unseen = discover_files(roots).unseen
    paths = ("MEMORY.md", "memory/note.md", "memory/sub/deep.md", "../team/a.md", "../one.md")
    return [path for path in paths if any(u.would_hold(path) and u.device != device for u in unseen)]


def test_with_every_folder_there_nothing_is_hidden(both):
    assert discover_files(both).unseen == ()


def test_a_workspace_that_is_away_hides_its_files_and_no_others(both, workspace, tmp_path):
    workspace.rename(tmp_path / "away")
    assert hidden(both) == ["MEMORY.md", "memory/note.md", "memory/sub/deep.md"]
    (unseen,) = discover_files(both).unseen
    assert (unseen.place, unseen.reason) == (str(workspace), "cannot be found: No such file or directory")


def test_a_link_to_a_workspace_that_is_away_hides_its_files(both, workspace, tmp_path):
    workspace.rename(tmp_path / "drive")
    workspace.symlink_to(tmp_path / "drive")
    assert hidden(both) == []
    (tmp_path / "drive").rename(tmp_path / "away")
    assert hidden(both) == ["MEMORY.md", "memory/note.md", "memory/sub/deep.md"]


def test_an_extra_path_that_is_away_hides_its_files_and_no_others(both, team, tmp_path):
    team.rename(tmp_path / "away")
    assert hidden(both) == ["../team/a.md"]


def test_a_folder_within_a_root_is_deleted_and_not_away(both, workspace):
    (workspace / "MEMORY.md").write_text("long-term")
    shutil.rmtree(workspace / "memory")
    assert hidden(both) == []


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/"), lambda path: path.write_text("a file")])
def test_an_obstacle_in_place_of_a_root_hides_nothing(both, workspace, team, tmp_path, make):
    shutil.rmtree(team)
    make(team)
    assert hidden(both) == []
    shutil.rmtree(workspace)
    workspace.write_text("a file")
    assert hidden(both) == []


def test_an_extra_file_is_deleted_while_its_folder_is_there(workspace, tmp_path):
    (tmp_path / "one.md").write_text("heron")
    roots = Roots(os.fspath(workspace), ("../one.md",))
    (workspace / "memory/note.md").write_text("stork")
    assert hidden(roots) == []
    (tmp_path / "one.md").unlink()
    assert hidden(roots) == []


def test_an_extra_file_is_away_with_its_folder(workspace, tmp_path):
    (workspace / "memory/note.md").write_text("stork")
    (unseen,) = discover_files(Roots(os.fspath(workspace), ("../drive/one.md",))).unseen
    assert unseen.would_hold("../drive/one.md")


def test_a_forbidden_folder_hides_what_is_below_it(workspace, roots, forbid):
    (workspace / "memory/sub").mkdir()
    (workspace / "memory/note.md").write_text("stork")
    forbid(workspace / "memory/sub")
    found = hidden(roots)
    (workspace / "memory/sub").chmod(0o700)
    assert found == ["memory/sub/deep.md"]


def test_a_folder_that_cannot_be_read_hides_what_is_below_it(both, workspace, monkeypatch):
    """A failing disk, or a server that has lost the folder's handle."""
    (workspace / "memory/sub").mkdir()
    plain = discover_function.__globals__["open_directory"]

    def open_directory(root, parts):
        if tuple(parts) == ("memory", "sub"):
            raise OSError(116, "Stale file handle")
        return plain(root, parts)

    monkeypatch.setitem(discover_function.__globals__, "open_directory", open_directory)
    assert hidden(both) == ["memory/sub/deep.md"]
    assert [failure.path for failure in discover_files(both).failures] == ["memory/sub"]


def test_an_empty_root_hides_only_what_was_on_another_drive(both, workspace, team):
    """Where a drive was mounted, an empty folder is left."""
    (workspace / "memory/note.md").unlink()
    (team / "a.md").unlink()
    here = workspace.stat().st_dev
    assert hidden(both, device=here) == []
    assert hidden(both) == ["MEMORY.md", "memory/note.md", "memory/sub/deep.md", "../team/a.md"]


def test_a_root_with_a_single_file_hides_nothing(both, team):
    (team / "a.md").unlink()
    assert hidden(both) == ["../team/a.md"]
    (team / "b.md").write_text("another")
    assert hidden(both) == []


def test_a_memory_folder_that_is_there_is_judged_by_itself(workspace, roots):
    (workspace / "MEMORY.md").write_text("long-term")
    assert hidden(roots) == ["memory/note.md", "memory/sub/deep.md"]


def test_a_workspace_swapped_while_it_is_looked_at_hides_everything(both, workspace, tmp_path, monkeypatch):
    plain = discover_function.__globals__["_walk"]

    def walk(top, scan):
        if workspace.exists():
            workspace.rename(tmp_path / "away")
        plain(top, scan)

    monkeypatch.setitem(discover_function.__globals__, "_walk", walk)
    found = discover_files(both)
    assert [file.path for file in found.files] == ["../team/a.md"]
    assert hidden(both) == ["MEMORY.md", "memory/note.md", "memory/sub/deep.md"]


@pytest.mark.parametrize(
    ("folder", "path", "held"),
    [
        ("memory", "memory/a.md", True),
        ("memory", "memory2/a.md", False),
        (".", "a/b.md", True),
        (".", "../team/a.md", False),
        ("..", "../team/a.md", True),
    ],
)
def test_a_place_would_hold_what_is_below_it(folder, path, held):
    assert UnreadableFolder(folder, "", (below(folder),)).would_hold(path) is held


def test_a_single_file_is_held_by_its_very_name():
    assert UnreadableFolder(".", "", ("MEMORY.md",)).would_hold("MEMORY.md")
    assert not UnreadableFolder(".", "", ("MEMORY.md",)).would_hold("MEMORY.md/x.md")
