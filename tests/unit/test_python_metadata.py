"""The metadata of the Python packages: both have one version, and the links of their READMEs lead somewhere on PyPI."""

import re
import tomllib
from pathlib import Path

from memoryd_server import __version__

REPOSITORY = Path(__file__).parents[2]
FOLDERS = (".", "clients/python")
BLOB = "https://github.com/memoryd/memoryd/blob/main/"
RAW = "https://raw.githubusercontent.com/memoryd/memoryd/main/"


def pyproject(folder):
    return tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text("utf-8"))


def test_daemon_and_client_have_one_version_and_the_daemon_requires_it():
    daemon, client = (pyproject(folder)["project"] for folder in FOLDERS)
    assert daemon["version"] == client["version"] == __version__
    assert f"memoryd-client=={__version__}" in daemon["dependencies"]
    assert daemon["requires-python"] == client["requires-python"]


def test_both_packages_promise_the_same_systems_and_versions_of_python():
    def promised(folder):
        project = pyproject(folder)["project"]
        kinds = ("Development Status", "Operating System", "Programming Language", "Typing")
        return {each for each in project["classifiers"] if each.startswith(kinds)}, project["license"]

    assert promised(".") == promised("clients/python")


def test_install_page_describes_every_extra():
    rows = re.findall(
        r"^\| `memoryd\[([a-z]+)\]` \|", (REPOSITORY / "docs" / "install.md").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(rows) == sorted(pyproject(".")["project"]["optional-dependencies"])


def test_links_of_a_readme_are_replaced_by_links_to_existing_files_on_github():
    for folder in FOLDERS:
        hook = pyproject(folder)["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
        shown = (REPOSITORY / folder / "README.md").read_text("utf-8")
        for rule in hook["substitutions"]:
            shown = re.sub(rule["pattern"], rule["replacement"], shown)
        links = re.findall(r"\]\(([^)]+)\)", shown)
        assert [link for link in links if not link.startswith(("https://", "#"))] == []
        paths = [link.removeprefix(BLOB).partition("#")[0] for link in links if link.startswith(BLOB)]
        assert len(paths) > 5
        images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", shown)
        assert [image for image in images if not image.startswith(RAW)] == []
        paths += [image.removeprefix(RAW) for image in images]
        assert [path for path in paths if not (REPOSITORY / path).exists()] == []
