"""The pages that repeat what the code says must say the same."""

import json
import re
from pathlib import Path

import pytest
from click import Context

from memoryd.v1.error_reason_pb2 import ErrorReason
from memoryd_server.agent.recall import SilentReason
from memoryd_server.agent.recall_request import MOST_PASSAGE_CHARS
from memoryd_server.cli.main import main
from memoryd_server.model import DegradationKind
from memoryd_server.providers.model_files import DEFAULT_MODEL
from memoryd_server.recall import shown, turn
from memoryd_server.search.retrieval import KEYWORD_CANDIDATES, VECTOR_CANDIDATES

REPOSITORY = Path(__file__).parents[2]
MOST_IMAGE_BYTES = 200_000
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


def test_every_degradation_that_is_sent_has_a_row():
    rows = re.findall(r"^\| ([A-Z_]+) \| [a-z(]", text("docs/operations.md"), re.MULTILINE)
    assert {kind.name for kind in DegradationKind} <= set(rows)


def test_every_kind_of_degradation_is_sent_somewhere():
    sources = "".join(path.read_text(encoding="utf-8") for path in REPOSITORY.glob("service/memoryd_server/**/*.py"))
    assert [kind.name for kind in DegradationKind if f"DegradationKind.{kind.name}" not in sources] == []


def test_links_lead_somewhere():
    def rule(page):
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
        return [link for link in links if not (page.parent / link).exists()]

    assert not violations(rule)


def test_every_image_is_shown_and_is_small():
    """Images of the documentation; `test_links_lead_somewhere` checks that those that are shown exist."""
    images = set((REPOSITORY / "docs" / "images").iterdir())
    shown_images = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert len(images) > 3
    assert {image.name for image in images - shown_images} == set()
    assert {image.name: image.stat().st_size for image in images if image.stat().st_size > MOST_IMAGE_BYTES} == {}


def test_make_targets_that_are_named_exist():
    files = [REPOSITORY / "Makefile", *REPOSITORY.glob("clients/*/client.mk"), *REPOSITORY.glob("service/*/*.mk")]
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
    commands = main.list_commands(Context(main))
    assert len(commands) > 20
    # Completion is described below the table.
    assert set(re.findall(r"`([a-z]+)`", " ".join(rows))) >= set(commands) - {"completion"}


def test_the_file_of_the_default_local_model_is_named():
    for page in ("docs/embedding.md", "docs/configuration.md", "docs/operations.md"):
        assert DEFAULT_MODEL in text(page), page


def test_the_number_of_candidates_is_that_of_the_code():
    for page in ("docs/tuning.md", "docs/configuration.md"):
        words = " ".join(text(page).split())
        assert re.search(rf"{KEYWORD_CANDIDATES}\b[^.]*\b{VECTOR_CANDIDATES}\b", words), page


def test_the_tables_of_the_tuning_page_are_those_of_the_results():
    def cell(figures, metrics):
        shares = (f"{figures[metric]:.3f}" for metric in ("recall@6", "hit@1", "shown@6")[:metrics])
        return ", ".join("1.00" if share == "1.000" else share.removeprefix("0") for share in shares)

    results = json.loads(text("benchmarks/results/tuning.json"))
    tables = re.findall(
        r"^\|[^\n|]*\| (LoCoMo \| its notes [^\n]*)\|\n\|[-|]+\n((?:\|[^\n]*\n)+)", text("docs/tuning.md"), re.MULTILINE
    )
    assert len(tables) >= 6
    order = {"LoCoMo": "locomo", "its notes": "locomo-notes", "XQuAD en": "xquad"}
    for head, rows in tables:
        sets = [order.get(name.strip(), name.strip()) for name in head.split("|")]
        for row in rows.splitlines():
            shown = dict(zip(sets, (part.strip() for part in row.strip("|").split("|")[1:]), strict=True))
            shown = {name: value for name, value in shown.items() if value and "," in value}
            metrics = {value.count(",") + 1 for value in shown.values()}
            wanted = [{name: cell(each[name], *metrics) for name in each} for each in results.values()]
            assert shown in wanted, row


def test_the_limits_in_the_guide_to_recall_are_those_of_the_code():
    words = " ".join(text("docs/recall.md").split())
    for sentence in (
        f"Of a message of more than {2 * turn.MOST_READ_CHARS:,} code points, the first and the last",
        f"the first and the last {turn.MOST_READ_CHARS:,} are read",
        f"in a message of more than {2 * turn.MOST_PROSE_CHARS} code points",
        f"its first and last {turn.MOST_PROSE_CHARS}.",
        f"If less than {turn.LEAST_PROSE_CHARS} code points of prose remain, up to {turn.MOST_INFORMATIVE_WORDS} ",
        f"at most {MOST_PASSAGE_CHARS:,} code points long",
        f"at most {shown.MOST_SESSIONS:,} sessions per agent",
        f"after {shown.IDLE_SECONDS / 3600:.0f} hours",
    ):
        assert sentence in words, sentence


def test_every_reason_of_an_empty_recall_has_a_row():
    rows = re.findall(r"^\| ([A-Z_]+) \| [a-z]", text("docs/recall.md"), re.MULTILINE)
    assert sorted(rows) == sorted(SilentReason)
