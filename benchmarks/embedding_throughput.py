"""Measure the time to embed a first index with a provider 20 ms away: `python benchmarks/embedding_throughput.py`.

A real daemon, 10,000 chunks, and a provider on loopback with delayed responses. The time includes the whole first sync,
keywords and vectors. The longest time without progress is measured, too.

Prints JSON and writes it to benchmarks/results/embedding_throughput.json.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from corpus import write
from daemon import DaemonProcess
from loopback_provider import LoopbackProvider, PreparedVectors

from memoryd.v1 import sync_event_pb2

CHUNKS = 10_000
CHUNKS_A_FILE = 10
CHUNK_BYTES = 1_350
LATENCY_SECONDS = 0.02
TARGETS = {"wall_seconds": 20.0, "peak_rss_mib": 400.0, "longest_standstill_seconds": 2.0}


def settings(provider: LoopbackProvider, at_once: int) -> str:
    remote = {"baseUrl": provider.url, "nonBatchConcurrency": at_once, "batch": {"enabled": False}}
    search = {"provider": "openai-compatible", "model": "bench", "remote": remote}
    search["sync"] = {"onSearch": False, "watch": False}
    return json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"confirmAboveTokens": 0}})


@dataclass
class Progress:
    """The progress of a sync's embedding, from its events."""

    events: int = 0
    completed: int = 0
    longest_standstill_seconds: float = 0.0
    began: float = field(default_factory=time.perf_counter)
    _moved: float | None = None

    def note(self, progress: sync_event_pb2.SyncProgress) -> None:
        if progress.phase != sync_event_pb2.SYNC_PHASE_EMBEDDING:
            return
        now = time.perf_counter()
        self.events += 1
        if self._moved is not None:
            self.longest_standstill_seconds = max(self.longest_standstill_seconds, now - self._moved)
        if self._moved is None or progress.completed_chunks > self.completed:
            self.completed, self._moved = progress.completed_chunks, now


def measured(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    workspace, state = directory / "workspace", directory / "state"
    write(workspace, options.chunks // CHUNKS_A_FILE, CHUNKS_A_FILE * CHUNK_BYTES)
    state.mkdir()
    provider = LoopbackProvider(options.dimensions, LATENCY_SECONDS, PreparedVectors(options.dimensions))
    provider.start()
    (state / "memoryd.json5").write_text(settings(provider, options.at_once), "utf-8")
    daemon = DaemonProcess(workspace, state)
    client = daemon.start()
    progress = Progress()
    completed = None
    # Joins the sync that started with the daemon.
    for event in client.sync(timeout=600):
        if event.HasField("progress"):
            progress.note(event.progress)
        completed = event.completed if event.HasField("completed") else completed
    wall = time.perf_counter() - progress.began
    status = client.status(timeout=60)
    result = {
        "chunks": status.index.chunks,
        "pending": status.index.pending_embeddings,
        "wall_seconds": round(wall, 2),
        "chunks_a_second": round(status.index.chunks / wall),
        "cpu_seconds": round(daemon.cpu_seconds(), 2),
        "peak_rss_mib": round(daemon.peak_rss_mib()),
        "requests": provider.requests,
        "texts": provider.texts,
        "most_requests_at_once": provider.most_at_once,
        "provider_seconds": round(provider.busy_seconds, 2),
        "progress_events": progress.events,
        "longest_standstill_seconds": round(progress.longest_standstill_seconds, 2),
    }
    client.close()
    daemon.stop()
    provider.stop()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    parser.add_argument("--dimensions", type=int, default=1536, help="length of a vector; default: as in OpenAI")
    parser.add_argument("--at-once", type=int, default=4, help="concurrent requests (remote.nonBatchConcurrency)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "embedding_throughput.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = measured(Path(directory), options)
    met = {key: run[key] <= target for key, target in TARGETS.items()}
    met["every_chunk_once"] = run["pending"] == 0 and run["texts"] <= run["chunks"]
    run |= {"dimensions": options.dimensions, "at_once": options.at_once, "latency_ms": 1_000 * LATENCY_SECONDS}
    options.out.write_text(json.dumps({"run": run, "targets": TARGETS, "met": met}, indent=2) + "\n", "utf-8")
    print(json.dumps({"run": run, "met": met}, indent=2))


if __name__ == "__main__":
    main()
