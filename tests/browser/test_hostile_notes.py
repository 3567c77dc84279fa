"""Notes and names that try to run scripts, to load something, or to look like another text."""

import pytest
from playwright.sync_api import expect

from browser.inspected_notes import (
    EXECUTED,
    FAILED,
    HOSTILE_CALLER,
    HOSTILE_FAILED,
    HOSTILE_NAME,
    HOSTILE_QUOTES,
    HOSTILE_RULE,
    PAYLOADS,
)

pytestmark = pytest.mark.attacks


def harmless(inspector):
    """Check that no payload became an element or ran."""
    view = inspector.page.locator("#view")
    for tag in ("script", "img", "iframe", "style", "object", "embed", "math", "link", "base", "form[action]"):
        expect(view.locator(tag)).to_have_count(0)
    addresses = inspector.page.locator("a").evaluate_all("links => links.map((link) => link.getAttribute('href'))")
    assert [address for address in addresses if not address.startswith("#")] == []
    assert inspector.page.evaluate(f"window.{EXECUTED}") is None


def test_results_show_payloads_as_text(inspector):
    results = inspector.search("zanzibar")
    expect(results.filter(has_text=HOSTILE_NAME).first).to_contain_text(PAYLOADS[1])
    assert results.first.locator("mark").count() > 0
    harmless(inspector)
    # The query itself is shown, too.
    inspector.page.get_by_label("Search the memory").fill(PAYLOADS[1])
    inspector.settled()
    harmless(inspector)


@pytest.mark.parametrize("path", [HOSTILE_NAME, HOSTILE_QUOTES, HOSTILE_FAILED, HOSTILE_RULE, PAYLOADS[1]])
def test_files_with_hostile_names_are_shown(inspector, path):
    inspector.go("Files")
    inspector.go("Files", path=path)
    inspector.settled()
    expect(inspector.page.get_by_role("region", name="File", exact=True)).to_contain_text(path.rstrip("/"))
    harmless(inspector)


def test_the_explanation_of_a_hostile_name_is_text(inspector):
    inspector.search("zanzibar", why=HOSTILE_FAILED)
    expect(inspector.page.get_by_text("left out here")).to_be_visible()
    harmless(inspector)


def test_the_history_shows_a_hostile_name_of_a_token(inspector):
    inspector.go("Files", path="MEMORY.md")
    inspector.page.get_by_text("History", exact=True).click()
    expect(inspector.page.get_by_text(HOSTILE_CALLER).first).to_be_visible()
    for summary in inspector.page.get_by_text("Differences", exact=True).all():
        summary.click()
    inspector.settled()
    harmless(inspector)


@pytest.mark.parametrize("view", ["Overview", "Timeline", "Session"])
def test_other_views_are_harmless(inspector, view):
    inspector.go(view)
    inspector.settled()
    harmless(inspector)


def test_a_link_to_the_page_cannot_inject_a_payload(inspector):
    for address in (
        f"#/main/search?q={PAYLOADS[1]}",
        f"#/{PAYLOADS[1]}/search",
        f"#/main/{PAYLOADS[1]}",
        "#/main/__proto__",
        "#/main/files?path=javascript:alert(1)&line=constructor",
        "#/%E0%A4%A/%/?%",
        f"#javascript:window.{EXECUTED}=1",
    ):
        inspector.page.goto(f"{inspector.inspected.url}/{address}")
        expect(inspector.page.get_by_role("heading", level=2).first).to_be_visible()
        inspector.settled()
        harmless(inspector)


def test_text_that_reverses_its_direction_does_not_reverse_what_is_around_it(inspector):
    results = inspector.search("invoice zanzibar")
    mark = results.filter(has_text=HOSTILE_NAME).first
    expect(mark).to_be_visible()
    for element in mark.locator("pre, a.place").all():
        assert element.evaluate("(e) => getComputedStyle(e).unicodeBidi") in ("isolate", "plaintext") or (
            element.locator("bdi").count() > 0
        )


def test_a_failed_file_of_this_workspace_is_still_shown(inspector):
    inspector.go("Files", path=FAILED)
    expect(inspector.page.get_by_role("region", name="File", exact=True)).to_contain_text("could not be indexed")


def test_a_long_run_of_combining_characters_does_not_freeze_the_page(inspector):
    text = "a" + "\u0301" * 120_000

    def answer(route):
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "text": text, "endLine": 1, "totalLines": 1})

    inspector.page.route("**/inspector/call/MemoryGet", answer)
    inspector.go("Files", path="MEMORY.md")
    # Without breaks, the layout takes longer than a step of the page may.
    inspector.page.locator(".line-text").first.click(timeout=8_000)
    assert inspector.page.locator(".line-text").first.evaluate("(line) => line.textContent") == text
