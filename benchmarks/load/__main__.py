"""Measure a daemon under the load of many callers: `python benchmarks/load [--only PART] [--minutes 10]`.

Parts: `calls` (one kind of call at a time, from 1, 8 and 64 callers, and the mix of a gateway), `soak` (the mix for
minutes: errors, and whether memory stays constant), `cold` (from the start of the command to the first response, on an
indexed workspace of 10,000 files). 15,000 chunks, hybrid search, with cached query vectors. The callers run in another
process on the same cores.

Prints JSON and writes it to benchmarks/results/load.json. With `--only`, the other parts of the file are kept.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from corpus import write  # noqa: E402 -- the benchmarks share modules, and this one is a folder of its own
from daemon import DaemonProcess  # noqa: E402
from keyword_path import percentile, search_times, sync  # noqa: E402
from loopback_provider import LoopbackProvider  # noqa: E402
from search_path import CHUNK_BYTES, CHUNKS_A_FILE, DIMENSIONS, settings  # noqa: E402

QUESTIONS = 400
KINDS = ("search", "get", "append", "mix")
CONCURRENCY = (1, 8, 64)
SAMPLE_SECONDS = 10.0
# Until then, memory grows because caches fill up to their limits.
SETTLING_SHARE = 0.3
TARGETS = {
    "search_64_requests_per_second": 300.0,
    "search_64_p99_ms": 400.0,
    "get_64_requests_per_second": 1_200.0,
    "soak_errors": 0,
    "soak_rss_change": 0.05,
    "cold_start_seconds": 0.7,
}


class IndexedDaemon:
    """A daemon with an indexed workspace and cached query vectors, stopped at the end of the `with` block."""

    def __init__(self, directory: Path, chunks: int) -> None:
        self._provider = LoopbackProvider(DIMENSIONS)
        self._workspace, state = directory / "workspace", directory / "state"
        self._prose = write(self._workspace, chunks // CHUNKS_A_FILE, CHUNKS_A_FILE * CHUNK_BYTES)
        state.mkdir()
        self._provider.start()
        (state / "memoryd.json5").write_text(settings(self._provider), "utf-8")
        self.daemon = DaemonProcess(self._workspace, state)

    def __enter__(self) -> Self:
        client = self.daemon.start()
        sync(client)
        self.chunks = client.status(timeout=60).index.chunks
        self.questions = [self._prose.question() for _ in range(QUESTIONS)]
        self.paths = [str(path.relative_to(self._workspace)) for path in sorted(self._workspace.rglob("*.md"))]
        search_times(client, self.questions)
        client.close()
        return self

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()
        self._provider.stop()

    def load(self, kind: str, concurrency: int, seconds: float) -> dict[str, Any]:
        """Return the callers' report and the daemon's CPU time."""
        request = {
            "address": self.daemon.address,
            "kind": kind,
            "concurrency": concurrency,
            "seconds": seconds,
            "questions": self.questions,
            "paths": self.paths,
        }
        before = self.daemon.cpu_seconds()
        done = subprocess.run(
            [sys.executable, HERE / "client.py"], input=json.dumps(request), capture_output=True, text=True, check=True
        )
        spent = self.daemon.cpu_seconds() - before
        return {**json.loads(done.stdout), "daemon_cpu_seconds": spent}


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """Return rates, latencies, and the CPU time of a call on both sides."""
    times = [each for found in report["times_ms"].values() for each in found]
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {
        "requests_per_second": round(len(times) / report["seconds"], 1),
        **{name: round(percentile(times, share), 2) for name, share in shares.items()},
        "daemon_cpu_ms_a_call": round(1_000 * report["daemon_cpu_seconds"] / len(times), 2),
        "client_cpu_ms_a_call": round(1_000 * report["cpu_seconds"] / len(times), 2),
        "errors": dict(report["errors"]),
    }


def calls(indexed: IndexedDaemon, options: argparse.Namespace) -> dict[str, Any]:
    """Measure each kind of call with each number of callers."""
    found: dict[str, Any] = {"chunks": indexed.chunks}
    for kind in KINDS:
        for concurrency in CONCURRENCY:
            name = f"{kind}_{concurrency}"
            found[name] = summary(indexed.load(kind, concurrency, options.seconds))
            found[name]["rss_mib"] = round(indexed.daemon.rss_mib())
            print(json.dumps({name: found[name]}), flush=True)
    return found


class RssSampler(threading.Thread):
    """Samples a daemon's memory every few seconds until it is stopped."""

    def __init__(self, daemon: DaemonProcess) -> None:
        super().__init__()
        self._daemon = daemon
        self._over = threading.Event()
        self._found: list[float] = []

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._found.append(self._daemon.rss_mib())

    def end(self) -> list[float]:
        self._over.set()
        self.join()
        return self._found


