"""Why a file is not found: the step that leaves it out."""

import pytest
from playwright.sync_api import expect

from browser.inspected_notes import EXCLUDED, EXCLUDED_RULE, FAILED


def explain(inspector, query, path):
    """Ask why the search does not find the file, and return the steps."""
    inspector.search(query)
    inspector.page.get_by_text("Why is a file not found?").click()
    inspector.page.get_by_label("File", exact=True).fill(path)
    inspector.page.get_by_role("button", name="Explain").click()
    return inspector.page.get_by_role("listitem").filter(has=inspector.page.get_by_text("left out here"))


@pytest.mark.parametrize(
    ("query", "path", "texts"),
    [
        ("winter storage", EXCLUDED, ("Is not excluded", "Excluded", EXCLUDED_RULE)),
        ("the replica is behind", FAILED, ("Is indexed", "Failed", "more than the 20000 allowed")),
        ("harbour", "memory/nowhere.md", ("Is on disk", "Not on disk")),
        ("Flensburg", "memory/languages/ja-notes.md", ("Is retrieved by keyword or vector search",)),
    ],
    ids=["excluded", "failed", "absent", "no match"],
)
def test_the_step_that_leaves_out_a_file_is_shown(inspector, query, path, texts):
    step = explain(inspector, query, path)
    for text in texts:
        expect(step).to_contain_text(text)


def test_a_file_that_others_outrank_is_shown_with_its_rank(inspector):
    inspector.search("harbour berth booking release")
    dropped = inspector.page.get_by_role("region", name="Dropped candidates")
    row = dropped.get_by_role("row").filter(has_text="Ranked after the last result").first
    path = row.get_by_role("link").locator("bdi").inner_text()
    row.get_by_role("button").click()
    step = inspector.page.get_by_role("listitem").filter(has=inspector.page.get_by_text("left out here"))
    expect(step).to_contain_text("Ranks within the limit of results")
    expect(step).to_contain_text("rank ")
    expect(inspector.page.get_by_label("File", exact=True)).to_have_value(path)


def test_a_file_that_is_found_is_shown_as_found(inspector):
    inspector.search("lighthouse keeper Eivind")
    inspector.page.get_by_text("Why is a file not found?").click()
    inspector.page.get_by_label("File", exact=True).fill("memory/projects/berths.md")
    inspector.page.get_by_role("button", name="Explain").click()
    expect(inspector.page.get_by_text("found", exact=True)).to_be_visible()
