"""Ten thousand entries stored one by one: what a call takes, what stays on disk, and whether anything is lost.

Over the store itself, on vectors of 384 dimensions that are near no other's; the provider's time is not in it.
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

from memoryd_server.entries.model import Category, Embedded, Place
from memoryd_server.entries.store import EntryStore, NewEntry
from memoryd_server.text import Analyzer

RESULTS = Path(__file__).parent / "results" / "entries.json"
DIMENSIONS = 384
WORDS = ["heron", "weir", "otter", "badger", "reed", "mist", "dawn", "ledger", "harbour", "crane"]


def vector(rng):
    values = rng.standard_normal(DIMENSIONS).astype(np.float32)
    return Embedded(values / np.linalg.norm(values), "bench")


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


def run(folder, count):
    rng = np.random.default_rng(7)
    clock = itertools.count(1)
    store = EntryStore(Place(folder), Analyzer(), lambda: next(clock), lambda: str(uuid.uuid4()))
    store.open()
    stored, tidied, most_files = [], [], 0
    for number in range(count):
        words = " ".join(rng.choice(WORDS, 6))
        new = NewEntry(f"{words} number{number}", 0.7, Category.OTHER, f"key-{number}")
        embedded = vector(rng)
        stored.append(timed(lambda new=new, embedded=embedded: store.remember(new, embedded))[0])
        if store.wants_tidying:
            most_files = max(most_files, on_disk(folder)["files"])
            tidied.append(timed(store.tidy)[0])
    store.tidy()
    questions = [vector(rng) for _ in range(200)]
    result = {
        "entries": count,
        "dimensions": DIMENSIONS,
        "lost": count - store.count(),
        "remember_ms": shares(stored),
        "tidy_ms": shares(tidied) if tidied else {},
        "recall_ms": shares([timed(lambda q=q: store.nearest(q, 5))[0] for q in questions]),
        "recall_by_words_ms": shares([timed(lambda: store.with_words("heron at the weir", 5))[0] for _ in questions]),
        "most_files": most_files,
        "after": on_disk(folder),
        "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    store.close()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = run(folder, options.entries)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