def soak(indexed: IndexedDaemon, options: argparse.Namespace) -> dict[str, Any]:
    """Run the mix from eight callers for minutes. Memory growth is the last tenth compared with the settled state."""
    sampler = RssSampler(indexed.daemon)
    sampler.start()
    report = indexed.load("mix", 8, 60 * options.minutes)
    samples = sampler.end()
    settled = samples[int(SETTLING_SHARE * len(samples)) :]
    tenth = max(1, len(settled) // 10)
    first, last = statistics.median(settled[:tenth]), statistics.median(settled[-tenth:])
    return {
        "minutes": options.minutes,
        **summary(report),
        "rss_mib": [round(sample, 1) for sample in samples],
        "rss_change": round(last / first - 1, 4),
    }


def cold(directory: Path, files: int) -> dict[str, float]:
    """Return the median of five starts on an indexed workspace, each until the response to its first search."""
    workspace, state = directory / "workspace", directory / "state"
    prose = write(workspace, files, 1_500)
    state.mkdir()
    (state / "memoryd.json5").write_text(settings(None), "utf-8")
    first = DaemonProcess(workspace, state)
    sync(first.start())
    first.stop()
    seconds = []
    for _ in range(5):
        daemon = DaemonProcess(workspace, state)
        began = time.perf_counter()
        client = daemon.start()
        client.search(query=prose.question(), timeout=30)
        seconds.append(time.perf_counter() - began)
        client.close()
        daemon.stop()
    return {"files": files, "seconds": round(statistics.median(seconds), 3)}


def met(parts: dict[str, Any]) -> dict[str, bool]:
    """Return which targets the measured parts meet."""
    figures: dict[str, float] = {}
    if "calls" in parts:
        for name in ("search_64", "get_64"):
            figures |= {f"{name}_{key}": value for key, value in parts["calls"][name].items() if key != "errors"}
    if "soak" in parts:
        figures["soak_errors"] = sum(parts["soak"]["errors"].values())
        figures["soak_rss_change"] = abs(parts["soak"]["rss_change"])
    if "cold" in parts:
        figures["cold_start_seconds"] = parts["cold"]["seconds"]
    more_is_better = "requests_per_second"
    return {
        name: figures[name] >= target if name.endswith(more_is_better) else figures[name] <= target
        for name, target in TARGETS.items()
        if name in figures
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("calls", "soak", "cold"), action="append", help="run only this part")
    parser.add_argument("--chunks", type=int, default=15_000)
    parser.add_argument("--files", type=int, default=10_000, help="files of the cold start")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration for each kind of call")
    parser.add_argument("--minutes", type=float, default=10.0, help="duration of the soak")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "load.json")
    options = parser.parse_args()
    wanted = options.only or ["calls", "soak", "cold"]
    parts = json.loads(options.out.read_text("utf-8"))["parts"] if options.only and options.out.exists() else {}
    with tempfile.TemporaryDirectory() as directory:
        if {"calls", "soak"} & {*wanted}:
            with IndexedDaemon(Path(directory) / "load", options.chunks) as indexed:
                for name, part in (("calls", calls), ("soak", soak)):
                    if name in wanted:
                        parts[name] = part(indexed, options)
        if "cold" in wanted:
            parts["cold"] = cold(Path(directory) / "cold", options.files)
    result = {"parts": parts, "targets": TARGETS, "met": met(parts)}
    options.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps({"met": result["met"]}, indent=2))


if __name__ == "__main__":
    main()
