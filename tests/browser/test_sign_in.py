"""Signing in and out: the token, the cookie, and what a token may see."""

import json
import re

from playwright.sync_api import expect

from browser.inspected_daemon import MAIN, SUPPORT, inspected_daemon
from browser.inspector import STORED, VIEWS


def test_a_wrong_token_is_refused_and_the_right_one_opens_the_overview(opened, inspected, token):
    inspector = opened(inspected).open()
    inspector.record.expected.append("401 (Unauthorized)")
    inspector.enter("memoryd_wrong")
    expect(inspector.page.get_by_role("alert")).to_contain_text("token")
    expect(inspector.page.get_by_label("Token")).to_have_value("")
    assert inspector.cookies() == []
    inspector.enter(token)
    inspector.heading("Overview")


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(inspector):
    (cookie,) = inspector.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/inspector")
    assert len(cookie["value"]) >= 43
    stored = inspector.page.evaluate(STORED)
    assert (stored["cookie"], stored["local"], stored["session"], stored["fields"]) == ("", {}, {}, [])
    assert inspector.tokens[0] not in json.dumps(stored) + inspector.page.content()


def test_a_session_survives_a_reload_and_ends_with_sign_out(inspector):
    inspector.page.reload()
    inspector.heading("Overview")
    inspector.page.get_by_role("button", name="Sign out").click()
    expect(inspector.page.get_by_text("You are signed out.")).to_be_visible()
    assert inspector.cookies() == []
    expect(inspector.page.get_by_role("navigation", name="Views")).to_be_hidden()
    inspector.page.reload()
    inspector.heading("Sign in")


def test_too_many_wrong_tokens_are_answered_with_the_time_to_wait(opened, tmp_path):
    with inspected_daemon(tmp_path, hostile=False) as inspected:
        inspector = opened(inspected).open()
        inspector.record.expected += ["401 (Unauthorized)", "429 (Too Many Requests)"]
        alert = inspector.page.get_by_role("alert")
        for number in range(100):
            inspector.enter(f"memoryd_wrong{number}")
            expect(inspector.page.get_by_role("button", name="Sign in")).to_be_enabled()
            expect(alert).to_be_visible()
            if "again in" in alert.inner_text():
                break
        expect(alert).to_contain_text(re.compile(r"again in \d+ s"))
        inspector.check()
        inspector.page.close()


def test_a_revoked_token_returns_to_sign_in(opened, inspected):
    token_id, token = inspected.new_token(MAIN, name="short-lived")
    inspector = opened(inspected).sign_in(token)
    inspector.record.expected.append("401 (Unauthorized)")
    inspected.revoke(token_id)
    # The stream of index states ends without an action of the user.
    inspector.heading("Sign in")
    expect(inspector.page.get_by_text("Your session has ended")).to_be_visible()
    expect(inspector.page.get_by_role("navigation", name="Views")).to_be_hidden()


def test_the_agent_select_shows_the_agents_of_the_token_and_switches_between_them(opened, inspected):
    _, token = inspected.new_token(MAIN, SUPPORT)
    inspector = opened(inspected).sign_in(token)
    select = inspector.page.get_by_label("Agent")
    assert select.locator("option").all_inner_texts() == [MAIN, SUPPORT]
    inspector.go("Search")
    select.select_option(SUPPORT)
    expect(inspector.page).to_have_url(f"{inspected.url}/#/{SUPPORT}/search")
    inspector.page.get_by_label("Search the memory").fill("ticket")
    expect(inspector.results().first).to_contain_text("memory/ticket-")


def test_a_token_for_one_agent_sees_no_other_one(opened, inspected):
    _, token = inspected.new_token(SUPPORT)
    inspector = opened(inspected).sign_in(token)
    expect(inspector.page.get_by_label("Agent")).to_be_hidden()
    for view in VIEWS:
        inspector.go(view, agent=SUPPORT)
        inspector.settled()
        inspector.go(view, agent=MAIN)
        expect(inspector.page.locator("#view")).to_contain_text(f"There is no agent {MAIN}")
    bodies = b"".join(body for url, body in inspector.record.bodies() if "/inspector/call/" in url)
    assert b"ticket" in bodies
    assert b"winter-storage" not in bodies
    assert b"Tidepool" not in bodies
