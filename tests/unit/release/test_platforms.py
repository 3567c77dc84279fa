"""The tables of platforms are those of the locked versions, and a wheel counts for the systems that accept it."""

from pathlib import Path

import pytest
from packaging.tags import parse_tag

from release.locks import PYTHONS, Pin
from release.platforms import digest, is_current, render, supported_pins
from release.wheels import PLATFORMS, Index, support

REPOSITORY = Path(__file__).parents[3]
PLATFORM = {platform.name: platform for platform in PLATFORMS}


def index(*tags, source=False):
    key = ("package", "1.0")
    found = frozenset(tag for each in tags for tag in parse_tag(each))
    return Index({key: found}, frozenset({key} if source else ()))


def supported(platform, python, *tags, source=False, marker=""):
    found = support([Pin("package", "1.0", marker)], index(*tags, source=source), PLATFORM[platform], python)
    return found.to_build, found.unavailable, found.minimum


def test_the_tables_are_about_the_locked_versions():
    page = (REPOSITORY / "docs" / "platforms.md").read_text("utf-8")
    assert is_current(page, supported_pins()), "docs/platforms.md is stale: run `make platforms` and commit the changes"


def test_a_changed_version_makes_the_tables_stale():
    pins = supported_pins()
    page = f"packages {digest(pins)} -->"
    assert is_current(page, pins)
    changed = {**pins, "core": [Pin("other", "1"), *pins["core"][1:]]}
    assert not is_current(page, changed)


@pytest.mark.parametrize(
    ("platform", "tag", "minimum"),
    [
        ("Linux x86-64, glibc", "cp312-cp312-manylinux_2_28_x86_64", "2.28"),
        ("Linux x86-64, glibc", "cp312-cp312-manylinux_2_28_x86_64.manylinux2014_x86_64", "2.17"),
        ("Linux x86-64, glibc", "py3-none-manylinux1_x86_64", "2.5"),
        ("Linux arm64, glibc", "cp310-abi3-manylinux_2_34_aarch64", "2.34"),
        ("Linux arm64, musl", "cp312-cp312-musllinux_1_2_aarch64", "1.2"),
        ("macOS arm64", "cp312-cp312-macosx_11_0_arm64", "11.0"),
        ("macOS arm64", "cp312-cp312-macosx_10_13_universal2", "11.0"),
        ("macOS x86-64", "cp312-cp312-macosx_10_13_universal2", "10.13"),
        ("macOS x86-64", "py3-none-any", "10.9"),
    ],
)
def test_a_wheel_is_accepted_from_a_minimum_version_on(platform, tag, minimum):
    assert supported(platform, "3.12", tag) == ([], [], minimum)


@pytest.mark.parametrize(
    ("platform", "python", "tag"),
    [
        ("Linux x86-64, glibc", "3.12", "cp312-cp312-manylinux_2_28_aarch64"),
        ("Linux x86-64, glibc", "3.13", "cp312-cp312-manylinux_2_28_x86_64"),
        ("Linux x86-64, glibc", "3.14", "cp314-cp314t-manylinux_2_28_x86_64"),
        ("Linux x86-64, glibc", "3.11", "cp312-abi3-manylinux_2_28_x86_64"),
        ("Linux x86-64, musl", "3.12", "cp312-cp312-manylinux_2_17_x86_64"),
        ("Linux x86-64, glibc", "3.12", "cp312-cp312-musllinux_1_1_x86_64"),
        ("Linux x86-64, glibc", "3.12", "cp312-cp312-win_amd64"),
        ("macOS x86-64", "3.12", "cp312-cp312-macosx_11_0_arm64"),
    ],
)
def test_a_package_without_a_wheel_is_built_or_unavailable(platform, python, tag):
    assert supported(platform, python, tag, source=True)[:2] == (["package"], [])
    assert supported(platform, python, tag)[:2] == ([], ["package"])


def test_a_package_whose_marker_does_not_hold_is_not_needed():
    assert supported("macOS arm64", "3.14", marker="python_full_version < '3.14'")[:2] == ([], [])
    assert supported("macOS arm64", "3.13", marker="python_full_version < '3.14'")[:2] == ([], ["package"])
    assert supported("macOS arm64", "3.13", marker="platform_machine == 'x86_64'")[:2] == ([], [])


def test_a_table_has_a_row_per_platform_and_says_what_is_missing():
    tables = render({"core": [Pin("package", "1.0")]}, index("cp311-cp311-manylinux_2_17_x86_64", source=True))
    rows = [line for line in tables.splitlines() if line.startswith(("| Linux", "| macOS"))]
    assert len(rows) == len(PLATFORMS)
    compiled = " | ".join(["compiles package"] * (len(PYTHONS) - 1))
    assert rows[0] == f"| Linux x86-64, glibc | wheels | {compiled} | glibc 2.17 |"
