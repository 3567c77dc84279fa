import posixpath
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.errors import PathNotAllowed
from memoryd_server.sources.roots import Roots, is_within, resolve_for_append, resolve_path

ROOTS = Roots("/home/a/ws", ("../team-docs", "/srv/shared/x.md", "notes"))


def check(path: str, display: str, root: str, parts: tuple[str, ...], roots: Roots = ROOTS) -> None:
    location = resolve_path(roots, path)
    assert (location.path, location.root, location.parts) == (display, root, parts)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("MEMORY.md", ("MEMORY.md",)),
        ("memory.md", ("memory.md",)),
        ("memory/2026-02-01.md", ("memory", "2026-02-01.md")),
        ("memory/a/b/c d.md", ("memory", "a", "b", "c d.md")),
        ("memory/.md", ("memory", ".md")),
        ("memory/..md", ("memory", "..md")),
        ("memory/a\\b.md", ("memory", "a\\b.md")),
        ("memory/日記.md", ("memory", "日記.md")),
        ("notes/x.md", ("notes", "x.md")),
    ],
)
def test_a_path_inside_the_workspace_is_found_below_it_by_either_spelling(path, parts):
    check(path, path, "/home/a/ws", parts)
    check(f"/home/a/ws/{path}", path, "/home/a/ws", parts)


@pytest.mark.parametrize(
    ("path", "display", "root", "parts"),
    [
        ("../team-docs/x.md", "../team-docs/x.md", "/home/a", ("team-docs", "x.md")),
        ("/home/a/team-docs/d/x.md", "../team-docs/d/x.md", "/home/a", ("team-docs", "d", "x.md")),
        ("/srv/shared/x.md", "../../../srv/shared/x.md", "/srv/shared", ("x.md",)),
        ("../../../srv/shared/x.md", "../../../srv/shared/x.md", "/srv/shared", ("x.md",)),
    ],
)
def test_an_extra_path_is_shown_relative_to_the_workspace(path, display, root, parts):
    check(path, display, root, parts)


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "memory",
        "memory/",
        "MEMORY.MD",
        "Memory.md",
        "memory.MD",
        "memory/x.txt",
        "memory/x.md/",
        "memory/x.md ",
        " MEMORY.md",
        "./MEMORY.md",
        "memory/./x.md",
        "memory//x.md",
        "memory/../MEMORY.md",
        "memory/../../ws/MEMORY.md",
        "../ws/MEMORY.md",
        "../secret.md",
        "../team-docs/../secret.md",
        "../team-docs-2/x.md",
        "../team-docs/sub/../x.md",
        "src/x.md",
        "README.md",
        "MEMORY.md/x.md",
        "memory/x\0.md",
        "memory/x.md\0",
        "memory\\x.md",
        "memory/..\\..\\secret.md",
        "memory/\\x.md",
        "memory/\ud800.md",
        "/etc/x.md",
        "//home/a/ws/MEMORY.md",
        "/home/a/ws/../ws/MEMORY.md",
        "/home/a/ws/README.md",
        "/home/a/ws2/MEMORY.md",
        "/srv/shared/y.md",
        "~/MEMORY.md",
    ],
)
def test_any_other_path_is_refused(path):
    with pytest.raises(PathNotAllowed):
        resolve_path(ROOTS, path)


@pytest.mark.parametrize("path", ["../team-docs/x.md", "notes/x.md", "/srv/shared/x.md", "README.md", "memory/../x.md"])
def test_only_the_workspace_s_own_memory_is_appended_to(path):
    with pytest.raises(PathNotAllowed):
        resolve_for_append(ROOTS, path)


@pytest.mark.parametrize("path", ["MEMORY.md", "memory.md", "memory/a/b.md", "/home/a/ws/memory/b.md"])
def test_the_workspace_s_own_memory_can_be_appended_to(path):
    assert resolve_for_append(ROOTS, path).root == "/home/a/ws"


def test_the_root_directory_as_an_extra_path_allows_every_markdown_file_in_one_spelling():
    roots = Roots("/home/a/ws", ("/",))
    check("/etc/x.md", "../../../etc/x.md", "/", ("etc", "x.md"), roots)
    with pytest.raises(PathNotAllowed):
        resolve_path(roots, "//etc/x.md")


def test_the_workspace_as_an_extra_path_allows_all_its_markdown():
    check("src/x.md", "src/x.md", "/home/a/ws", ("src", "x.md"), Roots("/home/a/ws", (".",)))


def test_an_extra_path_inside_another_is_reached_from_above_the_outer_one():
    # Otherwise whoever writes to /srv/a could swap /srv/a/b for a link.
    roots = Roots("/ws", ("/srv/a/b", "/srv/a"))
    check("/srv/a/b/x.md", "../srv/a/b/x.md", "/srv", ("a", "b", "x.md"), roots)


def test_extra_paths_are_normal_and_each_is_there_once():
    roots = Roots("/ws/", ("docs", "./docs/", "/ws/docs", "../o"))
    assert roots.extras() == ("/ws/docs", "/o")
    assert roots.base() == "/ws"


def test_a_folder_does_not_contain_its_namesakes():
    assert is_within("/a/b", "/a/b")
    assert is_within("/a/b/c", "/a/b")
    assert is_within("/a", "/")
    assert not is_within("/a/bc", "/a/b")


def test_a_refusal_names_the_path_but_not_whether_it_exists():
    with pytest.raises(PathNotAllowed) as caught:
        resolve_path(ROOTS, "/etc/" + "x" * 500 + ".md")
    assert len(caught.value.metadata["path"]) < 250
    assert "exist" not in caught.value.message


FOLDERS = st.lists(st.sampled_from(["a", "b", "ab", ".."]), max_size=4).map("/".join)


@given(extras=st.lists(FOLDERS.map("/".__add__) | FOLDERS.filter(bool), max_size=5), path=FOLDERS.map("/".__add__))
def test_the_outermost_extra_path_is_the_shortest_that_holds_a_path(extras, path):
    roots, absolute = Roots("/a/ws", tuple(extras)), posixpath.normpath(path)
    holders = [extra for extra in roots.extras() if is_within(absolute, extra)]
    assert roots.outermost_extra(absolute) == min(holders, key=len, default="")


def calls_of(work):
    """The number of functions that `work` calls."""
    calls = []
    sys.setprofile(lambda _frame, event, _argument: calls.append(event) if event in ("call", "c_call") else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(calls)


@pytest.mark.attacks
def test_the_cost_of_a_path_does_not_depend_on_the_number_of_extra_paths():
    few, many = (Roots("/w", tuple(f"/e/{number}" for number in range(count))) for count in (2, 5_000))
    for path in ("/e/1/x.md", "/e/1", "/w/memory/x.md"):
        assert calls_of(lambda p=path: many.anchor(p)) == calls_of(lambda p=path: few.anchor(p))
    for path in ("/e/1/x.md", "memory/x.md"):
        found = [calls_of(lambda r=roots, p=path: resolve_path(r, p)) for roots in (few, many)]
        assert found[0] == found[1]
