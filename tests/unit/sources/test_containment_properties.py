import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd_server.errors import FileNotFound, PathNotAllowed
from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.files import read_file, stat_file, stat_files
from memoryd_server.sources.roots import Roots, resolve_for_append, resolve_path
from properties import examples

FRAGMENTS = [
    "..",
    ".",
    "",
    "memory",
    "MEMORY.md",
    "memory.md",
    "a.md",
    "real",
    "link",
    "link.md",
    "up",
    "extra",
    "linked-extra",
    "workspace",
    "secret.md",
    "README.md",
    "\0",
    "x\0.md",
    "..\\secret.md",
    "日記.md",
    "\ud800.md",
    "\udcff.md",
    "e\u0301.md",
    "~",
    "x" * 300,
    "…md",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A workspace full of ways out; every file holds its own real path, so bytes tell where they came from."""
    top = Path(os.path.realpath(tmp_path_factory.mktemp("tree")))
    for name in (
        "secret.md",
        "extra/a.md",
        "extra/real/a.md",
        "workspace/MEMORY.md",
        "workspace/README.md",
        "workspace/memory/a.md",
        "workspace/memory/日記.md",
        "workspace/memory/real/a.md",
        "workspace/memory/real/secret.md",
    ):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    (top / "linked-extra").symlink_to("extra")
    (top / "extra" / "up").symlink_to("..")
    (top / "workspace" / "memory" / "link").symlink_to(top)
    (top / "workspace" / "memory" / "link.md").symlink_to(top / "secret.md")
    (top / "workspace" / "memory" / "real" / "up").symlink_to("../..")
    return top


def roots_of(tree: Path) -> Roots:
    return Roots(os.fspath(tree / "workspace"), ("../extra", "../linked-extra", os.fspath(tree / "extra" / "up")))


ALLOWED = {
    "MEMORY.md": "workspace/MEMORY.md",
    "memory/a.md": "workspace/memory/a.md",
    "memory/日記.md": "workspace/memory/日記.md",
    "memory/real/a.md": "workspace/memory/real/a.md",
    "memory/real/secret.md": "workspace/memory/real/secret.md",
    "../extra/a.md": "extra/a.md",
    "../extra/real/a.md": "extra/real/a.md",
}


def check(tree: Path, path: str) -> None:
    try:
        location = resolve_path(roots_of(tree), path)
        data, status = read_file(location, 1 << 20)
    except (PathNotAllowed, FileNotFound):
        return
    assert data.decode() == ALLOWED[location.path]
    assert stat_file(location) == status
    assert stat_files([location]) == [status]


fragment_paths = st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("/".join)


@settings(max_examples=examples(1_000), deadline=None)
@given(path=fragment_paths)
def test_a_relative_path_gives_a_file_inside_or_nothing(tree, path):
    check(tree, path)


@settings(max_examples=examples(500), deadline=None)
@given(path=fragment_paths, slashes=st.sampled_from(["/", "//", "/./", "/../"]))
def test_an_absolute_path_gives_a_file_inside_or_nothing(tree, path, slashes):
    check(tree, os.fspath(tree) + slashes + path)


@settings(max_examples=examples(500), deadline=None)
@given(path=st.text(max_size=40))
def test_any_text_at_all_gives_a_file_inside_or_nothing(tree, path):
    check(tree, path)
    check(tree, f"memory/{path}.md")


@settings(max_examples=examples(500), deadline=None)
@given(path=fragment_paths)
def test_a_path_for_appends_is_in_the_workspace_s_memory(tree, path):
    try:
        location = resolve_for_append(roots_of(tree), path)
    except PathNotAllowed:
        return
    assert location.root == os.fspath(tree / "workspace")
    assert location.parts[0] in {"MEMORY.md", "memory.md", "memory"}
    assert not {"", ".", ".."} & set(location.parts)


def test_exactly_the_allowed_files_are_discovered_and_each_is_readable_by_its_path(tree):
    found = discover_files(roots_of(tree)).files
    assert {file.path for file in found} == set(ALLOWED)
    for file in found:
        assert read_file(resolve_path(roots_of(tree), file.path), 1 << 20) == read_file(file, 1 << 20)
