"""Measure keyword search and syncs on 10,000 files of 1.5 KB with a real daemon: `python benchmarks/keyword_path.py`.

Prints JSON and writes it to benchmarks/results/keyword_path.json: the median of the runs, and every run.
"""

import argparse
import json
import platform
import statistics
import tempfile
import threading
import time
from pathlib import Path

import grpc
from corpus import Prose, write
from daemon import DaemonProcess
from grpc_health.v1 import health_pb2, health_pb2_grpc

from memoryd.client import MemorydClient

DEBOUNCE_SECONDS = 1.5
TARGETS = {
    "first_index_cpu_seconds": 6.0,
    "first_index_peak_rss_mib": 200.0,
    "noop_sync_seconds": 1.0,
    "changed_file_searchable_after_debounce_seconds": 0.3,
    "search_p50_ms": 5.0,
    "search_p99_ms": 20.0,
    "health_p99_during_sync_ms": 100.0,
}


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class HealthProbe(threading.Thread):
    """Calls the health service repeatedly until it is stopped."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._over = threading.Event()
        self.times_ms: list[float] = []

    def run(self) -> None:
        with grpc.insecure_channel(self._address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            while not self._over.wait(0.005):
                began = time.perf_counter()
                stub.Check(health_pb2.HealthCheckRequest())
                self.times_ms.append((time.perf_counter() - began) * 1000)

    def end(self) -> list[float]:
        self._over.set()
        self.join()
        return self.times_ms


def sync(client: MemorydClient) -> float:
    began = time.perf_counter()
    with client.sync() as events:
        for _ in events:
            pass
    return time.perf_counter() - began


def search_times(client: MemorydClient, questions: list[str]) -> list[float]:
    times = []
    for question in questions:
        began = time.perf_counter()
        client.search(query=question)
        times.append((time.perf_counter() - began) * 1000)
    return times


def freshness(client: MemorydClient, workspace: Path, rounds: int) -> list[float]:
    """Return the time from writing a changed file until search finds it, minus the debounce."""
    times = []
    for number in range(rounds):
        word = f"zyzzyva{number}"
        path = workspace / "memory" / "000" / f"note-{number:05}.md"
        path.write_text(path.read_text("utf-8") + f"\n{word}\n", "utf-8")
        began = time.perf_counter()
        while not client.search(query=word).results:
            time.sleep(0.01)
        times.append(time.perf_counter() - began - DEBOUNCE_SECONDS)
    return times


def one_run(directory: Path, files: int, seed: int) -> dict[str, float]:
    workspace, state = directory / "workspace", directory / "state"
    prose: Prose = write(workspace, files, 1_500, seed)
    # A search of a dirty index would start a sync immediately; measure only the watcher.
    state.mkdir()
    (state / "memoryd.json5").write_text("{agents: {defaults: {memorySearch: {sync: {onSearch: false}}}}}", "utf-8")
    daemon = DaemonProcess(workspace, state)
    client = daemon.start()
    probe = HealthProbe(daemon.address)
    probe.start()
    wall = sync(client)
    cpu, rss = daemon.cpu_seconds(), daemon.peak_rss_mib()
    health = probe.end()
    noop = statistics.median(sync(client) for _ in range(3))
    questions = [prose.question() for _ in range(600)]
    search_times(client, questions[:100])
    times = search_times(client, questions[100:])
    result = {
        "first_index_cpu_seconds": cpu,
        "first_index_wall_seconds": wall,
        "first_index_peak_rss_mib": rss,
        "noop_sync_seconds": noop,
        "search_p50_ms": percentile(times, 0.5),
        "search_p99_ms": percentile(times, 0.99),
        "health_p99_during_sync_ms": percentile(health, 0.99),
        "changed_file_searchable_after_debounce_seconds": statistics.median(freshness(client, workspace, 5)),
        "start_seconds": daemon.start_seconds,
        "chunks": client.status().index.chunks,
    }
    client.close()
    daemon.stop()
    return {key: round(value, 4) for key, value in result.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "keyword_path.json")
    options = parser.parse_args()
    runs = []
    for number in range(options.runs):
        with tempfile.TemporaryDirectory() as directory:
            runs.append(one_run(Path(directory), options.files, number + 1))
            print(json.dumps(runs[-1]), flush=True)
    medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    met = {key: medians[key] <= target for key, target in TARGETS.items()}
    report = {
        "files": options.files,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "medians": medians,
        "targets": TARGETS,
        "met": met,
        "runs": runs,
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps({"medians": medians, "met": met}, indent=2))


if __name__ == "__main__":
    main()
