"""Warm searches over gRPC by index size: `python benchmarks/search_path.py`.

Keyword searches at 15,000 and 100,000 chunks, hybrid ones at 15,000 with the query vectors already known, and what
adding one file costs. Prints JSON and writes it to benchmarks/results/search_path.json.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from corpus import Prose, write
from daemon import DaemonProcess
from keyword_path import percentile, search_times, sync
from loopback_provider import LoopbackProvider

from memoryd.client import MemorydClient

DIMENSIONS = 768
CHUNK_BYTES = 1_350
TARGETS = {
    "keyword_15k_p50_ms": 5.0,
    "keyword_100k_p50_ms": 20.0,
    "hybrid_15k_p50_ms": 8.0,
    "one_file_at_100k_ms": 50.0,
}


def settings(provider: str | None) -> str:
    search = {"sync": {"onSearch": False, "watch": False}, "query": {"maxResults": 6}}
    if provider:
        search |= {"provider": "openai-compatible", "model": "bench", "remote": {"baseUrl": provider}}
    limits = {"confirmAboveTokens": 0}
    return json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": limits})


def measured(directory: Path, chunks: int, provider: str | None) -> dict[str, float]:
    """p50 and p99 of 400 warm searches, and the time that a sync of one changed file takes."""
    workspace, state = directory / "workspace", directory / "state"
    prose = write(workspace, chunks // 10, 10 * CHUNK_BYTES)
    state.mkdir()
    (state / "memoryd.json5").write_text(settings(provider), "utf-8")
    daemon = DaemonProcess(workspace, state)
    client = daemon.start()
    began = time.perf_counter()
    sync(client)
    index_seconds = time.perf_counter() - began
    questions = [prose.question() for _ in range(400)]
    search_times(client, questions)
    times = search_times(client, questions)
    result = {
        "chunks": client.status(timeout=60).index.chunks,
        "index_seconds": round(index_seconds, 2),
        "p50_ms": round(percentile(times, 0.5), 2),
        "p99_ms": round(percentile(times, 0.99), 2),
        "one_file_ms": round(one_file(client, workspace, prose), 1),
        "peak_rss_mib": round(daemon.peak_rss_mib()),
    }
    client.close()
    daemon.stop()
    return result


def one_file(client: MemorydClient, workspace: Path, prose: Prose) -> float:
    """How much longer a sync takes that has one changed file than one that has none; medians of seven."""
    path = workspace / "memory" / "000" / "note-00000.md"
    idle, busy = [], []
    for _ in range(7):
        idle.append(sync(client))
        path.write_text(prose.note(CHUNK_BYTES), "utf-8")
        busy.append(sync(client))
    return (percentile(busy, 0.5) - percentile(idle, 0.5)) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=15_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "search_path.json")
    options = parser.parse_args()
    provider = LoopbackProvider(DIMENSIONS)
    provider.start()
    runs = {}
    for name, chunks, url in (
        ("keyword_15k", options.small, None),
        ("hybrid_15k", options.small, provider.url),
        ("keyword_100k", options.large, None),
    ):
        with tempfile.TemporaryDirectory() as directory:
            runs[name] = measured(Path(directory), chunks, url)
            print(json.dumps({name: runs[name]}), flush=True)
    provider.stop()
    figures = {
        "keyword_15k_p50_ms": runs["keyword_15k"]["p50_ms"],
        "keyword_100k_p50_ms": runs["keyword_100k"]["p50_ms"],
        "hybrid_15k_p50_ms": runs["hybrid_15k"]["p50_ms"],
        "one_file_at_100k_ms": runs["keyword_100k"]["one_file_ms"],
    }
    met = {key: figures[key] <= target for key, target in TARGETS.items()}
    options.out.write_text(json.dumps({"runs": runs, "targets": TARGETS, "met": met}, indent=2) + "\n", "utf-8")
    print(json.dumps({"figures": figures, "met": met}, indent=2))


if __name__ == "__main__":
    main()
