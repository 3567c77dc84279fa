"""The vector leg against the targets, beside sqlite-vec's full scan and a plain numpy scan in the same run.

    python benchmarks/vector_leg.py [--real EMBEDDINGS.npz] [--chunks 100000] [--dimensions 768]

Speed is measured on synthetic clusters, recall on real embeddings (`real_embeddings.py` makes them) and, for want of
many of those, on the clusters too, which makes it look easier than it is. Results go to
benchmarks/results/vector_leg.json. Runs on one thread.
"""

# ruff: noqa: E402 -- numpy takes its number of threads when it is imported

import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import apsw
import numpy as np
import sqlite_vec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from vector_desk import VectorDesk, blob

RESULT = Path(__file__).parent / "results" / "vector_leg.json"
LIMIT = 10
LEG_LIMIT = 24
FILE_CHUNKS = 20


def clustered(count, dimensions, queries, seed=0):
    """Vectors about a hundredth as many centres, and queries near some of them."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((count // 100, dimensions)).astype(np.float32) + 0.1
    parts = []
    for first in range(0, count, 10_000):
        size = min(10_000, count - first)
        own = centres[random.integers(0, len(centres), size)]
        parts.append(own + random.standard_normal((size, dimensions)).astype(np.float32))
    vectors = np.concatenate(parts)
    near = vectors[random.integers(0, count, queries)]
    near = near + 0.5 * random.standard_normal(near.shape).astype(np.float32)
    return unit(vectors), unit(near)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def nearest(vectors, query, limit):
    scores = vectors @ query
    best = np.argpartition(-scores, limit)[:limit]
    return (best[np.argsort(-scores[best])] + 1).tolist()


def milliseconds(work, inputs):
    """Medians by the clock and of processor time, and the 99th percentile; on a busy machine only the second counts."""
    wall, processor = [], []
    for given in inputs:
        began, began_processor = time.perf_counter(), time.thread_time()
        work(given)
        wall.append(1_000 * (time.perf_counter() - began))
        processor.append(1_000 * (time.thread_time() - began_processor))
    return {
        "p50_ms": round(statistics.median(wall), 3),
        "p50_cpu_ms": round(statistics.median(processor), 3),
        "p99_ms": round(float(np.percentile(wall, 99)), 3),
    }


def stored(vectors, folder):
    desk = VectorDesk(folder)
    for first in range(0, len(vectors), 10_000):
        desk.commit({first + row + 1: vector for row, vector in enumerate(vectors[first : first + 10_000])})
    desk.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return desk


def recall(desk, leg, vectors, queries, limit):
    """The share of hits that are as near as the last of the true ones: of equals any will do."""
    near_enough = 0
    for query in queries:
        last = np.partition(vectors @ query, -limit)[-limit] - 1e-6
        near_enough += sum(hit.cosine >= last for hit in desk.search(leg, query, limit))
    return round(near_enough / limit / len(queries), 4)


def load(desk, leg, query):
    """Seconds that the first search takes, and the most that Python and numpy held meanwhile."""
    tracemalloc.start()
    desk.search(leg, query, LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    leg.unload()
    began = time.perf_counter()
    desk.search(leg, query, LIMIT)
    return {"first_search_s": round(time.perf_counter() - began, 3), "load_peak_mib": round(peak / 2**20, 1)}


def updates(desk, leg, vectors, rounds=30):
    """Adding a file of twenty chunks, and changing one: the leg's share, and the writer's whole commit with it."""
    count = len(vectors)
    leg_ms = {"add": [], "change": []}
    commit_ms = {"add": [], "change": []}
    apply = leg.apply

    def timed(kind):
        def applied(added, removed):
            began = time.perf_counter()
            apply(added, removed)
            leg_ms[kind].append(1_000 * (time.perf_counter() - began))

        return applied

    next_id = count + 1
    for round_ in range(rounds):
        for kind in ("add", "change"):
            leg.apply = timed(kind)
            added = {next_id + row: blob(vectors[(next_id + row) % count]) for row in range(FILE_CHUNKS)}
            removed = () if kind == "add" else range(100 * round_ + 1, 100 * round_ + 1 + FILE_CHUNKS)
            began = time.perf_counter()
            desk.commit(added, removed)
            commit_ms[kind].append(1_000 * (time.perf_counter() - began))
            next_id += FILE_CHUNKS
    leg.apply = apply
    return {
        kind: {
            "leg_p50_ms": round(statistics.median(leg_ms[kind]), 3),
            "leg_max_ms": round(max(leg_ms[kind]), 3),
            "commit_and_leg_p50_ms": round(statistics.median(commit_ms[kind]), 3),
        }
        for kind in leg_ms
    }


def vec0(vectors, folder, queries, limit):
    """sqlite-vec's own full scan of a vec0 table on disk, with the page cache and memory map that readers have."""
    path = str(folder / "vec0.sqlite")
    connection = apsw.Connection(path)
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    for pragma in ("journal_mode=WAL", "cache_size=-16000", "mmap_size=268435456"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute(
        f"CREATE VIRTUAL TABLE v USING vec0(id INTEGER PRIMARY KEY, e FLOAT[{vectors.shape[1]}] distance_metric=cosine)"
    )
    with connection:
        rows = ((row + 1, vector.tobytes()) for row, vector in enumerate(vectors))
        connection.executemany("INSERT INTO v VALUES(?, ?)", rows)
    query = "SELECT id, distance FROM v WHERE e MATCH ? AND k = ?"
    return milliseconds(lambda q: connection.execute(query, (q.tobytes(), limit)).fetchall(), queries)


def large(count, dimensions, folder):
    vectors, queries = clustered(count, dimensions, 300)
    desk = stored(vectors, folder)
    leg = desk.leg()
    result = {"chunks": count, "dimensions": dimensions, "load": load(desk, leg, queries[0])}
    result["bytes_a_chunk"] = round(leg.memory_bytes / count, 1)
    with desk.read() as reader:
        for limit in (LIMIT, LEG_LIMIT):
            result[f"leg_{limit}"] = milliseconds(lambda q, limit=limit: leg.search(reader, q, limit), queries)
    result["numpy_exact_10"] = milliseconds(lambda q: nearest(vectors, q, LIMIT), queries[:60])
    result["sqlite_vec_scan_10"] = vec0(vectors, folder, queries[:20], LIMIT)
    result["recall_at_10_synthetic"] = recall(desk, leg, vectors, queries[:100], LIMIT)
    result["one_file"] = updates(desk, leg, vectors)
    result["bytes_a_chunk_after"] = round(leg.memory_bytes / count, 1)
    desk.close()
    return result


def small(count, dimensions, folder):
    """An index that is compared whole, by each of the two engines."""
    vectors, queries = clustered(count, dimensions, 100)
    desk = stored(vectors, folder)
    result = {"chunks": count, "dimensions": dimensions}
    for name, leg in (("sqlite_vec", desk.leg(sqlite_vec=True)), ("exact", desk.leg())):
        loaded = load(desk, leg, queries[0])
        with desk.read() as reader:
            speed = milliseconds(lambda q, leg=leg: leg.search(reader, q, LIMIT), queries)
        found = recall(desk, leg, vectors, queries, LIMIT)
        result[name] = {**speed, **loaded, "recall_at_10": found, "mib": round(leg.memory_bytes / 2**20, 1)}
    desk.close()
    return result


def real(file, folder):
    if file is None:
        return "not measured: no real embeddings given (--real)"
    data = np.load(file)
    vectors, queries = unit(data["documents"]), unit(data["queries"])
    desk = stored(vectors, folder)
    leg = desk.leg(coarse_above=0)
    with desk.read() as reader:
        speed = milliseconds(lambda q: leg.search(reader, q, LIMIT), queries)
    result = {
        "embeddings": len(vectors), "dimensions": vectors.shape[1], "queries": len(queries),
        **{f"recall_at_{limit}": recall(desk, leg, vectors, queries, limit) for limit in (10, 24, 50)}, **speed,
    }  # fmt: skip
    desk.close()
    return result


def in_folder(work, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        result = work(*arguments, Path(folder))
    print(json.dumps(result, indent=1))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=768)
    options = parser.parse_args()
    result = {
        "machine": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
        },
        "targets": {"p50_ms": 4, "recall_at_10": 0.99, "bytes_a_chunk": 200, "one_file_ms": 50},
        "real": in_folder(real, options.real),
        "small": in_folder(small, 10_000, options.dimensions),
        "large": in_folder(large, options.chunks, options.dimensions),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
