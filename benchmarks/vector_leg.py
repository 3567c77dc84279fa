"""Measure vector search against its targets: in memory, and as a scan of the stored vectors by each engine.

    python benchmarks/vector_leg.py [--sections small scan large real] [--real EMBEDDINGS.npz] [--chunks 100000]
                                    [--dimensions 768]

Speed is measured with synthetic clusters. Recall is measured with real embeddings (from `real_embeddings.py`) and,
because there are few of those, also with the clusters, for which it is too high. The measured sections replace the
previous ones in benchmarks/results/vector_leg.json. Numpy uses one thread.

`scan` compares sqlite-vec with numpy: the CPU time of interleaved searches, and how long a search prevents another
thread from using the interpreter. The second value is CPU time of the searching thread, because wall-clock time would
include other load on the machine.
"""

# ruff: noqa: E402 -- numpy takes its number of threads when it is imported

import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import ctypes
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from memoryd_server.model import Source
from memoryd_server.store.filters import ChunkFilter
from vector_fixture import VectorFixture, blob

RESULT = Path(__file__).parent / "results" / "vector_leg.json"
LIMIT = 10
LEG_LIMIT = 24
FILE_CHUNKS = 20
SCANNED_CHUNKS = (10_000, 100_000)
BYSTANDER_SLEEP_NANOSECONDS = 1_000_000
SLEEP_AND_READ = """
#include <time.h>
void sleep_and_read(int clock, int nanoseconds, struct timespec *read) {
    struct timespec pause = {0, nanoseconds};
    nanosleep(&pause, 0);
    clock_gettime(clock, read);
}
"""
BYSTANDER_ROUNDS = 8
BYSTANDER_ROUND_SECONDS = 1.5
GATE = {"small_p50_ms": 1.2, "scan_cpu_ratio": 1.05, "bystander_p99_ms": 0.5}


class Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def clustered(count, dimensions, queries, seed=0):
    """Return vectors around centres, with a hundred vectors per centre, and queries near some of them."""
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
    """Return medians of wall-clock and CPU time, and the 99th percentile. On a busy machine, use the CPU time."""
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
    fixture = VectorFixture(folder)
    for first in range(0, len(vectors), 10_000):
        fixture.commit({first + row + 1: vector for row, vector in enumerate(vectors[first : first + 10_000])})
    fixture.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return fixture


def recall(fixture, leg, vectors, queries, limit):
    """Return the share of hits whose cosine is at least that of the last true hit, so that ties count."""
    near_enough = 0
    for query in queries:
        last = np.partition(vectors @ query, -limit)[-limit] - 1e-6
        near_enough += sum(hit.cosine >= last for hit in fixture.search(leg, query, limit))
    return round(near_enough / limit / len(queries), 4)


def load(fixture, leg, query):
    """Return the seconds of the first search, and the peak memory of Python and numpy during it."""
    tracemalloc.start()
    fixture.search(leg, query, LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    leg.release_memory()
    began = time.perf_counter()
    fixture.search(leg, query, LIMIT)
    return {"first_search_s": round(time.perf_counter() - began, 3), "load_peak_mib": round(peak / 2**20, 1)}


def updates(fixture, leg, vectors, rounds=30):
    """Measure adding and changing a file of twenty chunks: vector search's share, and the writer's whole commit."""
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
            fixture.commit(added, removed)
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


def cpu_seconds(work):
    began = time.thread_time()
    work()
    return time.thread_time() - began


def compared(legs, reader, queries, **options):
    """Return the CPU milliseconds of interleaved searches with each engine, and the ratio of the first two."""
    times = {name: [] for name in legs}
    for number, query in enumerate(queries):
        for name in sorted(legs, reverse=number % 2 == 1):
            leg = legs[name]
            times[name].append(cpu_seconds(lambda leg=leg, query=query: leg.search(reader, query, LIMIT, **options)))
    first, second = (np.array(times[name]) for name in legs)
    draws = np.random.default_rng(0).integers(0, len(first), (2_000, len(first)))
    ratios = np.median(first[draws], axis=1) / np.median(second[draws], axis=1)
    return {
        **{f"{name}_p50_cpu_ms": round(1_000 * statistics.median(taken), 3) for name, taken in times.items()},
        "ratio": round(float(np.median(first) / np.median(second)), 3),
        "ratio_95": [round(float(bound), 3) for bound in np.percentile(ratios, (2.5, 97.5))],
    }


def waits_ms(library, work, seconds):
    """Return the CPU milliseconds of this thread while another thread waits for the interpreter; repeats `work`."""
    waits = []
    ended = threading.Event()
    clock = time.pthread_getcpuclockid(threading.get_ident())
    read = Timespec()

    def bystander():
        while not ended.is_set():
            # ctypes releases the interpreter during the call, so the clock is read immediately before the thread waits.
            library.sleep_and_read(ctypes.c_int(clock), BYSTANDER_SLEEP_NANOSECONDS, ctypes.byref(read))
            waits.append((time.clock_gettime_ns(clock) - 10**9 * read.seconds - read.nanoseconds) / 1e6)

    thread = threading.Thread(target=bystander)
    thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        work()
    ended.set()
    thread.join()
    return waits


def bystander_waits(legs, reader, queries, folder):
    """Return the median and the 99th percentile of these waits. Needs a C compiler."""
    source = folder / "sleep_and_read.c"
    source.write_text(SLEEP_AND_READ)
    library = str(source.with_suffix(".so"))
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, str(source)], check=True)
    library = ctypes.CDLL(library)
    waits = {name: [] for name in legs}
    for _ in range(BYSTANDER_ROUNDS):
        for name, leg in legs.items():
            search = partial(leg.search, reader, queries[0], LIMIT)
            waits[name] += waits_ms(library, search, BYSTANDER_ROUND_SECONDS)
    return {
        name: {
            "p50_ms": round(statistics.median(found), 3),
            "p99_ms": round(float(np.percentile(found, 99)), 3),
            "samples": len(found),
        }
        for name, found in waits.items()
    }


