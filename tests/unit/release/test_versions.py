"""All files state the same version, and a release needs a tag of the same name and a dated section of changes."""

import shutil
from pathlib import Path

import pytest

from memoryd_server import __version__
from release.versions import PLACES, found_versions, problems, replace_version

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def tree(tmp_path):
    """A copy of the files that state the version, in version 1.2.3."""
    for path in {path for path, _ in PLACES}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, tmp_path / path)
    replace_version(tmp_path, "1.2.3")
    (tmp_path / "CHANGELOG.md").write_text("## [1.2.3] - 2030-01-02\n", "utf-8")
    return tmp_path


def test_all_files_state_the_version_of_the_program():
    assert [place for place in found_versions(REPOSITORY) if place[1] != __version__] == []
    assert list(problems(REPOSITORY, None)) == []


def test_set_version_changes_every_file_and_nothing_else(tree):
    assert {version for _, version in found_versions(tree)} == {"1.2.3"}
    replace_version(tree, __version__)
    for path, _ in PLACES:
        assert (tree / path).read_bytes() == (REPOSITORY / path).read_bytes(), path


def test_a_tag_of_the_version_is_accepted(tree):
    assert list(problems(tree, "v1.2.3")) == []


def test_another_tag_is_refused_for_every_file(tree):
    found = list(problems(tree, "v1.2.4"))
    assert len(found) == len(PLACES) + 1
    assert found[0] == "pyproject.toml: the version is 1.2.3, not 1.2.4"


@pytest.mark.parametrize("path", sorted({path for path, _ in PLACES}))
def test_one_file_with_another_version_is_reported(tree, path):
    file = tree / path
    file.write_text(file.read_text("utf-8").replace("1.2.3", "1.2.2"), "utf-8")
    assert any(line.startswith(f"{path}: the version is") for line in problems(tree, "v1.2.3"))


def test_changes_without_a_date_are_refused(tree):
    (tree / "CHANGELOG.md").write_text("## [1.2.3] - unreleased\n", "utf-8")
    assert list(problems(tree, "v1.2.3")) == [
        "CHANGELOG.md: no section `## [1.2.3] - YYYY-MM-DD`; write the date of the release"
    ]


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3rc1", "1.2.3-rc.1", ""])
def test_a_version_that_registries_spell_differently_is_refused(tree, version):
    with pytest.raises(ValueError, match=r"MAJOR\.MINOR\.PATCH"):
        replace_version(tree, version)


def test_a_file_that_states_no_version_is_an_error(tree):
    (tree / "clients/java/pom.xml").write_text("<project/>", "utf-8")
    with pytest.raises(ValueError, match=r"clients/java/pom\.xml: .* matches 0 times"):
        list(problems(tree, None))
