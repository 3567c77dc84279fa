"""The metrics of the reader processes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True)
class ReaderMetrics:
    """The number of processes that are ready, and the searches passed to them since the daemon's start, by outcome."""

    processes: int
    searches: Mapping[str, int]


def reader_families(readers: ReaderMetrics) -> Iterable[Metric]:
    """Yield the metric families of the reader processes, in a fixed order."""
    yield GaugeMetricFamily("memoryd_reader_processes", "Reader processes that are ready.", readers.processes)
    searches = CounterMetricFamily(
        "memoryd_reader_searches", "Searches passed to reader processes, by outcome.", labels=("outcome",)
    )
    for outcome, count in sorted(readers.searches.items()):
        searches.add_metric((outcome,), count)
    yield searches
