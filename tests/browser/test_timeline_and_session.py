"""The timeline, and what a session loads and recalls."""

import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect


def test_the_timeline_lists_notes_and_sessions_newest_first(inspector):
    inspector.go("Timeline")
    inspector.settled()
    links = inspector.page.locator("#view .timeline").get_by_role("link").all_inner_texts()
    assert "sessions/winter-rates.jsonl" in links
    names = [re.fullmatch(r"memory/(\d{4}-\d{2}-\d{2})\.md", link) for link in links]
    dates = [name.group(1) for name in names if name]
    assert len(dates) > 20
    assert dates == sorted(dates, reverse=True)


def test_the_timeline_is_restricted_to_a_source_and_to_days(inspector):
    inspector.go("Timeline")
    inspector.settled()
    timeline = inspector.page.locator("#view .timeline")
    inspector.page.get_by_label("Source").select_option(label="Sessions")
    expect(timeline.get_by_role("link")).to_have_text(["sessions/winter-rates.jsonl"])
    inspector.page.get_by_label("Source").select_option(label="Memory")
    day = f"{datetime.now(UTC) - timedelta(days=15):%Y-%m-%d}"
    inspector.page.get_by_label("From").fill(day)
    inspector.page.get_by_label("To").fill(day)
    expect(timeline.get_by_role("link", name=f"memory/{day}.md")).to_be_visible()
    expect(timeline.get_by_role("heading", level=3)).to_have_count(1)
    expect(inspector.page).to_have_url(re.compile(f"from={day}"))


def test_the_chart_has_the_same_numbers_as_a_table(inspector):
    inspector.go("Timeline")
    inspector.settled()
    inspector.page.get_by_text("As a table").click()
    rows = inspector.page.get_by_role("table", name=re.compile("^Files by")).locator("tbody tr")
    total = sum(int(text) for text in rows.locator("td").all_inner_texts())
    with inspector.inspected.client() as client:
        assert total == len(client.list_files(agent_id="main", page_size=1_000).files)


def test_a_session_start_shows_the_files_that_it_loads(inspector):
    inspector.go("Session")
    start = inspector.section("What a session start loads")
    expect(start.get_by_role("link", name=re.compile("^MEMORY.md"))).to_be_visible()
    yesterday = f"memory/{datetime.now().astimezone() - timedelta(days=1):%Y-%m-%d}.md"
    expect(start).to_contain_text(yesterday)
    start.get_by_text("Text", exact=True).first.click()
    expect(start).to_contain_text("The memory of Pip")
    inspector.page.get_by_label("Session", exact=True).select_option(index=1)
    expect(start.get_by_role("link", name=re.compile("^MEMORY.md"))).to_have_count(0)


def test_recall_shows_the_block_that_it_would_inject(inspector):
    inspector.go("Session")
    recall = inspector.section("What recall would inject before a turn")
    recall.get_by_label("Message of the user").fill("How do I repair ERR_CACHE_4017 in Flensburg?")
    recall.get_by_role("button", name="Recall").click()
    expect(recall.get_by_role("group", name="The block")).to_contain_text("ERR_CACHE_4017")
    expect(recall.locator("ol").get_by_role("link").first).to_be_visible()


def test_recall_says_why_it_injects_nothing(inspector):
    inspector.go("Session", text="thanks")
    recall = inspector.section("What recall would inject before a turn")
    expect(recall).to_contain_text(re.compile("nothing to search for|Nothing in the memory is relevant"))
