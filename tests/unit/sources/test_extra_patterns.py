"""A pattern of an extra path selects the files that are discovered, watched and read."""

import os

import pytest

from memoryd_server.errors import PathNotAllowed
from memoryd_server.globs import GlobError
from memoryd_server.sources.discover import discover_files
from memoryd_server.sources.roots import ExtraPath, Roots, resolve_path
from memoryd_server.sources.watch_scope import targets
from unit.sources.watching import WAYS, watching


@pytest.fixture
def team(tmp_path):
    folder = tmp_path / "team"
    for name in ("a.md", "docs/b.md", "docs/x/c.md", "docs/.d/e.md", "src/f.md", "docs/g.txt", ".h.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def roots_of(workspace, *extras) -> Roots:
    return Roots(os.fspath(workspace), extras)


def found(roots: Roots) -> list[str]:
    return [file.path for file in discover_files(roots).files]


@pytest.mark.parametrize(
    ("patterns", "files"),
    [
        (("**/*.md",), ["a.md", "docs/b.md", "docs/x/c.md", "src/f.md"]),
        (("docs/**",), ["docs/b.md", "docs/x/c.md"]),
        (("docs/*",), ["docs/b.md"]),
        (("{docs,src}/*.md",), ["docs/b.md", "src/f.md"]),
        (("docs/.d/*.md", "*.md"), ["a.md", "docs/.d/e.md"]),
        (("docs/**", ""), [".h.md", "a.md", "docs/.d/e.md", "docs/b.md", "docs/x/c.md", "src/f.md"]),
    ],
)
def test_the_files_of_a_folder_are_those_that_a_pattern_matches(workspace, team, patterns, files):
    roots = roots_of(workspace, *(ExtraPath("../team", pattern) for pattern in patterns))
    assert found(roots) == [f"../team/{file}" for file in files]
    # Discovery, reading and watching agree on every file.
    scope = list(targets(roots))[1].scope
    for file in (path for path in team.rglob("*") if path.is_file()):
        name = file.relative_to(team).as_posix()
        expected = name in files
        assert scope.covers(os.fspath(file)) is expected, name
        try:
            resolve_path(roots, f"../team/{name}")
        except PathNotAllowed:
            assert not expected, name
        else:
            assert expected, name


def test_folders_in_which_no_file_can_match_are_not_opened(workspace, team, forbid):
    forbid(team / "src")
    discovery = discover_files(roots_of(workspace, ExtraPath("../team", "docs/**")))
    assert discovery.failures == ()
    assert discover_files(roots_of(workspace, ExtraPath("../team", "**/*.md"))).failures != ()


def test_a_pattern_that_matches_no_file_is_reported(workspace, team):
    discovery = discover_files(roots_of(workspace, ExtraPath("../team", "/docs/*.md")))
    assert discovery.files == ()
    assert any("matches its pattern: /docs/*.md" in issue for issue in discovery.issues)


def test_an_extra_path_inside_another_keeps_its_own_files(workspace, team):
    roots = roots_of(workspace, ExtraPath("../team", "*.md"), "../team/docs/x", ExtraPath("../team/src", "f*"))
    assert found(roots) == ["../team/a.md", "../team/docs/x/c.md", "../team/src/f.md"]
    with pytest.raises(PathNotAllowed):
        resolve_path(roots, "../team/docs/b.md")


def test_the_pattern_of_the_workspace_does_not_hide_its_own_memory(workspace):
    for name in ("MEMORY.md", "memory/.a.md", "notes/b.md", "src/c.md"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(name)
    assert found(roots_of(workspace, ExtraPath(".", "notes/**"))) == ["MEMORY.md", "memory/.a.md", "notes/b.md"]


def test_the_pattern_of_a_file_is_ignored(workspace, team):
    roots = roots_of(workspace, ExtraPath("../team/a.md", "nothing"))
    assert found(roots) == ["../team/a.md"]
    assert resolve_path(roots, "../team/a.md").path == "../team/a.md"


def test_paths_that_are_equal_are_one_root_with_each_pattern_once(workspace):
    extras = [ExtraPath("../o", "*.md"), ExtraPath("../o/", "*.md"), ExtraPath("../o", "x/*.md")]
    roots = roots_of(workspace, *extras)
    (extra,) = roots.extras()
    assert [glob.text for glob in roots.patterns(extra)] == ["*.md", "x/*.md"]


def test_a_pattern_that_cannot_be_used_is_an_error(workspace):
    with pytest.raises(GlobError):
        roots_of(workspace, ExtraPath("../o", "!(a)"))


@pytest.mark.parametrize("options", WAYS)
def test_only_changes_of_files_that_match_are_noticed(workspace, team, options):
    with watching(roots_of(workspace, ExtraPath("../team", "docs/*.md")), **options) as (_, changes):
        (team / "src/f.md").write_text("other")
        (team / "docs/x/c.md").write_text("other")
        assert not changes.arrive(0.15)
        (team / "docs/b.md").write_text("other")
        assert changes.arrive()


def test_the_patterns_that_do_not_match_a_path_are_named(workspace, team):
    roots = roots_of(workspace, ExtraPath("../team", "docs/*.md"), ExtraPath("../team", "src/**"), "../other")
    assert roots.unmatched_patterns("../team/a.md") == ("docs/*.md", "src/**")
    for path in ("../team/docs/b.md", "../other/a.md", "../elsewhere/a.md", "memory/a.md", "a.md"):
        assert roots.unmatched_patterns(path) == ()
