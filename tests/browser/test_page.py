"""The page as a whole: its size, what it loads, and how it treats a daemon that does not answer."""

from playwright.sync_api import expect

MOST_BYTES = 150_000
# Compressed, as the files are sent.
MOST_SENT_BYTES = 60_000


def test_the_page_is_small_and_complete_after_its_first_load(opened, inspected):
    inspector = opened(inspected).open()
    files = [response for response in inspector.record.responses if response.request.method == "GET"]
    assert len({file.url for file in files}) == len(files), "a file is loaded twice"
    assert {file.status for file in files} == {200}
    sent = {file.url: file.request.sizes()["responseBodySize"] for file in files}
    assert sum(sent.values()) <= MOST_SENT_BYTES, sent
    sizes = {file.url: len(file.body()) for file in files}
    assert sum(sizes.values()) <= MOST_BYTES, sizes
    assert sum(len(file.body()) for file in files) <= MOST_BYTES


def test_no_view_loads_another_file(inspector):
    before = {response.url for response in inspector.record.responses}
    for view in ("Search", "Files", "Timeline", "Session", "Overview"):
        inspector.go(view)
        inspector.settled()
    after = {response.url for response in inspector.record.responses} - before
    assert {url for url in after if "/inspector/call/" not in url and not url.endswith("/watch")} == set()


def test_every_module_is_preloaded(inspector):
    page = inspector.page
    preloaded = set(page.locator("link[rel=modulepreload]").evaluate_all("links => links.map((link) => link.href)"))
    main = page.locator("script[type=module]").evaluate("(script) => script.src")
    loaded = {response.url for response in inspector.record.responses if response.url.endswith(".js")}
    assert loaded - preloaded == {main}


def test_a_reload_asks_only_whether_the_files_have_changed(inspector):
    before = len(inspector.record.responses)
    inspector.page.reload()
    inspector.heading("Overview")
    expect(inspector.page.get_by_role("navigation", name="Views")).to_be_visible()
    reloaded = [r for r in inspector.record.responses[before:] if r.url.endswith((".js", ".css"))]
    assert {response.status for response in reloaded} <= {200, 304}
    # Chromium shows a revalidated response as 200 and from the cache; its headers are all that was sent.
    sent = [r.request.sizes()["responseBodySize"] for r in reloaded]
    assert sum(sent) == 0, sent
