"""The list of licenses matches the lock files, and only permissive licenses and reasoned exceptions are accepted."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.license_policy import RULES, Policy, Row
from release.locks import LOCKS, Pin, read_pins

REPOSITORY = Path(__file__).parents[3]
INPUTS = ("service/locks", "service/release", "docs/licenses.md")
INPUTS += ("clients/typescript/package-lock.json", "clients/go/go.mod", "clients/rust/crates.lock")


@pytest.fixture
def policy():
    return Policy(RULES.read_text("utf-8"))


@pytest.fixture
def tree(tmp_path):
    """A copy of the files that the check reads, to be changed."""
    for path in INPUTS:
        source, target = REPOSITORY / path, tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path


def check(tree):
    environment = {**os.environ, "PYTHONPATH": str(tree / "service")}
    command = [sys.executable, "-m", "release.licenses", "--check"]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=60, check=False)


def replace(file, old, new):
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")


def test_the_committed_list_is_current():
    done = check(REPOSITORY)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_package_of_the_core_is_listed():
    listed = (REPOSITORY / "docs" / "licenses.md").read_text("utf-8")
    pins = read_pins(LOCKS / "run.lock")
    assert len(pins) > 20
    assert [pin.name for pin in pins if f"| {pin.name} | {pin.version} | " not in listed] == []


def add_to_core(tree, metadata):
    """Pin a package in the core's lock file, and install it if there is metadata for it."""
    with (tree / "service/locks/run.lock").open("a", encoding="utf-8") as lock:
        lock.write("no-such-package==1.0 \\\n    --hash=sha256:00\n")
    if metadata:
        folder = tree / "service" / "no_such_package-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: no-such-package\nVersion: 1.0\n{metadata}\n", "utf-8"
        )


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ("License-Expression: GPL-3.0-only", "no-such-package 1.0: 'GPL-3.0-only' is not permissive"),
        ("", "no-such-package 1.0 is not installed"),
        ("Summary: no license", "no-such-package: no license in its metadata"),
        (
            "Classifier: License :: OSI Approved :: GNU Affero General Public License v3",
            "no-such-package: the metadata says 'GNU Affero General Public License v3'",
        ),
    ],
    ids=["copyleft", "not installed", "no license", "copyleft as a classifier"],
)
def test_a_new_package_of_the_core_needs_a_known_permissive_license(tree, metadata, problem):
    add_to_core(tree, metadata)
    done = check(tree)
    assert done.returncode == 1
    assert problem in done.stderr


def test_a_new_package_with_a_permissive_license_only_makes_the_list_stale(tree):
    add_to_core(tree, "License-Expression: MIT")
    done = check(tree)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "docs/licenses.md is stale" in done.stderr


def test_a_new_version_fails_the_check(tree):
    version = next(pin.version for pin in read_pins(LOCKS / "run.lock") if pin.name == "click")
    replace(tree / "service/locks/run.lock", f"click=={version}", "click==99.0")
    done = check(tree)
    assert done.returncode == 1
    assert "click 99.0 is not installed" in done.stderr
    assert "docs/licenses.md is stale" in done.stderr


def test_a_changed_license_in_the_list_fails_the_check(tree):
    replace(tree / "docs/licenses.md", "| BSD-3-Clause | |", "| MIT | |")
    done = check(tree)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "docs/licenses.md is stale" in done.stderr


def test_a_copyleft_license_of_an_npm_package_fails_the_check(tree):
    # cliui is a runtime dependency; the first packages of the file may be tools.
    file = tree / "clients/typescript/package-lock.json"
    lock = json.loads(file.read_text("utf-8"))
    lock["packages"]["node_modules/cliui"]["license"] = "EPL-2.0"
    file.write_text(json.dumps(lock), "utf-8")
    done = check(tree)
    assert done.returncode == 1
    assert re.search(r"cliui \S+: 'EPL-2.0' is not permissive", done.stderr)


@pytest.mark.parametrize(
    "copyleft",
    ["GPL-3.0-only", "LGPL-2.1-or-later", "AGPL-3.0-only", "MPL-2.0", "EPL-2.0", "EUPL-1.2", "SSPL-1.0", "CDDL-1.1"],
)
@pytest.mark.parametrize("expression", ["{}", "MIT AND {}", "(MIT OR Apache-2.0) AND {}", "{} OR {}"])
def test_a_copyleft_license_is_refused(policy, copyleft, expression):
    violation = policy.violation(Row("package", "1.0", expression.format(copyleft, copyleft)))
    assert "is not permissive" in violation


@pytest.mark.parametrize(
    "expression",
    ["MIT", "MIT OR GPL-3.0-only", "Apache-2.0 WITH LLVM-exception", "MIT AND (GPL-2.0-only OR BSD-3-Clause)"],
)
def test_a_license_that_can_be_fulfilled_permissively_is_accepted(policy, expression):
    assert policy.violation(Row("package", "1.0", expression)) == ""


def test_an_exception_is_for_one_package_and_one_license(policy):
    assert policy.violation(Row("certifi", "1.0", "MPL-2.0")) == ""
    assert policy.violation(Row("another", "1.0", "MPL-2.0"))
    assert policy.violation(Row("certifi", "1.0", "GPL-3.0-only"))


@pytest.mark.parametrize("stated", ["", "UNKNOWN", "Custom", "BSD License", "Dual License"])
def test_a_license_that_is_missing_or_unknown_is_an_error(policy, stated):
    with pytest.raises(ValueError, match=r"add \[licenses\.package\]"):
        policy.license_of("package", stated)


def test_an_explained_license_is_an_error_once_the_metadata_changes(policy):
    assert policy.license_of("jinja2", "BSD License") == "BSD-3-Clause"
    with pytest.raises(ValueError, match="read the license of the new version"):
        policy.license_of("jinja2", "GPL-3.0-only")


def test_an_entry_without_a_package_is_reported(policy):
    unused = policy.unused([Row("certifi", "1.0", "MPL-2.0")])
    assert any("remove [exceptions.tqdm]" in line for line in unused)
    assert not any("certifi" in line for line in unused)


def test_packages_of_unsupported_systems_are_left_out():
    assert not Pin("colorama", "1", "sys_platform == 'win32'").is_supported
    assert not Pin("a", "1", "python_full_version >= '3.12' and sys_platform == 'emscripten'").is_supported
    assert Pin("a", "1", "python_full_version < '3.12'").is_supported
    assert Pin("a", "1", "platform_machine == 'arm64'").is_supported
