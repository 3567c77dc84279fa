"""Measure vector search in PostgreSQL: all vectors compared, and by the HNSW index of a large agent.

    python benchmarks/postgres_vectors.py [--sections sizes large hybrid] [--chunks 100000] [--dimensions 768]

`sizes` and `large` call the driver, with synthetic clusters; the queries are other points of the same clusters. `large`
also measures the creation of the index, and searches with a filter. `hybrid` are searches over gRPC with 15,000 chunks.
A server is started, which `make setup-postgres` installs; its commits do not wait for the disk.

Prints JSON and writes it to benchmarks/results/postgres_vectors.json. The measured sections replace the previous ones.
"""

# ruff: noqa: E402 -- numpy takes its number of threads when it is imported

import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from corpus import write
from daemon import DaemonProcess
from keyword_path import percentile, search_times, sync
from loopback_provider import LoopbackProvider

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from memoryd.client import MemorydClient
from memoryd.v1 import memory_pb2
from memoryd_server.postgres import Database, PostgresStore
from memoryd_server.postgres.config import DatabaseConfig
from memoryd_server.store import ALL_CHUNKS, BuildIdentity, ChunkFilter, FileFilter, VectorIdentity
from postgres_server import PostgresServer, running_server
from unit.store.contract import document
from vector_fixture import clusters

RESULT = Path(__file__).parent / "results" / "postgres_vectors.json"
FILE_CHUNKS = 20
LIMIT = 24
COUNTED = 10
QUERIES = 100
SIZES = (2_500, 5_000, 10_000, 20_000)
HYBRID_CHUNKS = 15_000
CHUNK_BYTES, CHUNKS_A_FILE = 1_350, 10
QUESTIONS = 300
ALWAYS, NEVER = 1, 0
PATIENCE_SECONDS = 300
TARGETS = {"hybrid.hnsw.p50_ms": 15.0, "large.hnsw.recall_at_10": 0.99}
LEGS = {memory_pb2.SEARCH_MODE_KEYWORD: "keyword", memory_pb2.SEARCH_MODE_VECTOR: "vector"}

Filters = dict[str, ChunkFilter]


