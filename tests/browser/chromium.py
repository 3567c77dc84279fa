"""A headless Chromium of the system, and a record of everything that a page did in it."""

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Error, Page, Response, sync_playwright

REPOSITORY = Path(__file__).parents[2]
AXE = REPOSITORY / ".tools" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome")
# A step of the page on a machine that is used by many.
STEP_MS = 20_000
ARGUMENTS = (
    # Containers have no user namespaces, and root may not use the sandbox.
    "--no-sandbox",
    # Without these, Chromium asks its makers for updates and lists.
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
)
# Runs before each document's own scripts. CSP allows it, because the browser itself runs it.
WATCH_VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


def executable():
    """The path of Chromium; None if there is none."""
    return os.environ.get("MEMORYD_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium():
    """A browser without any window, until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class PageRecord:
    """What a context's pages did: problems, and the responses with their bodies.

    `expected` are parts of texts of console errors that a test provokes. Chromium reports each response with an error
    status as one.
    """

    origin: str
    problems: list[str] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def watch(self, context: BrowserContext) -> None:
        context.add_init_script(WATCH_VIOLATIONS)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.problems.append(f"uncaught: {error.error}"))
        context.on("request", self._request)
        context.on("requestfailed", self._failed)
        context.on("response", self._response)
        context.on("dialog", self._dialog)

    def bodies(self):
        """(URL, body) of each response that is complete; the event stream never is."""
        bodies = []
        for response in self.responses:
            if response.url.endswith("/inspector/watch") or response.status in (204, 304):
                continue
            try:
                bodies.append((response.url, response.body()))
            except Error:
                # The page has aborted the request, as it does for a search when the user types on.
                continue
        return bodies

    def check(self, page: Page) -> None:
        """Fail if anything went wrong on the page."""
        problems = [text for text in self.problems if not any(part in text for part in self.expected)]
        if not page.is_closed():
            problems += [f"CSP: {text}" for text in page.evaluate("window.violations ?? []")]
        assert not problems, problems
        assert not self.dialogs, self.dialogs

    def _console(self, message):
        if message.type in ("error", "warning", "assert"):
            self.problems.append(f"console {message.type}: {message.text} {message.location}")

    def _request(self, request):
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.problems.append(f"request to elsewhere: {request.method} {request.url}")

    def _response(self, response):
        self.responses.append(response)

    def _failed(self, request):
        # The page aborts requests whose results it no longer needs.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"request failed: {request.url} {request.failure}")

    def _dialog(self, dialog):
        self.dialogs.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()


def axe_violations(page: Page) -> list[str]:
    """Serious and critical violations of axe-core's rules on the page as it is.

    The source of axe is evaluated by the browser, which the page's CSP does not forbid.
    """
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((results) => results.violations)")
    return [
        f"{violation['id']} ({violation['impact']}): {node['html']} {node['failureSummary']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
