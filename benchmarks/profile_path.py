"""Measure what a search, an indexed file and an appended note cost, by stage: `python benchmarks/profile_path.py`.

Two daemons serve copies of the same index, in turn, in rounds: one as it is, for latencies and CPU time, and one with
timers around the functions of `profile_stages.py`. The sum of the stages is compared with the total of the first
daemon. A provider on loopback makes vectors of 768 dimensions; the vectors of the queries are cached. Also measured:
searches of 64 callers, in another process on the same cores, and the CPU time and memory of the first index.

Prints a line for each part, and writes benchmarks/results/profile.json and the tables of docs/performance.md. With
`--only PART` or `--only PART/MODE`, the other runs in the file are kept. With `--data`, the indexes of this run are
kept in a folder for the next run.
"""

import argparse
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import Prose, write
from keyword_path import percentile, sync
from loopback_provider import LoopbackProvider, PreparedVectors
from profile_page import write_page
from profile_rounds import Call, ProfiledDaemon, Round, children, cpu_ns, plain_round, round_of, summary, timed_round
from profile_stages import (
    APPENDED_NOTE,
    CHANGED_FILE,
    FIRST_INDEX,
    HYBRID,
    KEYWORD,
    LOADS,
    MODES,
    OPERATIONS,
    SEARCHES,
    TARGETS,
    Operation,
    adds_up,
    differences,
    met,
)
from profile_timer import require_functions

from memoryd.v1 import memory_pb2

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "profile.json"
DIMENSIONS = 768
CHUNK_BYTES = 1_350
CHUNKS_A_FILE = 10
QUESTIONS = 100
# Short rounds, so that other work of the machine slows down both daemons alike.
SEARCHES_A_ROUND = 25
APPENDS_A_ROUND = 10
FILES_A_ROUND = 5
CALLERS = 64
ATTEMPTS = 3
NOT_COPIED = shutil.ignore_patterns("*.sock", "*.lock", "complete")
LOAD_CHUNKS = 15_000
# The same for all runs, because the port is part of the identity of the vectors, which --data keeps.
PORT = 18_768


def settings(provider: LoopbackProvider | None, readers: int = 0) -> str:
    search: dict[str, Any] = {"sync": {"onSearch": False, "watch": False}, "query": {"maxResults": 6}}
    if provider:
        search |= {"provider": "openai-compatible", "model": "bench", "remote": {"baseUrl": provider.url}}
    limits = {"confirmAboveTokens": 0, "reconcileSeconds": 3_600} | ({"readers": readers} if readers else {})
    return json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": limits})


@contextmanager
def provider_of(mode: str, *, prepared: bool) -> Iterator[LoopbackProvider | None]:
    """Serve the embedding provider of a mode; with `prepared`, it returns vectors that were computed in advance."""
    if mode != HYBRID:
        yield None
        return
    provider = LoopbackProvider(DIMENSIONS, make=PreparedVectors(DIMENSIONS) if prepared else None, port=PORT)
    provider.start()
    yield provider
    provider.stop()


