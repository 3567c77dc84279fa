"""Search: results while typing, the parts of their scores, what was dropped, and filters."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from browser.inspected_daemon import MAIN, SUPPORT

# Each amount is rounded to two digits.
ROUNDING = 0.006
MINUS = "\N{MINUS SIGN}"


def amounts(result):
    """The parts of a score as they are shown, by their names."""
    texts = result.get_by_role("list", name="Parts of the score").get_by_role("listitem").all_inner_texts()
    parts = [text.strip().rsplit(" ", 1) for text in texts]
    return {name: float(amount.replace(MINUS, "-")) for name, amount in parts}


def score(result):
    return float(re.search(r"score ([\d.]+)", result.inner_text()).group(1))


def test_results_appear_while_typing_and_match_what_is_typed(inspector):
    inspector.go("Search")
    field = inspector.page.get_by_label("Search the memory")
    field.press_sequentially("ERR_CACHE_4017", delay=20)
    expect(inspector.results().filter(has_text="memory/projects/booking-engine.md").first).to_be_visible()
    expect(inspector.page.get_by_role("status")).to_have_text(re.compile(r"^\d+ results?$"))
    expect(inspector.results().locator("mark").filter(has_text="ERR_CACHE_4017").first).to_be_visible()
    field.fill("harbour master Batumi retired")
    expect(inspector.results().first).to_contain_text("Batumi")
    expect(inspector.page).to_have_url(re.compile(r"q=harbour\+master\+Batumi\+retired"))


def test_the_parts_of_each_score_add_up_to_it(inspector):
    results = inspector.search("who repairs ERR_CACHE_4017 in Flensburg")
    expect(results.first).to_be_visible()
    names = set()
    for result in results.all():
        parts = amounts(result)
        names |= set(parts)
        total = sum(amount for name, amount in parts.items() if name not in ("adjacent", "diversity"))
        assert min(1, total) == pytest.approx(score(result), abs=ROUNDING * len(parts)), result.inner_text()
    assert {"keyword", "window", "vector", "decay"} <= names


def test_each_part_of_a_score_occurs_in_a_search_that_has_it(inspector):
    day = f"{datetime.now(UTC) - timedelta(days=15):%Y-%m-%d}"
    # MMR is enabled for one of the agents, and replaces the rule about adjacent chunks.
    searches = (
        (MAIN, f"what happened on {day}", "date"),
        (MAIN, "Port Vell berth prices change in spring", "diversity"),
        (SUPPORT, "berth checked for rust and rope", "adjacent"),
    )
    for agent, query, part in searches:
        results = inspector.search(query, agent=agent)
        expect(results.get_by_role("listitem").filter(has_text=re.compile(rf"^{part} ")).first).to_be_visible()


def test_the_bar_of_a_score_is_as_wide_as_its_parts(inspector):
    result = inspector.search("who repairs ERR_CACHE_4017 in Flensburg").first
    expect(result).to_be_visible()
    parts = {name: amount for name, amount in amounts(result).items() if amount > 0}
    widths = {}
    for name in parts:
        widths[name] = result.locator(f".score-bar .part-{name}").first.bounding_box()["width"]
    largest = max(parts, key=parts.get)
    for name, amount in parts.items():
        assert widths[name] / widths[largest] == pytest.approx(amount / parts[largest], abs=0.05), (parts, widths)


def test_dropped_candidates_have_a_reason(inspector):
    inspector.search("harbour berth booking release")
    table = inspector.page.get_by_role("region", name="Dropped candidates").get_by_role("table")
    rows = table.locator("tbody tr")
    expect(rows.first).to_be_visible()
    reasons = rows.locator("strong").all_inner_texts()
    assert len(reasons) == rows.count()
    assert "Unknown" not in reasons
    assert "Ranked after the last result" in reasons


def test_filters_restrict_the_results_and_are_kept_in_the_address(inspector):
    inspector.search("harbour")
    expect(inspector.results().first).to_be_visible()
    inspector.page.get_by_text("Filters", exact=True).click()
    inspector.page.get_by_label("Path begins with").fill("memory/people/")
    expect(inspector.results().filter(has_not_text="memory/people/")).to_have_count(0)
    expect(inspector.results().first).to_contain_text("memory/people/harbour-masters.md")
    expect(inspector.page).to_have_url(re.compile("prefix=memory%2Fpeople%2F"))
    inspector.page.reload()
    expect(inspector.results().first).to_contain_text("memory/people/")
    expect(inspector.page.get_by_label("Path begins with")).to_have_value("memory/people/")


def test_sessions_are_found_if_they_are_selected(inspector):
    inspector.search("winter rates")
    inspector.page.get_by_text("Filters", exact=True).click()
    inspector.page.get_by_label("sessions").check()
    expect(inspector.results().filter(has_not_text="sessions/winter-rates.jsonl")).to_have_count(0)
    expect(inspector.results().first).to_contain_text("accountant")


def test_a_search_without_results_says_why(inspector):
    inspector.search("qwertzuiop", mode="keyword")
    expect(inspector.page.locator("#view")).to_contain_text("of the query's words occur in the")


def test_a_result_leads_to_its_lines_in_the_file(inspector):
    results = inspector.search("lighthouse keeper Eivind")
    results.first.get_by_role("link").first.click()
    inspector.heading("Files")
    expect(inspector.page.get_by_role("region", name="File", exact=True)).to_contain_text("Eivind")
    expect(inspector.page).to_have_url(re.compile(r"path=memory%2Fprojects%2Fberths.md&line=\d+"))
