"""Measure what a filter adds to a search: `python benchmarks/filters.py [--files 10000] [--queries 150]`.

The index has three chunks for two files, and random vectors. Each query is searched without a filter and with each
filter, in one process and in turn, so that other load on the machine affects all of them. `new` searches each query
for the first time; `repeated` searches it again when the scores of its words are cached; both have the filter's chunks
cached. `after_a_change` is the first search after a file was written, for which the filter is resolved again. Times are
medians of the search's CPU time, and of its wall-clock time, in milliseconds. Prints JSON and writes it to
benchmarks/results/filters.json.
"""

# ruff: noqa: E402 -- numpy takes its number of threads when it is imported

import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from filter_fixture import DAY_NS, Note, index_of
from index_fixture import ANALYZER
from memoryd_server.model import Origin, Source
from memoryd_server.search import SearchEngine, SearchMode, SearchQuery
from memoryd_server.sqlite.filter_cache import ChunkSet, chunk_ids
from memoryd_server.store import ALL_CHUNKS, ChunkFilter, FileFilter, FrontMatterCondition

DIMENSIONS = 384
CHANGES = 25
WORDS = [f"word{number}" for number in range(20_000)]
WEIGHTS = [1 / (number + 10) for number in range(20_000)]

FILTERS = {
    "none": ALL_CHUNKS,
    "one in a hundred, by project": ChunkFilter(FileFilter(front_matter=(FrontMatterCondition("project", ("p7",)),))),
    "a tenth, by tag": ChunkFilter(FileFilter(front_matter=(FrontMatterCondition("tags", ("t3",)),))),
    "half, by path": ChunkFilter(FileFilter(path_prefixes=("memory/",))),
    "half, by date": ChunkFilter(FileFilter(since=date(2023, 1, 1))),
    "half, by origin": ChunkFilter(origins=(Origin.OWNER, Origin.AGENT)),
    "nine tenths, by date, path and source": ChunkFilter(
        FileFilter(until=date(2025, 5, 31), path_prefixes=("memory/", "projects/")), (Source.MEMORY,)
    ),
}


def notes(count: int) -> list[Note]:
    """Return notes of one or two chunks of 60 to 160 words, half of them dated by name."""
    chance = random.Random(1)
    origins = list(Origin)

    def chunk() -> tuple[str, Origin, str]:
        return " ".join(chance.choices(WORDS, WEIGHTS, k=chance.randint(60, 160))), chance.choice(origins), ""

    made = []
    for number in range(count):
        day = f"{chance.randint(2020, 2025)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
        path = f"memory/{day}-{number}.md" if number % 2 else f"projects/{number % 40}/note-{number}.md"
        metadata = {"tags": [f"t{chance.randint(0, 9)}", "note"], "project": f"P{chance.randint(0, 99)}"}
        mtime = chance.randrange(18_262 * DAY_NS, 20_454 * DAY_NS)
        made.append(Note(path, tuple(chunk() for _ in range(1 + number // 2 % 2)), Source.MEMORY, metadata, mtime))
    return made


class Searches:
    """Searches with every filter in turn, and their times."""

    def __init__(self, store, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.engine = SearchEngine(store, ANALYZER, lambda rows: [(True, True)] * len(rows), sources=[Source.MEMORY])
        self.times = defaultdict(lambda: defaultdict(list))

    def query(self, *, hybrid: bool):
        """Return a query of three to six words, and its vector."""
        words = self.chance.choices(WORDS[5:], WEIGHTS[5:], k=self.chance.randint(3, 6))
        vector = np.random.default_rng(self.chance.randrange(2**32)).standard_normal(DIMENSIONS).astype(np.float32)
        query = SearchQuery(
            text=" ".join(words),
            max_results=6,
            min_score=0.0,
            min_score_is_requested=True,
            sources=(),
            mode=SearchMode.HYBRID if hybrid else SearchMode.KEYWORD,
            max_snippet_chars=700,
            citations=False,
            max_total_chars=None,
            deadline=time.monotonic() + 60,
        )
        return query, vector / np.linalg.norm(vector) if hybrid else None

    def search(self, kind: str, name: str, query: SearchQuery, vector) -> None:
        """Search once and record the time."""
        among = FILTERS[name]
        filtered = replace(query, files=among.files, sources=among.sources, origins=among.origins)
        began, began_processor = time.perf_counter(), time.thread_time()
        answer = self.engine.search(filtered, vector, "no vector")
        self.times[kind][name].append((time.thread_time() - began_processor, time.perf_counter() - began))
        if not answer.hits:
            raise AssertionError(f"no hit: {name}, {query.text}")

    def in_turn(self, kind: str, query: SearchQuery, vector) -> None:
        """Search with every filter, in random order, because a search warms the caches of the next."""
        for name in self.chance.sample(list(FILTERS), len(FILTERS)):
            self.search(kind, name, query, vector)

    def report(self) -> dict[str, object]:
        """Return the medians, and how much more each filter takes than none."""
        made = {}
        for kind, by_filter in self.times.items():
            made[kind] = {}
            plain = medians(by_filter["none"])
            for name in FILTERS:
                processor, wall = medians(by_filter[name])
                made[kind][name] = {
                    "cpu_ms": round(processor, 3),
                    "wall_ms": round(wall, 3),
                    "added_cpu_ms": round(processor - plain[0], 3),
                }
        return made


def medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the medians of CPU and wall-clock time in milliseconds."""
    processor, wall = (1_000 * statistics.median(each) for each in zip(*times, strict=True))
    return processor, wall


def measure(store, queries: int, *, hybrid: bool) -> dict[str, object]:
    """Measure keyword or hybrid search."""
    searches = Searches(store, seed=1 + hybrid)
    for name in FILTERS:
        searches.search("warm-up", name, *searches.query(hybrid=hybrid))
    asked = [searches.query(hybrid=hybrid) for _ in range(queries)]
    for query in asked:
        searches.in_turn("new", *query)
    for _ in range(3):
        for query in asked[: queries // 3]:
            searches.in_turn("repeated", *query)
    writer = store.writer()
    for change in range(CHANGES):
        for name in FILTERS:
            note = Note("memory/2025-12-31-changed.md", ((f"word7 {change} {name}", Origin.OWNER, ""),))
            writer.write([note.prepared()])
            searches.search("after_a_change", name, *searches.query(hybrid=hybrid))
    del searches.times["warm-up"]
    return searches.report()


def resolved(store) -> dict[str, object]:
    """Return how long it takes to resolve each filter, and how many chunks it leaves."""
    made = {}
    with store.read() as reader:
        for name, among in FILTERS.items():
            if among == ALL_CHUNKS:
                continue
            times = []
            for _ in range(CHANGES):
                began, began_processor = time.perf_counter(), time.thread_time()
                selected = ChunkSet.of(chunk_ids(reader.connection, among))
                times.append((time.thread_time() - began_processor, time.perf_counter() - began))
            processor, wall = medians(times)
            made[name] = {
                "chunks": len(selected.ids),
                "cpu_ms": round(processor, 3),
                "wall_ms": round(wall, 3),
                "bytes": selected.bytes,
            }
    return made


def main() -> None:
    """Measure one index."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "filters.json")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        index_of(notes(options.files), Path(folder), dimensions=DIMENSIONS) as store,
    ):
        with store.read() as reader:
            chunks = reader.counts().chunks
        report = {
            "files": options.files,
            "chunks": chunks,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "resolve": resolved(store),
            "keyword": measure(store, options.queries, hybrid=False),
            "hybrid": measure(store, options.queries, hybrid=True),
        }
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
