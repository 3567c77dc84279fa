"""The overview: the state of the index in figures and words, and the progress of a sync."""

import re
import threading

from playwright.sync_api import expect

from browser.inspected_daemon import BEACONS, CRANE_NOTES, CRANES, GATED_WORD, MAIN
from browser.inspected_notes import FAILED, write_numbered
from waiting import WAIT_SECONDS


def facts(inspector):
    """The names and values of all lists of facts."""
    return dict(
        inspector.page.locator("#view dl").evaluate_all(
            """lists => lists.flatMap((list) => [...list.querySelectorAll("dt")]
                .map((term) => [term.textContent, term.nextElementSibling.textContent]))"""
        )
    )


def test_the_figures_are_those_of_the_status(inspector):
    inspector.settled()
    status = inspector.inspected.status(MAIN)
    shown = facts(inspector)
    assert shown["Revision"] == str(status.index.revision)
    assert shown["Files"] == str(status.index.files)
    assert shown["Chunks"] == str(status.index.chunks)
    assert shown["Provider"] == "openai-compatible"
    assert shown["Model"] == "words"
    expect(inspector.page.locator("#view")).to_contain_text("Up to date")


def test_the_roots_are_listed_with_how_fresh_they_are(inspector):
    table = inspector.page.get_by_role("region", name="Freshness by root").get_by_role("table")
    roots = {root.root: root for root in inspector.inspected.status(MAIN).index.roots}
    workspace = table.get_by_role("row").filter(has_text="workspace")
    cells = workspace.get_by_role("cell").all_inner_texts()
    assert [int(text) for text in cells[1:5]] == [
        roots["."].files_on_disk,
        roots["."].files_indexed,
        roots["."].pending_files,
        roots["."].files_failed,
    ]
    expect(table.get_by_role("row").filter(has_text="sessions")).to_have_count(1)


def test_failed_files_are_listed_and_lead_to_the_file(inspector):
    problems = inspector.page.get_by_role("region", name="Problems")
    expect(problems).to_contain_text("more than the 20000 allowed")
    problems.get_by_role("link", name=FAILED).click()
    inspector.heading("Files")
    expect(inspector.page.get_by_role("region", name="File", exact=True)).to_contain_text("could not be indexed")


def test_degradations_are_in_words(inspector):
    inspector.go("Overview", agent=BEACONS)
    problems = inspector.page.get_by_role("region", name="Problems")
    expect(problems).to_contain_text("Vector search does not run")
    expect(problems).to_contain_text("Some chunks have no vector yet")


def test_notes_by_day_are_a_chart_with_a_text_alternative(inspector):
    inspector.settled()
    chart = inspector.section("Notes by day")
    expect(chart.locator("svg")).to_be_visible()
    assert re.search(r"\d{4}", chart.inner_text() + (chart.locator("svg").get_attribute("aria-label") or ""))


def test_the_progress_of_a_sync_appears_and_ends_with_a_new_revision(inspector):
    inspected = inspector.inspected
    inspector.go("Overview", agent=CRANES)
    inspector.settled()
    before = int(facts(inspector)["Revision"])
    inspected.gate.clear()
    write_numbered(inspected.workspace(CRANES), CRANE_NOTES, f"{GATED_WORD}-new")
    thread = threading.Thread(target=_sync, args=(inspected,))
    thread.start()
    try:
        progress = inspector.page.get_by_role("progressbar")
        expect(progress).to_be_visible()
        expect(inspector.page.get_by_role("status")).to_have_text("A sync is running.")
        expect(inspector.page.locator("#view")).to_contain_text(re.compile(r"of \d+ (file|vector)s"))
    finally:
        inspected.gate.set()
        thread.join(WAIT_SECONDS)
    expect(progress).to_be_hidden()
    expect(inspector.page.locator("#view")).to_contain_text("Up to date")
    expect(inspector.page.locator("#view dd", has_text=str(inspected.status(CRANES).index.revision))).to_be_visible()
    assert int(facts(inspector)["Revision"]) > before


def _sync(inspected):
    with inspected.client() as client:
        for _ in client.sync(agent_id=CRANES, timeout=WAIT_SECONDS):
            pass


def test_a_changed_file_is_shown_as_soon_as_it_is_indexed(inspector):
    """The view of files follows the index without a reload."""
    inspected = inspector.inspected
    with inspector.page.expect_response(f"{inspected.url}/inspector/watch"):
        inspector.go("Files", agent=CRANES)
    inspector.settled()
    (inspected.workspace(CRANES) / "memory" / "appeared.md").write_text("A hoist has appeared.\n")
    _sync(inspected)
    expect(inspector.page.get_by_role("link", name="appeared.md")).to_be_visible(timeout=15_000)
