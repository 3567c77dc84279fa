"""Write the screenshots of the inspector that the documentation shows: `make screenshots`.

The notes, the clock of the daemon and the clock of the browser are the same in each run.
"""

import argparse
import shutil
from datetime import UTC, datetime
from pathlib import Path

from browser.chromium import REPOSITORY, chromium
from browser.inspected_daemon import MAIN, SUPPORT, inspected_daemon
from browser.inspector import new_inspector

IMAGES = REPOSITORY / "docs" / "images"
NOW = datetime(2026, 2, 20, 9, 30, tzinfo=UTC)
# The overview shows the path of the workspace. It must not exist yet.
FOLDER = Path("/tmp/tidepool")
SIZE = {"width": 1280, "height": 1000}
THEMES = ("light", "dark")
# The documentation shows one view in both themes.
DARK = ("search",)


def overview(inspector):
    inspector.go("Overview")


def search(inspector):
    inspector.search("double bookings in Flensburg after a deploy").first.wait_for()


def files(inspector):
    inspector.go("Files", path="memory/projects/booking-engine.md")


def timeline(inspector):
    inspector.go("Timeline")


def session(inspector):
    inspector.go("Session", text="How do I repair ERR_CACHE_4017?", tokens=400)
    inspector.page.get_by_role("heading", name="The block, exactly as it is injected").wait_for()
    inspector.section("What recall would inject before a turn").evaluate("(section) => section.scrollIntoView()")


VIEWS = {view.__name__: view for view in (overview, search, files, timeline, session)}


def main():
    """Write all images."""
    parser = argparse.ArgumentParser(prog="python -m browser.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder of the images")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    FOLDER.mkdir(mode=0o700)
    try:
        with inspected_daemon(FOLDER, hostile=False, now=NOW) as inspected, chromium() as browser:
            _, token = inspected.new_token(MAIN, SUPPORT)
            for theme in THEMES:
                inspector = new_inspector(browser, inspected, viewport=SIZE, color_scheme=theme, timezone_id="UTC")
                inspector.page.clock.set_fixed_time(NOW)
                inspector.sign_in(token)
                for name in VIEWS if theme == "light" else DARK:
                    VIEWS[name](inspector)
                    inspector.settled()
                    inspector.page.screenshot(path=out / f"inspector-{name}-{theme}.png", animations="disabled")
                inspector.check()
                inspector.context.close()
    finally:
        shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
