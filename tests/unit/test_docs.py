"""The pages that repeat what the code says must say the same."""

import re
from pathlib import Path

import pytest

from memoryd.v1.error_reason_pb2 import ErrorReason
from memoryd_server.cli.main import main

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("*.md")]
PAGES += [REPOSITORY / "clients" / "README.md", *REPOSITORY.glob("clients/*/README.md")]
PAGES += REPOSITORY.glob("docs/decisions/*.md")


def violations(rule):
    """One line per page that breaks a rule. `rule` returns what is wrong with a page; empty where nothing is."""
    found = [(page.relative_to(REPOSITORY), wrong) for page in sorted(set(PAGES)) if (wrong := rule(page))]
    return "".join(f"\n{page}: {', '.join(sorted(wrong))}" for page, wrong in found)


def text(path):
    return (REPOSITORY / path).read_text(encoding="utf-8")


def test_every_error_reason_has_a_row():
    rows = re.findall(r"^\| [A-Z_]+ \| ([A-Z_]+) \|", text("docs/errors.md"), re.MULTILINE)
    names = [name.removeprefix("ERROR_REASON_") for name in ErrorReason.keys()]  # noqa: SIM118 -- not a dict
    assert sorted(rows) == sorted(set(names) - {"UNSPECIFIED"})


def test_a_row_has_the_status_that_the_proto_names():
    wanted = dict(
        reversed(pair)
        for pair in re.findall(
            r"// \[([A-Z_]+)\](?:[^\n]*\n\s*//)*[^\n]*\n\s*ERROR_REASON_([A-Z_]+) =",
            text("protos/memoryd/v1/error_reason.proto"),
        )
    )
    rows = re.findall(r"^\| ([A-Z_]+) \| ([A-Z_]+) \|", text("docs/errors.md"), re.MULTILINE)
    assert {reason: status for status, reason in rows} == wanted


def test_links_lead_somewhere():
    def rule(page):
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
        return [link for link in links if not (page.parent / link).exists()]

    assert not violations(rule)


def test_make_targets_that_are_named_exist():
    files = [REPOSITORY / "Makefile", *REPOSITORY.glob("clients/*/client.mk")]
    targets = {target for file in files for target in re.findall(r"^([a-z-]+):", text(file), re.MULTILINE)}

    def rule(page):
        return set(re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)) - targets

    assert not violations(rule)


def test_every_decision_is_numbered_in_order():
    numbers = sorted(int(page.name[:4]) for page in REPOSITORY.glob("docs/decisions/*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/faults.md", "docs/demand.md"])
def test_a_test_that_is_named_exists(page):
    """By its name, or by its file below tests/ and its name."""
    files = {file.relative_to(REPOSITORY / "tests").as_posix(): file for file in REPOSITORY.glob("tests/**/test_*.py")}
    tests = {path: set(re.findall(r"def (test_[a-z0-9_]+)", text(file))) for path, file in files.items()}
    there = {f"{path}::{name}" for path, names in tests.items() for name in names}.union(*tests.values())
    named = set(re.findall(r"`((?:[a-z0-9_/]+\.py::)?test_[a-z0-9_]+)`", text(page)))
    assert len(named) > 10
    assert named - there == set()


def test_every_verb_is_in_the_readme():
    rows = re.findall(r"^\| ((?:`[a-z]+`(?:, )?)+) \|", text("README.md"), re.MULTILINE)
    assert set(re.findall(r"`([a-z]+)`", " ".join(rows))) >= set(main.commands)
