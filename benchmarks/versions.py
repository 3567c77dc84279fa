"""Compare the processor time of two versions of the daemon: `python benchmarks/versions.py OTHER_PYTHON`.

OTHER_PYTHON is the interpreter of an environment in which the other version is installed, for example
`../before/.venv/bin/python`. Both versions serve equal workspaces, once with keywords alone and once with vectors. Each
round starts both daemons again, because two processes of the same version differ by a few percent. A round makes the
same calls to both, in random order, and reads the processor time (user and system) of the two processes. A ratio is
this version over the other one; its 95 % interval is that of the mean over the rounds (Student's t).

Prints JSON and writes it to benchmarks/results/versions.json.
"""

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from corpus import write
from daemon import DaemonProcess
from keyword_path import sync
from loopback_provider import LoopbackProvider, PreparedVectors
from search_path import CHUNK_BYTES, CHUNKS_A_FILE, DIMENSIONS, settings

from memoryd.client import MemorydClient

TARGET = 1.05
# Two-sided 95 % quantiles of Student's t by degrees of freedom; 1.96 beyond.
T_QUANTILES = {4: 2.776, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045, 39: 2.023}
VERSIONS = ("other", "this")


class Version:
    """One version's daemon on its own copy of the workspace."""

    def __init__(self, python: str, directory: Path, files: int, provider: LoopbackProvider | None) -> None:
        self.workspace, self._state = directory / "workspace", directory / "state"
        self._python = python
        self.prose = write(self.workspace, files, CHUNKS_A_FILE * CHUNK_BYTES)
        self._state.mkdir()
        (self._state / "memoryd.json5").write_text(settings(provider), "utf-8")

    @contextlib.contextmanager
    def serving(self) -> Iterator[tuple[DaemonProcess, MemorydClient]]:
        """Run the daemon for the block."""
        daemon = DaemonProcess(self.workspace, self._state, python=self._python)
        client = daemon.start()
        try:
            yield daemon, client
        finally:
            client.close()
            daemon.stop()


def search(client: MemorydClient, version: Version, number: int) -> None:
    """Ask one of 50 questions, which repeat."""
    random_ = random.Random(number % 50)
    client.search(query=" ".join(random_.choices(version.prose.words[:5_000], k=4)))


def get(client: MemorydClient, _version: Version, _number: int) -> None:
    """The first lines of a note."""
    client.get(path="memory/000/note-00001.md", line_count=40)


def append(client: MemorydClient, _version: Version, number: int) -> None:
    """A line of its own to one file, synced and searchable when the call returns."""
    client.append(text=f"line {number} of this benchmark", path="memory/log.md")


def change(client: MemorydClient, version: Version, number: int) -> None:
    """A note of ten chunks that is changed whole, and synced."""
    path = version.workspace / "memory" / "000" / f"note-{number % 50:05}.md"
    path.write_text(version.prose.note(CHUNKS_A_FILE * CHUNK_BYTES), "utf-8")
    sync(client)


OPERATIONS: dict[str, tuple[Callable[[MemorydClient, Version, int], None], int]] = {
    "search": (search, 200),
    "get": (get, 600),
    "append": (append, 80),
    "changed_file": (change, 40),
}


def summary(pairs: list[tuple[float, float]]) -> dict[str, float | bool]:
    """The mean ratio of `(other, this)` pairs in seconds, with its 95 % interval."""
    ratios = [this / other for other, this in pairs]
    mean = statistics.mean(ratios)
    quantile = next((t for degrees, t in sorted(T_QUANTILES.items()) if len(ratios) - 1 <= degrees), 1.96)
    half = quantile * statistics.stdev(ratios) / len(ratios) ** 0.5
    return {
        "rounds": len(pairs),
        "other_ms": round(1_000 * statistics.median(other for other, _ in pairs), 2),
        "this_ms": round(1_000 * statistics.median(this for _, this in pairs), 2),
        "ratio": round(mean, 3),
        "low": round(mean - half, 3),
        "high": round(mean + half, 3),
        "median_ratio": round(statistics.median(ratios), 3),
        "met": mean + half <= TARGET,
    }


def compare_calls(versions: dict[str, Version], rounds: int) -> dict[str, dict[str, float | bool]]:
    """Processor time of calls to daemons that have synced."""
    pairs: dict[str, list[tuple[float, float]]] = {operation: [] for operation in OPERATIONS}
    for round_ in range(rounds):
        with contextlib.ExitStack() as stack:
            served = {name: stack.enter_context(version.serving()) for name, version in versions.items()}
            for _, client in served.values():
                sync(client)
            for operation, (call, calls) in OPERATIONS.items():
                seconds = {}
                # The first calls fill caches.
                for number in (2 * round_ * calls, (2 * round_ + 1) * calls):
                    for name in random.sample(VERSIONS, 2):
                        daemon, client = served[name]
                        before = daemon.cpu_seconds()
                        for step in range(calls):
                            call(client, versions[name], number + step)
                        seconds[name] = (daemon.cpu_seconds() - before) / calls
                pairs[operation].append((seconds["other"], seconds["this"]))
    results = {operation: summary(each) for operation, each in pairs.items()}
    print(json.dumps(results), flush=True)
    return results


def compare_first_index(pythons: dict[str, str], files: int, rounds: int, provider: LoopbackProvider | None) -> dict:
    """Processor time of a daemon from its start until its first index is complete."""
    pairs = []
    for _ in range(rounds):
        seconds = {}
        for name in random.sample(VERSIONS, 2):
            with tempfile.TemporaryDirectory() as directory:
                version = Version(pythons[name], Path(directory), files, provider)
                with version.serving() as (daemon, client):
                    sync(client)
                    seconds[name] = daemon.cpu_seconds()
        pairs.append((seconds["other"], seconds["this"]))
    return summary(pairs)


def run(pythons: dict[str, str], options: argparse.Namespace, provider: LoopbackProvider | None) -> dict[str, dict]:
    """All comparisons with `provider`, or with keywords alone."""
    with contextlib.ExitStack() as stack:
        if provider:
            provider.start()
            stack.callback(provider.stop)
        versions = {
            name: Version(python, Path(stack.enter_context(tempfile.TemporaryDirectory())), options.files, provider)
            for name, python in pythons.items()
        }
        results = compare_calls(versions, options.rounds)
        results["first_index"] = compare_first_index(pythons, options.files, options.index_rounds, provider)
        print(json.dumps({"first_index": results["first_index"]}), flush=True)
    return results


def main() -> None:
    """Compare the version of this interpreter with the one of the interpreter that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="the interpreter of the other version")
    parser.add_argument("--name", default="", help="what to call the other version in the result, such as its commit")
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--index-rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "versions.json")
    options = parser.parse_args()
    pythons = {"other": options.other, "this": sys.executable}
    results = {
        "keyword": run(pythons, options, None),
        "hybrid": run(pythons, options, LoopbackProvider(DIMENSIONS, make=PreparedVectors(DIMENSIONS))),
    }
    report = {"other": options.name, "target": TARGET, "results": results}
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