def scan(count, dimensions, folder):
    """Measure the scan by each engine, with no vectors in memory."""
    vectors, queries = clustered(count, dimensions, max(20, 400_000 // count))
    fixture = stored(vectors, folder)
    nothing_in_memory = {"memory_budget_bytes": 0}
    legs = {
        "sqlite_vec": fixture.new_vector_index(sqlite_vec=True, **nothing_in_memory),
        "numpy": fixture.new_vector_index(**nothing_in_memory),
    }
    result = {"chunks": count, "dimensions": dimensions}
    with fixture.read() as reader:
        found = {name: [leg.search(reader, query, LIMIT) for query in queries[:20]] for name, leg in legs.items()}
        result["same_hits"] = found["sqlite_vec"] == found["numpy"]
        result["cpu"] = compared(legs, reader, queries)
        result["cpu_of_one_source"] = compared(legs, reader, queries, among=ChunkFilter(sources=(Source.MEMORY,)))
        result["bystander"] = bystander_waits(legs, reader, queries, folder)
    result["engine"] = legs["sqlite_vec"].engine.version
    result["passed"] = {
        "same_hits": result["same_hits"],
        "scan_cpu_ratio": result["cpu"]["ratio"] <= GATE["scan_cpu_ratio"],
        "bystander_p99_ms": result["bystander"]["sqlite_vec"]["p99_ms"] <= GATE["bystander_p99_ms"],
    }
    fixture.close()
    return result


def large(count, dimensions, folder):
    vectors, queries = clustered(count, dimensions, 300)
    fixture = stored(vectors, folder)
    leg = fixture.new_vector_index()
    result = {"chunks": count, "dimensions": dimensions, "load": load(fixture, leg, queries[0])}
    result["bytes_a_chunk"] = round(leg.memory_bytes / count, 1)
    with fixture.read() as reader:
        for limit in (LIMIT, LEG_LIMIT):
            result[f"leg_{limit}"] = milliseconds(lambda q, limit=limit: leg.search(reader, q, limit), queries)
    result["numpy_exact_10"] = milliseconds(lambda q: nearest(vectors, q, LIMIT), queries[:60])
    result["recall_at_10_synthetic"] = recall(fixture, leg, vectors, queries[:100], LIMIT)
    result["one_file"] = updates(fixture, leg, vectors)
    result["bytes_a_chunk_after"] = round(leg.memory_bytes / count, 1)
    fixture.close()
    return result


def small(count, dimensions, folder):
    """Measure an index whose vectors are compared as a whole in memory."""
    vectors, queries = clustered(count, dimensions, 300)
    fixture = stored(vectors, folder)
    leg = fixture.new_vector_index()
    result = {"chunks": count, "dimensions": dimensions, **load(fixture, leg, queries[0])}
    with fixture.read() as reader:
        result |= milliseconds(lambda q: leg.search(reader, q, LIMIT), queries)
    # The lower bound on this machine: reading every vector once.
    result["product_alone"] = milliseconds(lambda q: vectors @ q, queries)
    result["recall_at_10"] = recall(fixture, leg, vectors, queries[:100], LIMIT)
    result["mib"] = round(leg.memory_bytes / 2**20, 1)
    result["passed"] = {"small_p50_ms": result["p50_ms"] <= GATE["small_p50_ms"]}
    fixture.close()
    return result


def real(file, folder):
    if file is None:
        return "not measured: no real embeddings given (--real)"
    data = np.load(file)
    vectors, queries = unit(data["documents"]), unit(data["queries"])
    fixture = stored(vectors, folder)
    leg = fixture.new_vector_index(coarse_above=0)
    with fixture.read() as reader:
        speed = milliseconds(lambda q: leg.search(reader, q, LIMIT), queries)
    result = {
        "embeddings": len(vectors), "dimensions": vectors.shape[1], "queries": len(queries),
        **{f"recall_at_{limit}": recall(fixture, leg, vectors, queries, limit) for limit in (10, 24, 50)}, **speed,
    }  # fmt: skip
    fixture.close()
    return result


def in_folder(work, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        result = work(*arguments, Path(folder))
    print(json.dumps(result, indent=1))
    return result


def machine():
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["small", "scan", "large", "real"]
    parser.add_argument("--sections", nargs="+", choices=names, default=names)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=768)
    options = parser.parse_args()
    measured = {
        "small": lambda: in_folder(small, 10_000, options.dimensions),
        "scan": lambda: [in_folder(scan, count, options.dimensions) for count in SCANNED_CHUNKS],
        "large": lambda: in_folder(large, options.chunks, options.dimensions),
        "real": lambda: in_folder(real, options.real),
    }
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    result["targets"] = {"p50_ms": 4, "recall_at_10": 0.99, "bytes_a_chunk": 200, "one_file_ms": 50, **GATE}
    for name in options.sections:
        result[name] = measured[name]()
        result.setdefault("machines", {})[name] = machine()
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
