"""Accessibility: the rules of axe-core, the keyboard, and small screens."""

import re

import pytest
from playwright.sync_api import expect

from browser.chromium import axe_violations
from browser.inspected_notes import FAILED
from browser.inspector import VIEWS

THEMES = ("light", "dark")


def visit(inspector, place):
    """Go to a place of the page, and open what it hides at first."""
    steps = {
        "Overview": lambda: inspector.go("Overview"),
        "Search": lambda: inspector.search("harbour berth booking release"),
        "Miss": lambda: inspector.search("harbour", why=FAILED),
        "Files": lambda: inspector.go("Files"),
        "File": lambda: inspector.go("Files", path="MEMORY.md"),
        "Failed file": lambda: inspector.go("Files", path=FAILED),
        "Timeline": lambda: inspector.go("Timeline"),
        "Session": lambda: inspector.go("Session"),
    }
    steps[place]()
    inspector.settled()
    for summary in inspector.page.locator("#view details:not([open]) > summary").all():
        if summary.is_visible():
            summary.click()
    inspector.settled()


PLACES = ("Overview", "Search", "Miss", "Files", "File", "Failed file", "Timeline", "Session")


@pytest.mark.parametrize("theme", THEMES)
def test_axe_reports_no_serious_violation(opened, inspected, token, theme):
    inspector = opened(inspected, color_scheme=theme).open()
    found = {"Sign in": axe_violations(inspector.page)}
    inspector.sign_in(token)
    for place in PLACES:
        visit(inspector, place)
        found[place] = axe_violations(inspector.page)
    inspector.page.keyboard.press("?")
    expect(inspector.page.get_by_role("dialog")).to_be_visible()
    found["Keys"] = axe_violations(inspector.page)
    assert not {place: texts for place, texts in found.items() if texts}


def test_the_themes_differ_and_both_are_those_of_the_system(opened, inspected):
    colors = {}
    for theme in THEMES:
        page = opened(inspected, color_scheme=theme).open().page
        colors[theme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light, dark = (sum(map(int, re.findall(r"\d+", colors[theme])[:3])) for theme in THEMES)
    assert light > 600
    assert dark < 200


@pytest.mark.parametrize("place", PLACES)
def test_nothing_scrolls_sideways_on_a_small_screen(opened, inspected, token, place):
    inspector = opened(inspected, viewport={"width": 360, "height": 720}).sign_in(token)
    visit(inspector, place)
    wide = inspector.page.evaluate("""() => document.documentElement.scrollWidth > document.documentElement.clientWidth
      ? [...document.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
        .map((e) => `${e.tagName}.${e.getAttribute("class")}: ${e.textContent.slice(0, 40)}`) : []""")
    assert wide == []


def test_the_view_is_usable_at_twice_the_size(opened, inspected, token):
    inspector = opened(inspected, viewport={"width": 640, "height": 400}, device_scale_factor=2).sign_in(token)
    for view in VIEWS:
        inspector.go(view)
        inspector.settled()
        assert inspector.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


def tab_to(inspector, locator, most=120):
    """Press Tab until the element has the focus."""
    for _ in range(most):
        if locator.evaluate("(element) => element === document.activeElement"):
            return
        inspector.page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {locator}")


def test_a_note_is_found_and_opened_with_the_keyboard_alone(opened, inspected, token):
    inspector = opened(inspected).open()
    keyboard = inspector.page.keyboard
    expect(inspector.page.get_by_label("Token")).to_be_focused()
    inspector.tokens.append(token)
    keyboard.type(token)
    keyboard.press("Enter")
    inspector.heading("Overview")
    keyboard.press("/")
    expect(inspector.page.get_by_label("Search the memory")).to_be_focused()
    keyboard.type("lighthouse keeper")
    expect(inspector.results().first).to_contain_text("Eivind")
    keyboard.press("ArrowDown")
    expect(inspector.results().first.get_by_role("link").first).to_be_focused()
    keyboard.press("Enter")
    expect(inspector.heading("Files")).to_be_focused()
    expect(inspector.page.get_by_role("region", name="File", exact=True)).to_contain_text("Eivind")


def test_letters_switch_the_view_and_move_the_focus_to_its_heading(inspector):
    for letter, view in (("s", "Search"), ("f", "Files"), ("t", "Timeline"), ("n", "Session"), ("o", "Overview")):
        inspector.page.keyboard.press("g")
        inspector.page.keyboard.press(letter)
        expect(inspector.heading(view)).to_be_focused()
        expect(inspector.page.get_by_role("link", name=view, exact=True)).to_have_attribute("aria-current", "page")
    inspector.page.keyboard.press("?")
    dialog = inspector.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Focus the search field")
    inspector.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_letters_that_are_typed_into_a_field_do_not_switch_the_view(inspector):
    inspector.go("Search")
    inspector.page.get_by_label("Search the memory").press_sequentially("g f ? /")
    expect(inspector.page.get_by_label("Search the memory")).to_have_value("g f ? /")
    inspector.heading("Search")


def test_tab_reaches_the_tabs_the_account_and_the_content(inspector):
    inspector.go("Files", path="memory/projects/berths.md")
    inspector.settled()
    page = inspector.page
    page.keyboard.press("Tab")
    for locator in (
        page.get_by_role("button", name="Sign out"),
        page.get_by_role("link", name="Timeline", exact=True),
        page.get_by_label("Path contains"),
        page.get_by_role("link", name="MEMORY.md", exact=True),
        page.get_by_text("History", exact=False).first,
        page.get_by_role("button", name=re.compile("^chunk 1: ")).first,
    ):
        tab_to(inspector, locator)
        outline = locator.evaluate("(e) => { const s = getComputedStyle(e); return s.outlineStyle + s.boxShadow; }")
        assert outline != "nonenone", f"the focus of {locator} is not visible"
