"""The inspector in a page of the browser: how a user signs in and goes to its views."""

import json
from dataclasses import dataclass
from urllib.parse import urlencode

from playwright.sync_api import BrowserContext, Page, expect

from browser.chromium import STEP_MS, PageRecord
from browser.inspected_daemon import MAIN, PROVIDER_KEY, REFUSED_KEY, Inspected

VIEWS = ("Overview", "Search", "Files", "Timeline", "Session")


@dataclass
class Inspector:
    """A page of the inspector. `record` is what its context did, and `tokens` are those that it signed in with."""

    inspected: Inspected
    context: BrowserContext
    page: Page
    record: PageRecord
    tokens: list[str]

    def open(self):
        """Load the page without a session."""
        self.page.goto(self.inspected.url)
        expect(self.page.get_by_role("heading", name="Sign in")).to_be_visible()
        return self

    def enter(self, token):
        """Type a token, and send it."""
        self.tokens.append(token)
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()

    def sign_in(self, token):
        """Load the page, and sign in."""
        self.open().enter(token)
        self.heading("Overview")
        return self

    def heading(self, name):
        """Wait until the view is shown, and return its heading."""
        heading = self.page.get_by_role("heading", name=name, level=2, exact=True)
        expect(heading).to_be_visible()
        return heading

    def go(self, view, agent=MAIN, **params):
        """Go to a view by its address."""
        query = urlencode(params)
        self.page.goto(f"{self.inspected.url}/#/{agent}/{view.lower()}{'?' if query else ''}{query}")
        return self.heading(view)

    def search(self, text, agent=MAIN, **params):
        """Type a query into the search field, and wait for its results."""
        self.go("Search", agent, **params)
        self.page.get_by_label("Search the memory").fill(text)
        self.settled()
        return self.results()

    def settled(self):
        """Wait until no part of the view is being loaded."""
        expect(self.page.locator("#view [aria-busy=true], #view .loading:visible")).to_have_count(0)

    def results(self):
        """The results of the search that is shown."""
        return self.page.locator("#view ol").get_by_role("article")

    def section(self, title):
        """The section of the view with this heading."""
        return self.page.locator("#view section").filter(has=self.page.get_by_role("heading", name=title, exact=True))

    def cookies(self):
        return self.context.cookies(f"{self.inspected.url}/inspector/call/Status")

    def check(self):
        """Fail if the page reported an error, went elsewhere, or got or shows a secret."""
        secrets = [PROVIDER_KEY, REFUSED_KEY, *self.tokens]
        for url, body in self.record.bodies():
            assert not [secret for secret in secrets if secret.encode() in body], url
        if not self.page.is_closed():
            shown = self.page.content() + json.dumps(self.page.evaluate(STORED))
            assert not [secret for secret in secrets if secret in shown]
        self.record.check(self.page)


STORED = """() => ({
  fields: [...document.querySelectorAll("input, textarea")].map((field) => field.value),
  local: {...localStorage}, session: {...sessionStorage}, cookie: document.cookie, href: location.href,
  title: document.title, name: window.name,
})"""


def new_inspector(browser, inspected, **options):
    """An inspector in a new context, which has no cookies."""
    context = browser.new_context(base_url=inspected.url, reduced_motion="reduce", **options)
    context.set_default_timeout(STEP_MS)
    record = PageRecord(inspected.url)
    record.watch(context)
    return Inspector(inspected, context, context.new_page(), record, [])
