"""The dashboard asks for figures that there are, by labels that they have."""

import json
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fake_providers import embedding_server
from memoryd.v1 import memory_pb2

DASHBOARD = Path(__file__).parents[2] / "service" / "deploy" / "grafana-dashboard.json"
QUERY = re.compile(r"((?:memoryd|process)_[a-z_]+)(?:\{([^{}]*)\})?")
MATCHER = re.compile(r'\s*([a-z_]+)\s*(?:=~|!~|!=|=)\s*"[^"]*"\s*')
# What Prometheus adds to each figure that it fetches.
OF_PROMETHEUS = {"instance", "job"}
GROUPING = re.compile(r"\b(?:by|without|ignoring|on) \(([a-z_, ]+)\)")


@pytest.fixture
def server():
    with embedding_server() as server:
        yield server


def dashboard():
    return json.loads(DASHBOARD.read_text("utf-8"))


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries():
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    return found + [v["query"]["query"] for v in dashboard()["templating"]["list"] if v["type"] == "query"]


async def labels_of_figures(running):
    """Every sample's name with the labels that it has."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(running.daemon.metrics_url)).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def test_every_query_names_figures_that_there_are_by_labels_that_they_have(serve, home, server):
    home.write(boat="the red ferry sails at dawn")
    remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "model": "words", "remote": remote}
    settings = {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"metrics": {"listen": "127.0.0.1:0"}}}
    running = await serve(settings)
    await running.synced()
    await running.search("ferry at dawn", mode=memory_pb2.SEARCH_MODE_HYBRID)
    await running.search("zyzzyva", mode=memory_pb2.SEARCH_MODE_KEYWORD)
    server.refuse = lambda _texts: server.denied()
    home.write(bird="a heron waits by the pier")
    await running.synced()
    await running.search("heron")
    known = await labels_of_figures(running)
    for query in queries():
        named = QUERY.findall(query)
        assert named, query
        labels = set()
        for name, matchers in named:
            assert name in known, f"{name} is no figure: {query}"
            labels |= known[name]
            for matcher in filter(None, matchers.split(",")):
                found = MATCHER.fullmatch(matcher)
                assert found, f"{matcher!r} in {query}"
                assert found[1] in known[name] | OF_PROMETHEUS, f"{name} has no label {found[1]}"
        for names in GROUPING.findall(query):
            assert {name.strip() for name in names.split(",")} <= labels | OF_PROMETHEUS, query
        for opening, closing in ("()", "{}", "[]"):
            assert query.count(opening) == query.count(closing), query


def test_legends_use_labels_that_their_query_keeps():
    for panel in panels():
        for target in panel["targets"]:
            for label in re.findall(r"\{\{([a-z_]+)\}\}", target["legendFormat"]):
                assert re.search(rf"\bby \([^)]*\b{label}\b|topk", target["expr"]), (panel["title"], label)


def test_panels_have_a_place_and_say_what_they_show():
    placed, ids = [], set()
    for panel in dashboard()["panels"]:
        ids.add(panel["id"])
        place = panel["gridPos"]
        placed += [(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])]
    assert len(ids) == len(dashboard()["panels"])
    assert len(placed) == len(set(placed)), "two panels overlap"
    assert all(0 <= x < 24 for x, _ in placed)
    assert all(panel["description"].endswith(".") for panel in panels())


def test_counters_are_asked_for_as_rates():
    for query in queries():
        for name in re.findall(r"\b[a-z_]+_(?:total|bucket|sum|count)\b", query):
            assert re.search(rf"rate\({name}\{{[^}}]*\}}\[\$__rate_interval\]\)", query), query


async def test_every_figure_is_shown_or_needs_no_place(serve, home):
    running = await serve({"memoryd": {"metrics": {"listen": "127.0.0.1:0"}}})
    home.write(a="the red ferry")
    await running.synced()
    await running.search("ferry")
    shown = {name for query in queries() for name, _ in QUERY.findall(query)}
    families = {re.sub(r"_(total|bucket|sum|count|created)$", "", name) for name in await labels_of_figures(running)}
    ours = {name for name in families if name.startswith("memoryd_")}
    missing = ours - {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in shown}
    assert missing <= NEEDS_NO_PLACE


NEEDS_NO_PLACE = {
    "memoryd_embedding_cache_hits",
    "memoryd_index_bytes",
    "memoryd_index_chunks",
    "memoryd_index_dirty",
    "memoryd_index_files",
    "memoryd_index_revision",
    "memoryd_sync_duration_seconds",
    "memoryd_sync_running",
}
