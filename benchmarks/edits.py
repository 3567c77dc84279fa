"""Measure edits: `python benchmarks/edits.py`. Prints JSON and writes it to benchmarks/results/edits.json.

In a workspace of 10,000 files: the time of MemoryWrite, of MemorySearch that waits for its revision, and of both
together, for a replaced text in notes of 4 KiB; the same for MemoryAppend, in turn; and the size of the history.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from corpus import write
from daemon import DaemonProcess

from memoryd.messages import TextReplacement

RESULTS = Path(__file__).parent / "results" / "edits.json"


def milliseconds(times: list[float]) -> dict[str, float]:
    """Return the median and the 95th percentile."""
    return {
        "p50_ms": round(statistics.median(times) * 1000, 1),
        "p95_ms": round(statistics.quantiles(times, n=20)[-1] * 1000, 1),
    }


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--writes", type=int, default=200)
    given = parser.parse_args()
    writes, searches, both, appends = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="memoryd-edits-") as folder, ExitStack() as ends:
        workspace, state = Path(folder) / "notes", Path(folder) / "state"
        write(workspace, given.files, 4_096)
        state.mkdir()
        (state / "memoryd.json5").write_text('{ memoryd: { writes: "edit" } }', "utf-8")
        daemon = DaemonProcess(workspace, state, HOME=folder, XDG_RUNTIME_DIR="")
        client = ends.enter_context(daemon.start())
        ends.callback(daemon.stop)
        with client.sync() as events:
            list(events)
        for number in range(given.writes):
            path = f"memory/{number % 100:03}/note-{number % 100 * 100 + 99:05}.md"
            began = time.perf_counter()
            client.append(path=path, text=f"appended {number}", idempotency_key=f"append-{number}")
            appends.append(time.perf_counter() - began)
        for number in range(given.writes):
            path = f"memory/{number % 100:03}/note-{number % 100 * 100 + number // 100:05}.md"
            # The read that returns the hash is not measured.
            seen = client.get(path=path)
            old = seen.text.split("\n")[0]
            word = f"marker{number}word"
            began = time.perf_counter()
            done = client.write(
                path=path,
                expected_sha256=seen.content_sha256,
                replace=TextReplacement(old_text=old, new_text=f"{old} {word}"),
            )
            written = time.perf_counter()
            found = client.search(query=word, min_revision=done.index_revision)
            ended = time.perf_counter()
            if not any(hit.path == path for hit in found.results):
                raise RuntimeError(f"the search after the write did not find {word}")
            writes.append(written - began)
            searches.append(ended - written)
            both.append(ended - began)
        sizes = [file.stat().st_size for file in (state / "memory").glob("*.history.sqlite*")]
    results = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "files": given.files,
        "writes": given.writes,
        "write": milliseconds(writes),
        "search_after_write": milliseconds(searches),
        "write_and_search": milliseconds(both),
        "append_with_key": milliseconds(appends),
        "history_bytes_per_write": round(sum(sizes) / given.writes),
    }
    text = json.dumps(results, indent=2) + "\n"
    RESULTS.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
