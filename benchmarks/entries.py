"""Measure ten thousand entries stored one by one: time per call, disk space, memory, and lost entries.

Uses the store directly, without an embedding provider, with vectors of 384 dimensions that are not near each other. It
also measures recalls over more entries and longer vectors, stored in bulk, to find the size from which an index helps.
"""

import argparse
import itertools
import json
import resource
import tempfile
import time
import uuid
from pathlib import Path

import numpy as np

from memoryd_server.entries.dataset import entry_to_row
from memoryd_server.entries.model import DatasetLocation, Entry, EntryCategory, IdentifiedVector
from memoryd_server.entries.store import EntryStore, NewEntry
from memoryd_server.text.analyzer import Analyzer

RESULTS = Path(__file__).parent / "results" / "entries.json"
DIMENSIONS = 384
WORDS = ["heron", "weir", "otter", "badger", "reed", "mist", "dawn", "ledger", "harbour", "crane"]


SCANS = ((10_000, 384), (20_000, 384), (10_000, 1_536), (20_000, 1_536))
QUESTIONS = 200


def vector(rng, dimensions=DIMENSIONS):
    values = rng.standard_normal(dimensions).astype(np.float32)
    return IdentifiedVector(values / np.linalg.norm(values), "bench")


def timed(call):
    began = time.perf_counter()
    answer = call()
    return (time.perf_counter() - began) * 1000, answer


def shares(milliseconds):
    return {
        name: round(float(np.percentile(milliseconds, at)), 2) for name, at in (("p50", 50), ("p95", 95), ("p99", 99))
    }


def on_disk(folder):
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}


def resident(kind):
    """Return bytes of memory in use, of a kind named in /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


def opened(folder):
    clock = itertools.count(1)
    store = EntryStore(DatasetLocation(folder), Analyzer(), lambda: next(clock), lambda: str(uuid.uuid4()))
    store.open()
    return store


def words_of(rng, number):
    return f"{' '.join(rng.choice(WORDS, 6))} number{number}"


def run(folder, count):
    rng = np.random.default_rng(7)
    store = opened(folder)
    stored, tidied, most_files, memory = [], [], 0, {}
    for number in range(count):
        if number % 1_000 == 0:
            memory[number] = resident("RssAnon")
            print(f"{number:,} entries, {memory[number]:,} bytes", flush=True)
        new = NewEntry(words_of(rng, number), 0.7, EntryCategory.OTHER, f"key-{number}")
        embedded = vector(rng)
        stored.append(timed(lambda new=new, embedded=embedded: store.remember(new, embedded))[0])
        if store.needs_optimize:
            most_files = max(most_files, on_disk(folder)["files"])
            tidied.append(timed(store.optimize)[0])
    store.optimize()
    result = {
        "entries": count,
        "dimensions": DIMENSIONS,
        "lost": count - store.count(),
        "remember_ms": shares(stored),
        "tidy_ms": shares(tidied) if tidied else {},
        **recalls(store, rng, DIMENSIONS),
        "most_files": most_files,
        "after": on_disk(folder),
        "anonymous_bytes_at": {**memory, count: resident("RssAnon")},
        "file_bytes": resident("RssFile"),
        "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    store.close()
    return result


def recalls(store, rng, dimensions):
    questions = [vector(rng, dimensions) for _ in range(QUESTIONS)]
    return {
        "recall_ms": shares([timed(lambda q=q: store.nearest(q, 5))[0] for q in questions]),
        "recall_by_words_ms": shares([timed(lambda: store.match_words("heron at the weir", 5))[0] for _ in questions]),
    }


def scan(folder, count, dimensions):
    """Measure recalls over entries that were stored a thousand at a time, which no call of the service does."""
    rng = np.random.default_rng(8)
    store = opened(folder)
    store.set_dimensions(dimensions)
    for begin in range(0, count, 1_000):
        entries = [
            Entry(str(uuid.uuid4()), words_of(rng, number), 0.7, EntryCategory.OTHER, number + 1)
            for number in range(begin, min(begin + 1_000, count))
        ]
        rows = [entry_to_row(each, Analyzer().index_tokens(each.text), vector(rng, dimensions)) for each in entries]
        store._dataset.insert(rows)  # noqa: SLF001 -- see above
    store.optimize()
    result = {"entries": store.count(), "dimensions": dimensions, **recalls(store, rng, dimensions)}
    store.close()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = run(folder, options.entries)
    result["scans"] = []
    for count, dimensions in SCANS:
        with tempfile.TemporaryDirectory() as folder:
            result["scans"].append(scan(folder, count, dimensions))
        # Keep the results so far if the rest is interrupted.
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
