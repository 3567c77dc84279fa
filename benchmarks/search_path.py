"""Measure warm searches by index size, and syncs of one file: `python benchmarks/search_path.py [--only RUN]`.

Keyword and hybrid searches over gRPC with 15,000 and 100,000 chunks; hybrid searches with cached query vectors. In
addition to the time of the call, the times of keyword search and vector search are reported (`explain`). One file of
ten chunks is added or changed, and synced; the share of the provider in that time is reported.

Prints JSON and writes it to benchmarks/results/search_path.json. With `--only`, the other runs of the file are kept.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from corpus import Prose, write
from daemon import DaemonProcess
from keyword_path import percentile, search_times, sync
from loopback_provider import LoopbackProvider

from memoryd.client import MemorydClient
from memoryd.v1 import memory_pb2

DIMENSIONS = 768
CHUNK_BYTES = 1_350
CHUNKS_A_FILE = 10
QUESTIONS = 400
# Runs: whether the size is the small one, and whether there are vectors.
RUNS = {
    "keyword_15k": (True, False),
    "hybrid_15k": (True, True),
    "keyword_100k": (False, False),
    "hybrid_100k": (False, True),
}
TARGETS = {
    "keyword_15k": {"p50_ms": 3.5, "keyword_leg_p50_ms": 5.0, "keyword_leg_p99_ms": 10.0},
    "hybrid_15k": {"p50_ms": 6.0},
    "keyword_100k": {
        "p50_ms": 20.0,
        "p99_ms": 25.0,
        "keyword_leg_p50_ms": 20.0,
        "keyword_leg_p99_ms": 40.0,
        "add_file_ms": 50.0,
        "change_file_ms": 50.0,
    },
    "hybrid_100k": {"add_file_ms": 50.0, "change_file_ms": 50.0},
}
LEGS = {memory_pb2.SEARCH_MODE_KEYWORD: "keyword_leg", memory_pb2.SEARCH_MODE_VECTOR: "vector_leg"}


def settings(provider: LoopbackProvider | None) -> str:
    search = {"sync": {"onSearch": False, "watch": False}, "query": {"maxResults": 6}}
    if provider:
        search |= {"provider": "openai-compatible", "model": "bench", "remote": {"baseUrl": provider.url}}
    limits = {"confirmAboveTokens": 0}
    return json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": limits})


def measured(directory: Path, chunks: int, provider: LoopbackProvider | None) -> dict[str, float]:
    workspace, state = directory / "workspace", directory / "state"
    prose = write(workspace, chunks // CHUNKS_A_FILE, CHUNKS_A_FILE * CHUNK_BYTES)
    state.mkdir()
    (state / "memoryd.json5").write_text(settings(provider), "utf-8")
    daemon = DaemonProcess(workspace, state)
    client = daemon.start()
    index_seconds = sync(client)
    questions = [prose.question() for _ in range(QUESTIONS)]
    first = search_times(client, questions)
    result = {
        "chunks": client.status(timeout=60).index.chunks,
        "index_seconds": round(index_seconds, 2),
        # With a provider, it accounts for most of that time.
        **({} if provider else median_and_tail("first_asked_", first)),
        **median_and_tail("", search_times(client, questions)),
        **leg_times(client, questions),
        **OneFile(client, workspace, prose, provider).costs(),
        "peak_rss_mib": round(daemon.peak_rss_mib()),
    }
    client.close()
    daemon.stop()
    return result


def median_and_tail(name: str, times_ms: list[float]) -> dict[str, float]:
    return {f"{name}p{share}_ms": round(percentile(times_ms, share / 100), 2) for share in (50, 99)}


def leg_times(client: MemorydClient, questions: list[str]) -> dict[str, float]:
    """Return the time of each search that ran, as reported by `explain`."""
    times: dict[str, list[float]] = {}
    for question in questions:
        for leg in client.search(query=question, explain=True).info.legs:
            if leg.ran:
                times.setdefault(LEGS[leg.leg], []).append(leg.elapsed.ToNanoseconds() / 1e6)
    return {key: value for name, found in times.items() for key, value in median_and_tail(f"{name}_", found).items()}


@dataclass(frozen=True)
class OneFile:
    """Measures how much longer a sync takes with one new or changed file than with none."""

    client: MemorydClient
    workspace: Path
    prose: Prose
    provider: LoopbackProvider | None
    rounds: int = 9

    def costs(self) -> dict[str, float]:
        """Return medians in milliseconds, with the provider's share of them if there is a provider."""
        folder = self.workspace / "memory" / "000"
        return {
            **self._cost("add_file", [folder / f"new-{number}.md" for number in range(self.rounds)]),
            **self._cost("change_file", [folder / f"note-{number:05}.md" for number in range(self.rounds)]),
        }

    def _cost(self, name: str, paths: list[Path]) -> dict[str, float]:
        more, provider_s = [], []
        for path in paths:
            idle = sync(self.client)
            path.write_text(self.prose.note(CHUNKS_A_FILE * CHUNK_BYTES), "utf-8")
            before = self._busy_seconds()
            more.append(sync(self.client) - idle)
            provider_s.append(self._busy_seconds() - before)
        costs = {f"{name}_ms": round(1_000 * statistics.median(more), 1)}
        if self.provider:
            costs[f"{name}_provider_ms"] = round(1_000 * statistics.median(provider_s), 1)
        return costs

    def _busy_seconds(self) -> float:
        return self.provider.busy_seconds if self.provider else 0.0


def run(name: str, options: argparse.Namespace) -> dict[str, float]:
    is_small, has_vectors = RUNS[name]
    provider = LoopbackProvider(DIMENSIONS) if has_vectors else None
    if provider:
        provider.start()
    with tempfile.TemporaryDirectory() as directory:
        result = measured(Path(directory), options.small if is_small else options.large, provider)
    if provider:
        provider.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=RUNS, action="append", help="run only this; can be repeated")
    parser.add_argument("--small", type=int, default=15_000, help="chunks of the 15k runs")
    parser.add_argument("--large", type=int, default=100_000, help="chunks of the 100k runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "search_path.json")
    parser.add_argument("--note", default="", help="about the machine or the conditions, stored with the results")
    options = parser.parse_args()
    kept = json.loads(options.out.read_text("utf-8"))["runs"] if options.only and options.out.exists() else {}
    fresh = {}
    for name in options.only or RUNS:
        fresh[name] = run(name, options)
        print(json.dumps({name: fresh[name]}), flush=True)
    runs = {name: (kept | fresh)[name] for name in RUNS if name in kept | fresh}
    met = {
        name: {key: figures[key] <= target for key, target in TARGETS[name].items() if key in figures}
        for name, figures in runs.items()
    }
    result = {"note": options.note, "runs": runs, "targets": TARGETS, "met": met}
    options.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps({"met": met}, indent=2))


if __name__ == "__main__":
    main()
