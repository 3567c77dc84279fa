"""Measure the inspector in a real Chromium: `python benchmarks/inspector.py`. Needs `make browser`.

The workspace has 10,000 notes. Measured are, in milliseconds, the medians of several runs of:

- from the navigation until the form for signing in, the overview and its chart of all notes are shown, each in a new
  profile, whose cache is empty;
- from the last character of a query until its results are shown, which includes the 150 ms that the page waits for
  more characters;
- from a click on the tab until the first rows of the tree of files are shown, and until all files are loaded.

The bytes are those of the bodies on the network and of the files. Prints JSON and writes it to
benchmarks/results/inspector.json.
"""

import argparse
import json
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from corpus import Prose, write
from daemon import DaemonProcess
from keyword_path import sync

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import Browser, BrowserContext, Page, Request

from browser.chromium import chromium

NOTE_BYTES = 400
STEP_MS = 60_000
# Keeps when the elements of each selector were first painted, in milliseconds since the navigation.
OBSERVE = """
window.painted = {};
const selectors = %s;
const look = () => {
  for (const [name, selector] of Object.entries(selectors)) {
    if (name in window.painted || !document.querySelector(selector)) continue;
    window.painted[name] = null;
    requestAnimationFrame(() => setTimeout(() => (window.painted[name] = performance.now())));
  }
};
new MutationObserver(look).observe(document, {subtree: true, childList: true, attributes: true});
"""
SELECTORS = {"sign_in": "#token", "overview": "#view dl dd", "chart": "#view svg"}
# Runs an action, and resolves with the milliseconds until `isDone` is true and painted.
MEASURE = """
async ([action, isDone]) => {
  const done = new Function(`return ${isDone}`);
  const began = performance.now();
  new Function(action)();
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`not done: ${isDone}`)), 60000);
    const observer = new MutationObserver(() => done() && (observer.disconnect(), resolve()));
    observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  });
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return performance.now() - began;
}
"""
TYPE = """
const field = document.querySelector("#view input[type=search]");
field.value = %s;
field.dispatchEvent(new Event("input", {bubbles: true}));
"""
HAS_RESULTS = """document.querySelector("#view ol article") && !document.querySelector("#view [aria-busy=true]")"""


def free_port() -> int:
    """Return a port of loopback that nothing uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def new_token(state: Path) -> str:
    command = [sys.executable, "-m", "memoryd_server", "token", "new", "--state-dir", str(state), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["token"]


def new_page(browser: Browser, cookies: list) -> tuple[BrowserContext, Page]:
    """Return a page with an empty cache. Its CSP is off, so that measuring can evaluate scripts."""
    context = browser.new_context(bypass_csp=True)
    context.set_default_timeout(STEP_MS)
    context.add_cookies(cookies)
    context.add_init_script(OBSERVE % json.dumps(SELECTORS))
    return context, context.new_page()


def painted(page: Page, name: str) -> float:
    return page.wait_for_function("name => window.painted[name]", arg=name).json_value()


class Run:
    """One run: the times of a page in a new profile, and the bytes that it loaded."""

    def __init__(self, browser: Browser, url: str, cookies: list, questions: list[str], files: int) -> None:
        context, page = new_page(browser, [])
        requests = []

        def keep(request: Request) -> None:
            requests.append(request)

        page.on("requestfinished", keep)
        page.goto(url)
        self.times = {"sign_in_shown_ms": painted(page, "sign_in")}
        page.wait_for_load_state("networkidle")
        sizes = [(request.sizes(), request.response().body()) for request in requests]
        self.bytes = {
            "body_bytes": sum(sent["responseBodySize"] for sent, _ in sizes),
            "header_bytes": sum(sent["responseHeadersSize"] for sent, _ in sizes),
            "file_bytes": sum(len(body) for _, body in sizes),
            "responses": len(sizes),
        }
        context.close()
        context, page = new_page(browser, cookies)
        page.goto(url)
        self.times["overview_shown_ms"] = painted(page, "overview")
        self.times["chart_shown_ms"] = painted(page, "chart")
        self._measure_views(page, url, questions, files)
        context.close()

    def _measure_views(self, page: Page, url: str, questions: list[str], files: int) -> None:
        page.goto(f"{url}/#/main/search")
        page.wait_for_selector("#view input[type=search]")
        times = []
        for question in questions:
            page.evaluate("""document.querySelector("#view ol")?.remove()""")
            times.append(page.evaluate(MEASURE, [TYPE % json.dumps(question), HAS_RESULTS]))
        self.times["results_shown_ms"] = statistics.median(times)
        first = "document.querySelector('#view .file-list li')"
        self.times["file_rows_shown_ms"] = page.evaluate(MEASURE, ["location.hash = '#/main/files'", first])
        self.times["all_files_shown_ms"] = self.times["file_rows_shown_ms"] + page.evaluate(ALL_FILES % f"{files:,}")


# The summary counts the files that are loaded so far.
ALL_FILES = """
async () => {
  const began = performance.now();
  const isDone = () => document.querySelector("#view .file-list").textContent.includes("%s");
  while (!isDone()) await new Promise((resolve) => setTimeout(resolve, 5));
  return performance.now() - began;
}
"""


def signed_in(browser: Browser, url: str, token: str) -> list:
    """Sign in, and return the cookies."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()
    cookies = context.cookies(f"{url}/inspector/watch")
    context.close()
    return cookies


def median(values: list[float]) -> float:
    return round(statistics.median(values), 1)


def main() -> None:
    """Measure one daemon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "inspector.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        workspace, state = Path(directory, "workspace"), Path(directory, "state")
        state.mkdir(mode=0o700)
        prose: Prose = write(workspace, options.files, NOTE_BYTES)
        questions = [prose.question() for _ in range(5)]
        port = free_port()
        settings = {
            "agents": {"defaults": {"memorySearch": {"provider": "none"}}},
            "memoryd": {"http": {"listen": f"127.0.0.1:{port}"}},
        }
        (state / "memoryd.json5").write_text(json.dumps(settings), "utf-8")
        daemon = DaemonProcess(workspace, state)
        try:
            with daemon.start() as client:
                sync(client)
                url = f"http://127.0.0.1:{port}"
                cookies = signed_in(browser, url, new_token(state))
                runs = [Run(browser, url, cookies, questions, options.files) for _ in range(options.runs)]
                version = browser.version
        finally:
            daemon.stop()
    report = {
        "files": options.files,
        "runs": options.runs,
        "chromium": version,
        "machine": platform.machine(),
        **{name: median([run.times[name] for run in runs]) for name in runs[0].times},
        **runs[-1].bytes,
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
