"""Which names are memory: USER.md, OpenClaw's generated files, its folder of repaired files, and DREAMS.md."""

import os

import pytest

from memoryd_server.errors import PathNotAllowed
from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.folder_corpus import FolderCorpus
from memoryd_server.sources.roots import Roots, resolve_for_append, resolve_path
from memoryd_server.sources.watch_scope import targets

ROOTS = Roots("/ws", ("/ws/notes", "/extra"))


def found(roots: Roots) -> list[str]:
    return [file.path for file in discover_files(roots).files]


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def watched(roots: Roots, at: int, path: str) -> bool:
    return list(targets(roots))[at].scope.covers(path)


def test_the_user_file_is_memory_in_its_exact_case_only(workspace, roots):
    write(workspace, "USER.md", "user.md", "User.md", "users/x/USER.md")
    assert found(roots) == ["USER.md"]
    assert resolve_path(roots, "USER.md").parts == resolve_for_append(roots, "USER.md").parts == ("USER.md",)
    for other in ("user.md", "users/x/USER.md"):
        with pytest.raises(PathNotAllowed):
            resolve_path(roots, other)
    assert watched(roots, 0, os.fspath(workspace / "USER.md"))
    assert not watched(roots, 0, os.fspath(workspace / "user.md"))


def test_a_linked_user_file_is_skipped_and_reported(workspace, roots, outside):
    (workspace / "USER.md").symlink_to(outside / "secret.md")
    discovery = discover_files(roots)
    assert discovery.files == ()
    assert "USER.md is a symbolic link: skipped" in discovery.issues


def test_both_spellings_of_the_long_term_memory_are_memory(workspace, roots):
    write(workspace, "MEMORY.md", "memory.md")
    assert found(roots) == ["MEMORY.md", "memory.md"]


def test_generated_files_are_memory(workspace, roots):
    generated = ["memory/.dreams/corpus/a.md", "memory/dreaming/light/2026-02-01.md", "memory/imports/other/b.md"]
    write(workspace, *generated, "memory/.dreams/state.json", "memory/.dreams/session-corpus/2026-02-01.txt")
    assert found(roots) == generated
    assert watched(roots, 0, os.fspath(workspace / "memory/.dreams/corpus/a.md"))


@pytest.mark.parametrize(
    "path",
    [
        "memory/.openclaw-repair/a.md",
        "memory/x/.openclaw-repair/root-memory/a.md",
        ".openclaw-repair/a.md",
        "notes/.openclaw-repair/a.md",
        "/extra/x/.openclaw-repair/a.md",
    ],
)
def test_a_file_in_a_repair_folder_is_refused(path):
    for resolve in (resolve_path, resolve_for_append):
        with pytest.raises(PathNotAllowed):
            resolve(ROOTS, path)
    with pytest.raises(PathNotAllowed):
        FolderCorpus(ROOTS).locations_for_reading(path)


def test_repair_folders_are_neither_walked_nor_watched(workspace, tmp_path):
    extra = tmp_path / "extra"
    write(workspace, "memory/.openclaw-repair/a.md", "memory/x/.openclaw-repair/b/c.md", "memory/x/d.md")
    write(extra, ".openclaw-repair/a.md", "x.md")
    roots = Roots(os.fspath(workspace), (os.fspath(extra),))
    assert found(roots) == ["../extra/x.md", "memory/x/d.md"]
    scope = next(targets(roots)).scope
    assert scope.enters(("memory", "x"))
    assert not scope.enters(("memory", "x", ".openclaw-repair"))


def test_an_extra_path_in_a_repair_folder_is_skipped_and_reported(workspace):
    write(workspace, ".openclaw-repair/root-memory/a.md")
    roots = Roots(os.fspath(workspace), (".openclaw-repair/root-memory",))
    discovery = discover_files(roots)
    assert discovery.files == ()
    assert any("is in a folder named .openclaw-repair" in issue for issue in discovery.issues)
    assert list(targets(roots))[1].scope is None


@pytest.mark.parametrize("name", ["DREAMS.md", "dreams.md"])
def test_dreams_can_be_read_but_are_not_memory(workspace, roots, name):
    write(workspace, name)
    corpus = FolderCorpus(roots)
    assert [place.parts for place in corpus.locations_for_reading(name)] == [(name,)]
    assert [place.path for place in corpus.locations_for_reading(os.fspath(workspace / name))] == [name]
    for resolve in (resolve_path, resolve_for_append):
        with pytest.raises(PathNotAllowed):
            resolve(roots, name)
    assert found(roots) == []
    assert not watched(roots, 0, os.fspath(workspace / name))


def test_dreams_of_other_folders_cannot_be_read(roots):
    for path in ("../DREAMS.md", "src/DREAMS.md", "Dreams.md", "./DREAMS.md", "/DREAMS.md"):
        with pytest.raises(PathNotAllowed):
            FolderCorpus(roots).locations_for_reading(path)
