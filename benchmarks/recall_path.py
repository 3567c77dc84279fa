"""Measure MemoryRecall over gRPC with 15,000 chunks: `python benchmarks/recall_path.py`.

Keyword and hybrid recall, the latter with a provider on loopback in another process, which embeds each query; and
MemorySearch for comparison. Also: the first recall after each change of the index, a message of 1 MB, and a turn that
is not searched.

Prints JSON and writes it to benchmarks/results/recall_path.json.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from corpus import Prose, write
from daemon import DaemonProcess
from keyword_path import percentile, search_times, sync
from loopback_provider import LoopbackProvider, PreparedVectors

from memoryd.client import MemorydClient

DIMENSIONS = 768
CHUNK_BYTES = 1_350
CHUNKS_A_FILE = 10
CHUNKS = 15_000
QUESTIONS = 400
CHANGES = 25
TARGET_P95_MS = 15.0
LOG_LINE = "12:00:07 ERROR worker-{0} at com.example.Job(Job.java:{0}) of QUEUE_{0} after {0} ms in step {0}\n"


def settings(url: str) -> str:
    search = {"sync": {"onSearch": False, "watch": False}}
    if url:
        search |= {"provider": "openai-compatible", "model": "bench", "remote": {"baseUrl": url}}
    limits = {"confirmAboveTokens": 0}
    return json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": limits})


def times_ms(client: MemorydClient, texts: Iterable[str], before: Callable[[], object] = lambda: None) -> list[float]:
    """Return the time of each recall; `before` is called before each of them."""
    found = []
    for text in texts:
        before()
        began = time.perf_counter()
        client.recall(text=text, min_confidence=0.0)
        found.append(1_000 * (time.perf_counter() - began))
    return found


def shares(name: str, times: list[float]) -> dict[str, float]:
    return {f"{name}p{share}_ms": round(percentile(times, share / 100), 2) for share in (50, 95, 99)}


def measured(directory: Path, url: str) -> dict[str, object]:
    workspace, state = directory / "workspace", directory / "state"
    prose = write(workspace, CHUNKS // CHUNKS_A_FILE, CHUNKS_A_FILE * CHUNK_BYTES)
    state.mkdir()
    (state / "memoryd.json5").write_text(settings(url), "utf-8")
    daemon = DaemonProcess(workspace, state)
    client = daemon.start()
    try:
        return costs(client, workspace, prose)
    finally:
        client.close()
        daemon.stop()


def costs(client: MemorydClient, workspace: Path, prose: Prose) -> dict[str, object]:
    sync(client)
    questions = [prose.question() for _ in range(QUESTIONS)]
    # The first search loads the vectors.
    client.search(query=questions[0], timeout=60)
    times_ms(client, questions[:20])
    answer = client.recall(text=questions[0], min_confidence=0.0)
    log = "".join(LOG_LINE.format(number) for number in range(12_000))
    changed = iter(range(CHANGES))

    def change() -> None:
        (workspace / "memory" / f"new-{next(changed)}.md").write_text(prose.note(CHUNK_BYTES), "utf-8")
        sync(client)

    return {
        "chunks": client.status(timeout=60).index.chunks,
        "served_mode": answer.info.served_mode,
        "items": len(answer.items),
        "tokens": answer.tokens_used,
        # Other questions, for comparison: a search with the default number of results.
        **shares("search_", search_times(client, [prose.question() for _ in range(QUESTIONS)])),
        **shares("", times_ms(client, questions)),
        **shares("again_", times_ms(client, questions)),
        **shares("after_a_change_", times_ms(client, questions[:CHANGES], change)),
        "megabyte_bytes": len(log),
        **shares("megabyte_", times_ms(client, [f"{log}{question}" for question in questions[:50]])),
        **shares("not_searched_", times_ms(client, ["Thanks, that was helpful!"] * 100)),
    }


def serve(ready: Connection) -> None:
    provider = LoopbackProvider(DIMENSIONS, make=PreparedVectors(DIMENSIONS))
    provider.start()
    ready.send(provider.url)
    ready.recv()


def run(*, hybrid: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        if not hybrid:
            return measured(Path(directory), "")
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(there,))
        process.start()
        try:
            return measured(Path(directory), here.recv())
        finally:
            here.send("stop")
            process.join(10)


def main() -> None:
    """Measure both and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).parent / "results" / "recall_path.json"
    parser.add_argument("--output", type=Path, default=default)
    options = parser.parse_args()
    results = {"keyword": run(hybrid=False), "hybrid": run(hybrid=True), "target_p95_ms": TARGET_P95_MS}
    text = json.dumps(results, indent=1)
    print(text)
    options.output.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
