"""Compare OpenClaw's built-in memory with the plugin: `python benchmarks/openclaw_gateway.py`.

Two gateways of the real OpenClaw have the same 1,000 notes and no embedding provider. They get the same questions
alternately, through the HTTP call of a tool: one answers with the built-in memory (memory-core), one with the packed
plugin and a memoryd daemon. Two more runs measure only recall: one with a prefix before the names of notes that are
dates, because the built-in memory lowers the scores of old notes, and one in addition with its trigram tokenizer,
which is meant for Chinese and Japanese. Needs Node and OpenClaw (`make openclaw`), the plugin (`make
clients-openclaw`), and the dev sets in `--data`; takes about five minutes.

Prints JSON and writes it to benchmarks/results/openclaw_gateway.json, or to `--out`.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "benchmarks" / "peers")]

from notes import Corpus  # noqa: E402 - needs the path

from daemon_process import end, start  # noqa: E402 - needs the path
from memoryd_server.evaluation import GoldenQuery, LineSpan  # noqa: E402 - after the paths
from openclaw_host import NODE, PLUGIN, OpenClawHome, pack_plugin  # noqa: E402 - needs the path

RESULTS = 6
KEYWORDS_ONLY = {"provider": "none"}
TRIGRAMS = {**KEYWORDS_ONLY, "store": {"fts": {"tokenizer": "trigram"}}}


@dataclass
class Peer:
    """One gateway, and the processes that answer for it."""

    name: str
    home: OpenClawHome
    daemon: psutil.Process | None = None
    gateway: psutil.Process | None = None
    milliseconds: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    recalls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def ask(self, question: GoldenQuery) -> None:
        """Ask through the gateway, and keep the duration and the recall of the answer."""
        began = time.perf_counter()
        details = self.home.invoke("memory_search", query=question.text, maxResults=RESULTS)
        self.milliseconds.append((time.perf_counter() - began) * 1_000)
        if details.get("disabled"):
            raise RuntimeError(f"{self.name}: {details['error']}")
        hits = [LineSpan(hit["path"], hit["startLine"], hit["endLine"]) for hit in details["results"][:RESULTS]]
        found = sum(any(hit.overlaps(answer.span) for hit in hits) for answer in question.gold)
        recall = found / len(question.gold)
        self.recalls[question.dataset].append(recall)
        self.recalls["all"].append(recall)

    def processes(self) -> list[psutil.Process]:
        """Return the gateway, its children, and the daemon."""
        roots = [each for each in (self.gateway, self.daemon) if each is not None]
        return [process for root in roots for process in (root, *root.children(recursive=True))]

    def cpu(self) -> float:
        """Return the processor seconds of all processes."""
        return sum(each.cpu_times().user + each.cpu_times().system for each in self.processes())

    def rss_mib(self) -> dict[str, float]:
        """Return the resident memory of the gateway with its children, and of the daemon."""
        daemon = 0.0 if self.daemon is None else mib(self.daemon)
        return {"gateway": round(sum(map(mib, self.processes())) - daemon, 1), "daemon": round(daemon, 1)}


def mib(process: psutil.Process) -> float:
    return process.memory_info().rss / 2**20


def measured(work: Callable[[], object], daemon: psutil.Process | None) -> dict[str, float]:
    """Return the seconds of `work`, and the processor seconds of the commands it ran and of the daemon."""

    def cpu() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = 0.0 if daemon is None else daemon.cpu_times().user + daemon.cpu_times().system
        return children.ru_utime + children.ru_stime + own

    began, cpu_before = time.perf_counter(), cpu()
    work()
    return {"seconds": round(time.perf_counter() - began, 2), "cpu_seconds": round(cpu() - cpu_before, 2)}


@contextmanager
def prepared(folder: Path, corpus: Corpus, builtin: dict[str, object]) -> Iterator[list[Peer]]:
    """Set up both homes, with a daemon for the plugin. `builtin` has the search settings of the built-in memory."""
    searches = {"builtin": builtin, "plugin": KEYWORDS_ONLY}
    homes = {name: OpenClawHome(folder / name, {"memory": {"search": each}}) for name, each in searches.items()}
    for home in homes.values():
        corpus.write(home.workspace)
    home = homes["plugin"]
    home.install(pack_plugin(folder))
    home.set("plugins.entries.memory-core.enabled", False)
    daemon = start(None, home.state, home=home.folder, listen=f"unix:{home.state}/m.sock")
    try:
        yield [Peer("builtin", homes["builtin"]), Peer("plugin", home, psutil.Process(daemon.process.pid))]
    finally:
        end(daemon.process)


def ask_alternately(peers: list[Peer], questions: list[GoldenQuery]) -> None:
    """Ask both peers each question, the first one of each pair in turn, and add up their processor times."""
    for number, question in enumerate(questions):
        for peer in peers if number % 2 == 0 else peers[::-1]:
            before = peer.cpu()
            peer.ask(question)
            if number:
                peer.cpu_seconds += peer.cpu() - before


def inside_execute(peer: Peer) -> dict[str, float]:
    """Return the durations of a tool call without the gateway, and of the same search over gRPC, in one process."""
    address = json.loads((peer.home.state / "memoryd.endpoint.json").read_text("utf-8"))["addresses"][0]
    command = [str(NODE), str(PLUGIN / "build" / "test" / "latency.js"), address]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(peer.home.folder)}
    )
    times = json.loads(done.stdout)
    added = [tool - grpc for tool, grpc in zip(times["toolMs"], times["grpcMs"], strict=True)]
    return {
        "first_ms": round(times["firstMs"], 1),
        "p50_ms": round(statistics.median(times["toolMs"]), 2),
        "grpc_p50_ms": round(statistics.median(times["grpcMs"]), 2),
        "added_p50_ms": round(statistics.median(added), 2),
    }


def report(peer: Peer) -> dict[str, object]:
    first, *later = peer.milliseconds
    percentiles = statistics.quantiles(later, n=20)
    return {
        "recall_at_6": recall(peer),
        "first_call_ms": round(first, 1),
        "p50_ms": round(statistics.median(later), 1),
        "p95_ms": round(percentiles[-1], 1),
        "cpu_ms_per_call": round(peer.cpu_seconds / len(later) * 1_000, 1),
        "rss_mib": peer.rss_mib(),
    }


def recall(peer: Peer) -> dict[str, float]:
    return {name: round(statistics.mean(values), 3) for name, values in sorted(peer.recalls.items())}


@contextmanager
def asked(
    data: Path, builtin: dict[str, object] = KEYWORDS_ONLY, *, dated: bool = True
) -> Iterator[tuple[list[Peer], dict[str, dict[str, float]]]]:
    """Index the notes, and ask both peers all questions. Yield the peers, still running, and the costs of indexing."""
    corpus = Corpus(data, dated=dated)
    questions = corpus.sample_questions()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peers = stack.enter_context(prepared(folder, corpus, builtin))
        index = {}
        for peer in peers:
            work = peer.home.run
            index[peer.name] = measured(lambda work=work: work("memory", "index", "--force"), peer.daemon)
        for peer in peers:
            peer.gateway = psutil.Process(stack.enter_context(peer.home.gateway()).pid)
        ask_alternately(peers, questions)
        yield peers, index


def run(data: Path) -> dict[str, object]:
    with asked(data) as (peers, index):
        results = {peer.name: {"index": index[peer.name], **report(peer)} for peer in peers}
        results["plugin"]["inside_execute"] = inside_execute(peers[1])
        notes = list(peers[0].home.workspace.rglob("*.md"))
        size = sum(file.stat().st_size for file in notes)
        questions = len(peers[0].milliseconds)
    with asked(data, dated=False) as (peers, _):
        for peer in peers:
            results[peer.name]["recall_at_6_names_without_dates"] = recall(peer)
    with asked(data, TRIGRAMS, dated=False) as ((builtin, _), _):
        results["builtin"]["recall_at_6_names_without_dates_trigrams"] = recall(builtin)
    packages = json.loads((REPOSITORY / "tests/real_openclaw/package.json").read_text("utf-8"))
    return {
        "machine": {"cpus": os.cpu_count(), "system": platform.system(), "architecture": platform.machine()},
        "openclaw": packages["dependencies"]["openclaw"],
        "files": len(notes),
        "mib": round(size / 2**20, 1),
        "questions": questions,
        **results,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "eval" / "data")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "results" / "openclaw_gateway.json")
    arguments = parser.parse_args()
    for path, remedy in ((NODE, "make openclaw"), (PLUGIN / "dist" / "index.js", "make clients-openclaw")):
        if not path.exists():
            parser.error(f"{path} does not exist: run `{remedy}`")
    if not arguments.data.is_dir():
        parser.error(f"{arguments.data} does not exist: set --data to the folder of the dev sets")
    text = json.dumps(run(arguments.data), indent=2) + "\n"
    arguments.out.write_text(text, "utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
