"""The dashboard asks for figures that there are, by labels that they have, in PromQL that Prometheus reads."""

import json
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fake_providers import embedding_server
from memoryd.v1 import memory_pb2
from promql import OF_PROMETHEUS, labels_of, parse, selected, selected_as_they_stand

DASHBOARD = Path(__file__).parents[2] / "service" / "deploy" / "grafana-dashboard.json"
# What Grafana fills a variable with: the values of a label of an expression.
LABEL_VALUES = re.compile(r"label_values\((.+), ([a-z_]+)\)")


@pytest.fixture
def server():
    with embedding_server() as server:
        yield server


def dashboard():
    return json.loads(DASHBOARD.read_text("utf-8"))


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def targets():
    return [target for panel in panels() for target in panel["targets"]]


def variables():
    """Expression and label of each variable that Prometheus is asked for."""
    listed = dashboard()["templating"]["list"]
    return [LABEL_VALUES.fullmatch(each["query"]["query"]).groups() for each in listed if each["type"] == "query"]


def expressions():
    """Every expression, parsed."""
    return [parse(text) for text in (*(target["expr"] for target in targets()), *(text for text, _ in variables()))]


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
    for target in targets():
        kept = labels_of(parse(target["expr"]), known)
        legend = set(re.findall(r"\{\{([a-z_]+)\}\}", target["legendFormat"]))
        assert legend <= kept, f"the legend names {legend - kept}: {target['expr']}"
    for text, label in variables():
        assert label in labels_of(parse(text), known), text


KNOWN = {"calls_total": {"code", "method"}, "calls_bucket": {"le", "method"}, "up": {"agent"}}
SOUND = {
    "sum by (code) (rate(calls_total[5m]))": {"code"},
    "sum without (code) (rate(calls_total[5m]))": {"method"} | OF_PROMETHEUS,
    "sum(up)": set(),
    "topk(2, time() - up)": {"agent"} | OF_PROMETHEUS,
    "histogram_quantile(0.9, sum by (le, method) (rate(calls_bucket[5m])))": {"method"},
    "sum by (code) (rate(calls_total[5m])) / ignoring(code) group_left sum(up)": {"code"},
}
UNSOUND = [
    "sum by (reason) (rate(calls_total[5m]))",
    "rate(downs_total[5m])",
    'up{method="x"}',
    "histogram_quantile(0.9, sum by (method) (rate(calls_bucket[5m])))",
    "sum by (code) (rate(calls_total[5m])) / sum(up)",
    "sum by (agent) (sum by (code) (calls_total))",
    "sum(rate(calls_total))",
    "sum by (code) rate(calls_total[5m])",
    'up{agent="x}',
    "sum(rate(calls_total[5m])",
]


@pytest.mark.parametrize("text", SOUND)
def test_the_labels_that_an_expression_keeps_are_determined(text):
    assert labels_of(parse(text), KNOWN) == SOUND[text]


@pytest.mark.parametrize("text", UNSOUND)
def test_an_expression_that_could_not_answer_is_found_out(text):
    with pytest.raises((AssertionError, ValueError)):
        labels_of(parse(text), KNOWN)


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
    for expression in expressions():
        for name in selected_as_they_stand(expression):
            assert not re.search("_(?:total|bucket|sum|count)$", name), expression.prettify()


async def test_every_figure_is_shown_or_needs_no_place(serve, home):
    running = await serve({"memoryd": {"metrics": {"listen": "127.0.0.1:0"}}})
    home.write(a="the red ferry")
    await running.synced()
    await running.search("ferry")
    shown = set().union(*map(selected, expressions()))
    families = {re.sub(r"_(total|bucket|sum|count|created)$", "", name) for name in await labels_of_figures(running)}
    ours = {name for name in families if name.startswith("memoryd_")}
    missing = ours - {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in shown}
    # Only daemons with a database have the figures of one, and the dashboard is that of all daemons.
    assert {name for name in missing if not name.startswith("memoryd_database_")} <= NEEDS_NO_PLACE


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
