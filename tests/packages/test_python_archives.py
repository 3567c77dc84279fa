"""The sdists and wheels of memoryd and memoryd-client that `make dist` built: their bytes, files and metadata."""

import os
import re
import sys
import tarfile
from email import message_from_bytes

import pytest

from clients.python_venvs import run
from clients.runner import REPOSITORY
from packages.client_archives import below, contents
from packages.python_environments import DIST, archive, tool

pytestmark = [pytest.mark.packages, pytest.mark.timeout(300)]

# The folder of each package in the repository, the one of its modules, and the other files of its sdist.
FOLDERS = {"memoryd": ".", "memoryd_client": "clients/python"}
MODULES = {"memoryd": "service/memoryd_server", "memoryd_client": "clients/python/src/memoryd"}
OTHER_FILES = {
    "memoryd": {"CHANGELOG.md"},
    "memoryd_client": {
        "examples/claude_code/recall_hook.py",
        "examples/gateway/gateway.py",
        "examples/gateway/progress.py",
        "examples/memory_tool/execute_calls.py",
    },
}
# hatchling adds .gitignore, so that a wheel that is built from the sdist leaves out the same files.
STANDARD_FILES = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
PACKAGES = pytest.mark.parametrize("package", FOLDERS)


def files_of_the_repository(folder="."):
    """Return the files of the repository below a folder, including new ones, but not those that Git ignores."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder, cwd=REPOSITORY)
    return [name for name in listed.split("\0") if name and (REPOSITORY / name).is_file()]


def copy_of_the_tree(target, *, mode, order):
    """Copy the files that the packages need, with these permissions and in this order, and return the folder."""
    names = files_of_the_repository("service/memoryd_server") + files_of_the_repository("clients/python")
    names += ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore", "clients/README.md"]
    for name in sorted(names, reverse=order == "descending"):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((REPOSITORY / name).read_bytes())
        copy.chmod(mode)
    return target


def build(folder, target, *options, **variables):
    """Build the package in a folder, as `make dist` does it, and return the bytes of each archive by its name."""
    env = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    run(sys.executable, "-m", "hatchling", "build", "-d", target, *options, cwd=folder, env=env | variables)
    return {file.name: file.read_bytes() for file in target.iterdir()}


def built(package):
    """Return the bytes of the archives of a package in dist, by their names."""
    return {file.name: file.read_bytes() for file in (archive(package, ".whl"), archive(package, ".tar.gz"))}


@PACKAGES
def test_two_copies_of_the_tree_build_the_same_bytes_as_make_dist(package, tmp_path):
    first = copy_of_the_tree(tmp_path / "first", mode=0o600, order="ascending")
    second = copy_of_the_tree(tmp_path / "second", mode=0o666, order="descending")
    (second / MODULES[package] / "__pycache__").mkdir()
    (second / MODULES[package] / "__pycache__" / "stale.cpython-311.pyc").write_bytes(b"compiled")
    os.utime(second / MODULES[package] / "__init__.py", (1, 1))
    one = build(first / FOLDERS[package], tmp_path / "1", TZ="UTC")
    two = build(second / FOLDERS[package], tmp_path / "2", TZ="Asia/Tokyo")
    assert one == two
    assert one == built(package), "dist does not contain the current files; run `make dist`"


@PACKAGES
def test_wheel_from_the_sdist_equals_the_wheel_from_the_tree(package, tmp_path):
    with tarfile.open(archive(package, ".tar.gz")) as source:
        source.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    wheel = archive(package, ".whl")
    assert build(folder, tmp_path / "wheel", "-t", "wheel") == {wheel.name: wheel.read_bytes()}


@PACKAGES
def test_sdist_contains_the_modules_and_what_they_are_built_from(package):
    source = archive(package, ".tar.gz")
    packed = below(source.name.removesuffix(".tar.gz"), contents(source))
    prefix = "" if FOLDERS[package] == "." else f"{FOLDERS[package]}/"
    modules = {name.removeprefix(prefix) for name in files_of_the_repository(MODULES[package])}
    assert set(packed) == modules | OTHER_FILES[package] | STANDARD_FILES
    for name in modules | {"README.md", "LICENSE", "pyproject.toml"}:
        assert packed[name] == (REPOSITORY / FOLDERS[package] / name).read_bytes(), name


@PACKAGES
def test_wheel_contains_the_modules_and_the_license(package):
    packed = set(contents(archive(package, ".whl")))
    parent = MODULES[package].rpartition("/")[0]
    modules = {name.removeprefix(f"{parent}/") for name in files_of_the_repository(MODULES[package])}
    added = {re.sub(r"^[^/]*\.dist-info/", "", name) for name in packed - modules}
    assert modules <= packed
    assert added == {"METADATA", "WHEEL", "RECORD", "licenses/LICENSE"} | (
        {"entry_points.txt"} if package == "memoryd" else set()
    )


@PACKAGES
def test_readme_in_the_metadata_has_no_relative_link(package):
    (metadata,) = [text for name, text in contents(archive(package, ".whl")).items() if name.endswith("/METADATA")]
    message = message_from_bytes(metadata)
    links = re.findall(r"\]\(([^)]+)\)", message.get_payload())
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert message["Description-Content-Type"] == "text/markdown"


def test_metadata_is_accepted_by_the_package_index():
    printed = run(tool("twine"), "--no-color", "check", "--strict", *sorted(DIST.iterdir()))
    assert printed.count("PASSED") == 2 * len(FOLDERS)