class Indexes:
    """Indexed workspaces, each created once in `folder`, and copies of them that daemons serve."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _made(self, chunks: int, mode: str) -> Path:
        folder = self._folder / f"{mode}-{chunks}"
        if (folder / "complete").exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        if mode == HYBRID:
            # The same index, to which the sync below adds the vectors.
            shutil.copytree(self._made(chunks, KEYWORD), folder, ignore=NOT_COPIED)
        else:
            write(folder / "workspace", chunks // CHUNKS_A_FILE, CHUNKS_A_FILE * CHUNK_BYTES)
            (folder / "state").mkdir()
        with provider_of(mode, prepared=False) as provider:
            (folder / "state" / "memoryd.json5").write_text(settings(provider), "utf-8")
            daemon = ProfiledDaemon(folder, timed=False)
            sync(daemon.client)
            daemon.stop()
        (folder / "complete").touch()
        return folder

    @contextmanager
    def served(
        self, chunks: int, mode: str, *names: str, prepared: bool = False, readers: int = 0
    ) -> Iterator[list[ProfiledDaemon]]:
        """Serve a copy of an indexed workspace by each daemon: "plain" is as it is, "timed" has timers."""
        made = self._made(chunks, mode)
        with tempfile.TemporaryDirectory(dir=self._folder) as copies, ExitStack() as ends:
            provider = ends.enter_context(provider_of(mode, prepared=prepared))
            daemons = []
            for name in names:
                shutil.copytree(made, Path(copies) / name, ignore=NOT_COPIED)
                (Path(copies) / name / "state" / "memoryd.json5").write_text(settings(provider, readers), "utf-8")
                daemons.append(ProfiledDaemon(Path(copies) / name, timed=name == "timed"))
                ends.callback(daemons[-1].stop)
                sync(daemons[-1].client)
            yield daemons


@dataclass(frozen=True)
class Profile:
    """Measures each part in one mode."""

    indexes: Indexes
    rounds: int
    files: int
    load_seconds: float

    def search(self, operation: Operation, mode: str) -> dict[str, Any]:
        prose = Prose(77)
        questions = [prose.question() for _ in range(QUESTIONS)]
        with self.indexes.served(operation.chunks, mode, "plain", "timed") as (plain, timed):
            floors, rounds, timed_rounds = [], [], []
            for daemon in (plain, timed):
                for question in questions * 2:
                    answer = daemon.client.search(query=question, timeout=60)
                wanted = memory_pb2.SEARCH_MODE_HYBRID if mode == HYBRID else memory_pb2.SEARCH_MODE_KEYWORD
                if answer.info.served_mode != wanted:
                    raise RuntimeError(f"a search was served in mode {answer.info.served_mode} instead of {mode}")
            for start in [*range(0, QUESTIONS, SEARCHES_A_ROUND)] * self.rounds:
                some = questions[start : start + SEARCHES_A_ROUND]
                floors.append(plain_round(plain, [plain.check] * len(some)))
                rounds.append(plain_round(plain, _searches(plain, some)))
                timed_rounds.append(timed_round(timed, _searches(timed, some)))
            chunks = plain.client.status(timeout=60).index.chunks
        return {"chunks": chunks, **summary(operation, mode, rounds, timed_rounds, {"call": floors})}

    def appended_note(self, operation: Operation, mode: str) -> dict[str, Any]:
        numbers = itertools.count()

        def append(daemon: ProfiledDaemon) -> Callable[[], Any]:
            number = next(numbers)
            # 400 lines per file, as in the log of a typical day.
            path = f"memory/profile-{number // 400}.md"
            return lambda: daemon.client.append(path=path, text=f"- noted {number} by the profile", timeout=60)

        with self.indexes.served(operation.chunks, mode, "plain", "timed", prepared=True) as (plain, timed):
            floors, rounds, timed_rounds = [], [], []
            for _ in range(4 * self.rounds):
                floors.append(plain_round(plain, [plain.check] * APPENDS_A_ROUND))
                rounds.append(plain_round(plain, [append(plain) for _ in range(APPENDS_A_ROUND)]))
                timed_rounds.append(timed_round(timed, [append(timed) for _ in range(APPENDS_A_ROUND)]))
        return summary(operation, mode, rounds, timed_rounds, {"call": floors})

    def changed_file(self, operation: Operation, mode: str) -> dict[str, Any]:
        prose = Prose(78)

        def change(daemon: ProfiledDaemon, number: int) -> Callable[[], Any]:
            path = daemon.workspace / "memory" / "000" / f"note-{number:05}.md"
            text = prose.note(CHUNKS_A_FILE * CHUNK_BYTES)

            def synced() -> None:
                path.write_text(text, "utf-8")
                sync(daemon.client)

            return synced

        with self.indexes.served(operation.chunks, mode, "plain", "timed", prepared=True) as (plain, timed):
            rounds, timed_rounds = [], []
            for number in range(2 * self.rounds):
                numbers = range(FILES_A_ROUND * number, FILES_A_ROUND * number + FILES_A_ROUND)
                rounds.append(plain_round(plain, [change(plain, each) for each in numbers]))
                timed_rounds.append(timed_round(timed, [change(timed, each) for each in numbers]))
        return summary(operation, mode, rounds, timed_rounds, {})

    def first_index(self, operation: Operation, mode: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        rounds: dict[str, Round] = {}
        with tempfile.TemporaryDirectory() as folder, provider_of(mode, prepared=True) as provider:
            write(Path(folder) / "files", self.files, 1_500)
            for name in ("start", "plain", "timed"):
                home = Path(folder) / name
                (home / "state").mkdir(parents=True)
                (home / "state" / "memoryd.json5").write_text(settings(provider), "utf-8")
                (home / "workspace").mkdir()
                if name != "start":
                    (Path(folder) / "files" / "memory").rename(home / "workspace" / "memory")
                began = time.perf_counter_ns()
                daemon = ProfiledDaemon(home, timed=name == "timed")
                sync(daemon.client)
                ended = time.perf_counter_ns()
                spent_ns = cpu_ns(daemon.daemon.pid)
                if name == "timed":
                    timed = round_of(daemon.ask("end"), [(began, ended)], self.files)
                else:
                    wall_ms = (ended - began) / self.files / 1e6
                    rounds[name] = Round([Call(wall_ms)], spent_ns / self.files / 1e6)
                if name == "plain":
                    found = {
                        "files": self.files,
                        "chunks": daemon.client.status(timeout=60).index.chunks,
                        "cpu_seconds": round(spent_ns / 1e9, 2),
                        "wall_seconds": round((ended - began) / 1e9, 2),
                        "peak_rss_mib": round(daemon.daemon.peak_rss_mib(), 1),
                    }
                daemon.stop()
                if name == "plain":
                    (home / "workspace" / "memory").rename(Path(folder) / "files" / "memory")
        figures = summary(operation, mode, [rounds["plain"]], [timed], {"start": [rounds["start"]]})
        return found | {key: value for key, value in figures.items() if key not in {"p50_ms", "p99_ms"}}

    def load(self, mode: str, readers: int) -> dict[str, Any]:
        prose = Prose(77)
        questions = [prose.question() for _ in range(4 * QUESTIONS)]
        with self.indexes.served(LOAD_CHUNKS, mode, "plain", readers=readers) as (plain,):
            # Fill the caches of each reader process.
            for question in questions * 2 * max(1, readers):
                plain.client.search(query=question, timeout=60)
            request = {
                "address": plain.daemon.address,
                "kind": "search",
                "concurrency": CALLERS,
                "seconds": self.load_seconds,
                "questions": questions,
                "paths": [],
            }
            processes = [plain.daemon.pid, *children(plain.daemon.pid)]
            before = sum(map(cpu_ns, processes))
            done = subprocess.run(
                [sys.executable, HERE / "load" / "client.py"],
                input=json.dumps(request),
                capture_output=True,
                text=True,
                check=True,
            )
            spent_ns = sum(map(cpu_ns, processes)) - before
        report = json.loads(done.stdout)
        times = report["times_ms"]["search"]
        return {
            "callers": CALLERS,
            "readers": len(processes) - 1,
            "searches_per_second": round(len(times) / report["seconds"], 1),
            "p50_ms": round(percentile(times, 0.5), 1),
            "p99_ms": round(percentile(times, 0.99), 1),
            "cpu_ms": round(spent_ns / 1e6 / len(times), 3),
            "client_cpu_ms": round(1_000 * report["cpu_seconds"] / len(times), 3),
            "errors": sum(report["errors"].values()),
        }

    def part(self, name: str, mode: str) -> dict[str, Any]:
        """Measure a part by its name, up to `ATTEMPTS` times, until its stages add up.

        Other work of the machine can disturb an attempt. If no attempt adds up, return the one with the smallest
        difference.
        """
        if name in LOADS:
            return self.load(mode, LOADS[name])
        operation = next(each for each in OPERATIONS if each.name == name)
        measures = {
            **{each.name: self.search for each in SEARCHES},
            FIRST_INDEX.name: self.first_index,
            CHANGED_FILE.name: self.changed_file,
            APPENDED_NOTE.name: self.appended_note,
        }
        attempts = []
        while len(attempts) < ATTEMPTS:
            attempts.append(measures[name](operation, mode))
            if adds_up(attempts[-1]):
                return attempts[-1]
            shares = {key: round(share, 3) for key, share in differences(attempts[-1]).items()}
            print(json.dumps({f"{name}/{mode}": "the stages do not add up", "differences": shares}), flush=True)
        return min(attempts, key=lambda found: max(map(abs, differences(found).values())))


def _searches(daemon: ProfiledDaemon, questions: list[str]) -> list[Callable[[], Any]]:
    return [lambda question=question: daemon.client.search(query=question) for question in questions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = [*(operation.name for operation in OPERATIONS), *LOADS]
    choices = [*parts, *(f"{part}/{mode}" for part in parts for mode in MODES)]
    parser.add_argument("--only", choices=choices, action="append", help="measure only this; can be repeated")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (default: 5)")
    parser.add_argument("--files", type=int, default=10_000, help="files of the first index")
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of the load")
    parser.add_argument("--data", type=Path, help="keep the indexes in this folder for the next run")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    parser.add_argument("--no-page", action="store_true", help="do not write the page")
    parser.add_argument("--note", default="", help="about the machine or the conditions, stored with the results")
    options = parser.parse_args()
    require_functions()
    wanted = [(part, mode) for part in parts for mode in MODES]
    if options.only:
        wanted = [(part, mode) for part, mode in wanted if {part, f"{part}/{mode}"} & {*options.only}]
    runs: dict[str, Any] = json.loads(options.out.read_text("utf-8"))["runs"] if options.out.exists() else {}
    with ExitStack() as ends:
        folder = options.data or Path(ends.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        profile = Profile(Indexes(folder), options.rounds, options.files, options.seconds)
        for part, mode in wanted:
            began = time.perf_counter()
            found = profile.part(part, mode)
            runs.setdefault(part, {})[mode] = found
            shown = {key: value for key, value in found.items() if key != "stages"}
            print(json.dumps({f"{part}/{mode}": shown, "seconds": round(time.perf_counter() - began)}), flush=True)
    runs = {part: {mode: runs[part][mode] for mode in MODES if mode in runs[part]} for part in parts if part in runs}
    result = {
        "note": options.note,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "dimensions": DIMENSIONS,
        "runs": runs,
        "targets": TARGETS,
        "met": met(runs),
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    if not options.no_page:
        write_page(result)
    print(json.dumps({"met": result["met"]}, indent=2))


if __name__ == "__main__":
    main()