class Index:
    """The index of one agent, whose chunks have clustered vectors."""

    def __init__(self, server: PostgresServer, agent_id: str, chunks: int, dimensions: int) -> None:
        self.database = Database(DatabaseConfig(server.url))
        self.agent_id = agent_id
        self.server = server
        made = clusters(chunks + QUERIES, dimensions, seed=1)
        self.vectors, self.queries = made[:chunks], made[chunks:]
        self.store = self.opened(NEVER)
        writer = self.store.writer()
        for first in range(0, chunks // FILE_CHUNKS, 250):
            numbers = range(first, min(first + 250, chunks // FILE_CHUNKS))
            writer.write([document(f"{number:06}.md", *[(f"word{number}", "")] * FILE_CHUNKS) for number in numbers])
        writer.begin_vectors(VectorIdentity("bench", "bench", "", dimensions, "", ""))
        for first in range(0, chunks, 1_000):
            numbers = range(first, min(first + 1_000, chunks))
            writer.put_vectors({number + 1: self.vectors[number].astype("<f4").tobytes() for number in numbers})
        with server.admin("memoryd") as admin:
            admin.execute("VACUUM ANALYZE")

    def opened(self, above: int) -> PostgresStore:
        """Open the index, with an HNSW index above this number of chunks."""
        store = PostgresStore(self.database, self.agent_id, BuildIdentity("1", 400, 80), approximate_above=above)
        store.open()
        return store

    def reopen(self, above: int) -> None:
        """Close the index, and open it with another number."""
        self.store.close()
        self.store = self.opened(above)

    def searches(self, among: ChunkFilter = ALL_CHUNKS) -> tuple[dict[str, float], list[list[int]]]:
        """Return the times of all queries, and the ids that they find."""
        times, found = [], []
        for query in self.queries:
            began = time.perf_counter()
            with self.store.read() as reader:
                hits = reader.vector_hits(query, LIMIT, among)
            times.append(1000 * (time.perf_counter() - began))
            found.append([hit.chunk_id for hit in hits])
        return quantiles(times), found

    def compared(self, filters: Filters) -> dict[str, object]:
        """Return the times with and without the HNSW index for each filter, the recall with it, and its build time."""
        self.searches()
        exact = {name: self.searches(among) for name, among in filters.items()}
        self.reopen(ALWAYS)
        began = time.perf_counter()
        self.store.index_vectors()
        results: dict[str, object] = {"build_seconds": round(time.perf_counter() - began, 1)}
        self.searches()
        for name, among in filters.items():
            times, found = self.searches(among)
            results[f"exact{name}"] = exact[name][0]
            results[f"hnsw{name}"] = {**times, "recall_at_10": recall(found, exact[name][1])}
        return results


def recall(found: list[list[int]], exact: list[list[int]]) -> float:
    shares = [len(set(a[:COUNTED]) & set(b[:COUNTED])) / len(b[:COUNTED]) for a, b in zip(found, exact, strict=True)]
    return round(float(np.mean(shares)), 4)


def quantiles(times_ms: list[float]) -> dict[str, float]:
    return {f"p{share}_ms": round(percentile(times_ms, share / 100), 2) for share in (10, 50, 95)}


def measure_sizes(server: PostgresServer, options: argparse.Namespace) -> dict[str, object]:
    results = {}
    for chunks in SIZES:
        index = Index(server, f"size{chunks}", chunks, options.dimensions)
        results[str(chunks)] = index.compared({"": ALL_CHUNKS})
        index.store.close()
    return results


def measure_large(server: PostgresServer, options: argparse.Namespace) -> dict[str, object]:
    index = Index(server, "large", options.chunks, options.dimensions)
    filters = {
        "": ALL_CHUNKS,
        "_1_file": ChunkFilter(files=FileFilter(path_prefixes=("000000",))),
        "_20_percent": ChunkFilter(files=FileFilter(path_prefixes=("000",))),
    }
    compared = index.compared(filters)
    with server.admin("memoryd") as admin:
        sizes = admin.execute(
            "SELECT sum(pg_relation_size(indexrelid)), pg_table_size('memoryd.vectors') FROM pg_stat_user_indexes"
            " WHERE indexrelname LIKE 'vectors_hnsw_%'"
        ).fetchone()
    results = {
        "chunks": options.chunks,
        "dimensions": options.dimensions,
        "index_mib": round(int(sizes[0]) / 2**20),
        "table_mib": round(int(sizes[1]) / 2**20),
        **compared,
        "put_10_vectors_ms": write_times(index),
    }
    index.store.close()
    return results


def write_times(index: Index) -> dict[str, float]:
    """Return the times of storing the vectors of ten chunks again, into the HNSW index too."""
    times = []
    writer = index.store.writer()
    for first in range(0, 300, 10):
        vectors = {first + i + 1: index.vectors[first + i].astype("<f4").tobytes() for i in range(10)}
        began = time.perf_counter()
        writer.put_vectors(vectors)
        times.append(1000 * (time.perf_counter() - began))
    return quantiles(times)


def measure_hybrid(server: PostgresServer, options: argparse.Namespace) -> dict[str, object]:
    provider = LoopbackProvider(options.dimensions)
    provider.start()
    results: dict[str, object] = {"chunks": HYBRID_CHUNKS, "dimensions": options.dimensions}
    with tempfile.TemporaryDirectory() as directory:
        workspace, state = Path(directory) / "workspace", Path(directory) / "state"
        state.mkdir()
        prose = write(workspace, HYBRID_CHUNKS // CHUNKS_A_FILE, CHUNKS_A_FILE * CHUNK_BYTES)
        questions = [prose.question() for _ in range(QUESTIONS)]
        for name, above, engine in (("exact", NEVER, "pgvector"), ("hnsw", HYBRID_CHUNKS // 2, "pgvector-hnsw")):
            (state / "memoryd.json5").write_text(settings(server.url, provider, above), "utf-8")
            daemon = DaemonProcess(workspace, state)
            client = daemon.start()
            sync(client)
            wait_until(lambda client=client, engine=engine: client.status(timeout=60).vector.engine == engine)
            # The vectors of the questions are cached.
            search_times(client, questions)
            results[name] = {**quantiles(search_times(client, questions)), **leg_times(client, questions)}
            client.close()
            daemon.stop()
    provider.stop()
    return results


def settings(url: str, provider: LoopbackProvider, above: int) -> str:
    search = {
        "sync": {"onSearch": False, "watch": False},
        "query": {"maxResults": 6},
        "provider": "openai-compatible",
        "model": "bench",
        "remote": {"baseUrl": provider.url},
    }
    store = {"url": url, "documents": "folder", "approximateAbove": above}
    memoryd = {"confirmAboveTokens": 0, "store": store, "reconcileSeconds": 2}
    return json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": memoryd})


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        if time.monotonic() > deadline:
            raise RuntimeError("the HNSW index was not created")
        time.sleep(0.5)


def leg_times(client: MemorydClient, questions: list[str]) -> dict[str, dict[str, float]]:
    """Return the times of each retriever, as `explain` reports them."""
    times: dict[str, list[float]] = {}
    for question in questions:
        for leg in client.search(query=question, explain=True).info.legs:
            if leg.ran:
                times.setdefault(LEGS[leg.leg], []).append(leg.elapsed.ToNanoseconds() / 1e6)
    return {name: quantiles(found) for name, found in times.items()}


SECTIONS = {"sizes": measure_sizes, "large": measure_large, "hybrid": measure_hybrid}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=768)
    options = parser.parse_args()
    report = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    for name in options.sections:
        with running_server() as server:
            load = os.getloadavg()[0]
            measured = SECTIONS[name](server, options)
        report[name] = {
            **measured,
            "load_average_before": round(load, 1),
            "load_average_after": round(os.getloadavg()[0], 1),
        }
        print(json.dumps({name: report[name]}), flush=True)
        report["machine"] = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
        report["targets"] = TARGETS
        RESULT.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
