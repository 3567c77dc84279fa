"""Files: the tree with the states of the files, the text of a file with its chunks, and its history."""

import re

from playwright.sync_api import expect

from browser.inspected_notes import EXCLUDED_RULE, FAILED, HISTORY


def row(inspector, name):
    """The row of a file in the tree."""
    return inspector.page.get_by_role("listitem").filter(
        has=inspector.page.get_by_role("link", name=name, exact=True), has_not=inspector.page.get_by_role("list")
    )


def panel(inspector):
    return inspector.page.get_by_role("region", name="File", exact=True)


def test_a_failed_file_is_listed_with_the_reason(inspector):
    inspector.go("Files")
    failed = row(inspector, "meeting-transcript.md")
    expect(failed).to_contain_text("Failed")
    expect(failed).to_contain_text("more than the 20000 allowed")
    failed.get_by_role("link").click()
    expect(panel(inspector)).to_contain_text("This file could not be indexed")
    expect(panel(inspector)).to_contain_text("more than the 20000 allowed")


def test_excluded_files_and_folders_are_listed_with_their_rules(inspector):
    inspector.go("Files")
    expect(row(inspector, "drafts/")).to_contain_text(EXCLUDED_RULE)
    expect(row(inspector, "mira.private.md")).to_contain_text(".memoryignore:3: *.private.md")
    row(inspector, "mira.private.md").get_by_role("link").click()
    expect(panel(inspector)).to_contain_text("This path is not indexed: .memoryignore:3: *.private.md")


def test_files_are_filtered_by_text_and_by_state(inspector):
    inspector.go("Files")
    inspector.page.get_by_label("Path contains").fill("runbooks/")
    expect(row(inspector, "incident.md")).to_be_visible()
    expect(row(inspector, "booking-engine.md")).to_have_count(0)
    inspector.page.get_by_label("Path contains").fill("")
    inspector.page.get_by_label(re.compile(r"^\s*Failed")).check()
    expect(row(inspector, "meeting-transcript.md")).to_be_visible()
    expect(row(inspector, "MEMORY.md")).to_have_count(0)


def test_the_chunks_of_a_file_are_drawn_next_to_its_lines(inspector):
    path = "memory/projects/berths.md"
    with inspector.inspected.client() as client:
        chunks = client.get(agent_id="main", path=path, include_chunks=True).chunks
    assert len(chunks) > 3
    inspector.go("Files", path=path)
    bars = panel(inspector).get_by_role("button", name=re.compile(r"^chunk \d+: lines "))
    expect(bars).to_have_count(len(chunks))
    expect(bars.first).to_have_accessible_name(
        re.compile(rf"^chunk 1: lines {chunks[0].start_line}\W{chunks[0].end_line}$")
    )
    bars.first.focus()
    inspector.page.keyboard.press("ArrowDown")
    expect(bars.nth(1)).to_be_focused()
    for bar, chunk in zip(bars.all()[:3], chunks, strict=False):
        line = panel(inspector).locator(f'[data-line="{chunk.start_line}"]')
        if line.count():
            assert abs(bar.bounding_box()["y"] - line.bounding_box()["y"]) < 4


def test_a_link_to_a_line_shows_this_line(inspector):
    path = "memory/projects/berths.md"
    lines = (inspector.inspected.workspace() / path).read_text().splitlines()
    inspector.go("Files", path=path, line=lines.index("The lighthouse keeper is called Eivind.") + 1)
    expect(panel(inspector).get_by_text("The lighthouse keeper is called Eivind.")).to_be_in_viewport()


def test_the_history_of_a_file_shows_the_diff_of_each_write(inspector):
    inspector.go("Files", path="MEMORY.md")
    panel(inspector).get_by_text("History", exact=True).click()
    newest = panel(inspector).get_by_role("listitem").filter(has_text="Replace text").first
    newest.get_by_text("Diff", exact=True).click()
    diff = newest.get_by_role("region", name="Diff")
    expect(diff).to_contain_text(f"-{HISTORY[1]}")
    expect(diff).to_contain_text(f"+{HISTORY[2]}")


def test_a_session_is_shown_with_its_messages(inspector):
    inspector.go("Files", path="sessions/winter-rates.jsonl")
    expect(panel(inspector)).to_contain_text("Which harbour did we promise the winter rates to?")


def test_the_question_why_a_file_is_not_found_leads_to_the_search(inspector):
    inspector.go("Files", path=FAILED)
    panel(inspector).get_by_role("link", name="Why is it not found?").click()
    inspector.heading("Search")
    expect(inspector.page.get_by_label("File", exact=True)).to_have_value(FAILED)
