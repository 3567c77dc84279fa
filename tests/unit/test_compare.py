"""docs/compare.md and the README show the figures of the committed run of `python benchmarks/peers`, and no others."""

import copy
import importlib.util
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median

import pytest

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results" / "peers.json"
QUESTIONS = RESULTS.with_name("peers-questions.jsonl")
COMPARE = REPOSITORY / "docs" / "compare.md"
README = REPOSITORY / "README.md"
MEASURED = {
    *((tool, mode) for tool in ("memoryd", "openclaw", "qmd", "basic-memory") for mode in ("keywords", "vectors")),
    ("memsearch", "vectors"),
}
# Numbers of the text that are not measured: a percentile, the name of a set, and the oldest Python of basic-memory.
DEFINITIONS = {"95th", "2018", "3.12"}
NUMBER = re.compile(r"(?<![\w@.,])\d[\d.,]*(?:\w+)?")
UNIT = re.compile(r"(\d[\d.,]*)(?: |-)?(?:ms|s|seconds|MiB|GiB|%|percent|times|x)\b")


def load_page():
    """Return benchmarks/peers/page.py, which is a script in a folder that is not a package."""
    spec = importlib.util.spec_from_file_location("peers_page", REPOSITORY / "benchmarks" / "peers" / "page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


page = load_page()


@pytest.fixture(scope="module")
def results():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def leaves(value):
    """Return the numbers and texts of a JSON value."""
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [value]


def unknown_figures(figures, results):
    """Return the figures that are not a rounded number of the results, nor part of one of their texts."""
    numbers = [leaf for leaf in leaves(results) if isinstance(leaf, int | float)]
    texts = " ".join(leaf for leaf in leaves(results) if isinstance(leaf, str))
    unknown = set()
    for figure in figures:
        written = figure.rstrip(".,")
        shown = written.replace(",", "")
        digits = len(shown.partition(".")[2])
        if written not in texts and shown not in {f"{each:.{digits}f}" for each in numbers}:
            unknown.add(figure)
    return unknown


def prose(text):
    """Return a page without generated blocks, code and the targets of links."""
    text = page.BLOCK.sub("", text)
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


def first_screen():
    """Return the README up to its second heading of the second level."""
    return "## ".join(README.read_text(encoding="utf-8").split("\n## ")[:2])


def test_tables_are_those_of_the_results(results):
    for path in page.PAGES:
        text = path.read_text(encoding="utf-8")
        assert page.render(text, results) == text, f"{path.name} is out of date: run `make peers-page`"


def test_changed_result_changes_the_page(results):
    changed = copy.deepcopy(results)
    changed["results"][0]["search"]["p50_ms"] *= 1.1
    text = COMPARE.read_text(encoding="utf-8")
    assert page.render(text, changed) != page.render(text, results)


def test_page_has_every_block():
    assert sorted(page.blocks(COMPARE.read_text(encoding="utf-8"))) == sorted(set(page.BLOCKS) - {"first screen"})


def test_every_figure_of_a_table_is_in_the_results(results):
    blocks = [match[0] for match in page.BLOCK.finditer(COMPARE.read_text(encoding="utf-8"))]
    figures = [number for block in blocks for number in NUMBER.findall(block)]
    assert len(figures) > 100
    assert unknown_figures(figures, results) == set()


def test_figure_that_was_not_measured_is_found(results):
    assert unknown_figures(["1,234,567.9", "6"], results | {"six": 6.04}) == {"1,234,567.9"}


def test_text_has_no_figures_of_its_own():
    figures = NUMBER.findall(prose(COMPARE.read_text(encoding="utf-8")))
    assert {figure.rstrip(".,") for figure in figures} == DEFINITIONS


def test_first_screen_shows_only_measured_figures(results):
    screen = first_screen()
    named = "docs/compare.md" in screen
    assert named == ("first screen" in page.blocks(screen))
    if named:
        assert unknown_figures(UNIT.findall(prose(screen)), results) == set()


def test_every_tool_was_measured(results):
    measured = {(each["tool"], each["mode"]) for each in results["results"] if {"search", "cold"} <= set(each)}
    assert measured >= MEASURED
    assert [each["failure"] for each in results["results"] if "failure" in each] == []


def test_figures_are_those_of_the_questions(results):
    answers = defaultdict(list)
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)
        answers[answer["tool"], answer["mode"]].append(answer)
    for each in results["results"]:
        asked = answers.pop((each["tool"], each["mode"]))
        assert len(asked) == results["modes"][each["mode"]]["questions"]
        assert each["recall_at_6"]["questions"] == pytest.approx(fmean(one["recall"] for one in asked), abs=1e-3)
        assert each["shown_at_6"]["questions"] == pytest.approx(fmean(one["shown"] for one in asked), abs=1e-3)
        assert each["search"]["p50_ms"] == pytest.approx(median(one["ms"] for one in asked), abs=0.01)
    assert not answers


@pytest.mark.parametrize("file", [RESULTS, QUESTIONS], ids=lambda file: file.name)
def test_results_have_no_paths_of_the_machine(file):
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users|var)/[^\s\"]*", file.read_text(encoding="utf-8")) == []
