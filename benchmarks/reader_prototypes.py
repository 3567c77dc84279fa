"""Compare designs for searching one SQLite index with several processes (decision 52): `reader_prototypes.py`.

The processes are prototypes. `profile_path.py` measures the reader processes of `memoryd.readers`.

    python benchmarks/reader_prototypes.py [--rounds 5] [--seconds 6] [--chunks 15000] [--only keyword] [--note TEXT]

64 callers, keyword search, and hybrid search with cached query vectors. The callers run in a process of their own on
the same cores; it is benchmarks/load/client.py or, if Go is installed, the cheaper benchmarks/load/go_client. Servers:

- `daemon`: `memoryd serve`, one process.
- `readers_N`: processes of reader_prototype_server.py, while the daemon is idle. `tcp`: one port for all
  (SO_REUSEPORT). `sockets`: each has its own socket, and the caller distributes its connections evenly.
- `front_2`: one process accepts the calls and passes each to one of two workers, so that one socket and one connection
  suffice.
- `workers_2`: the same, but the first process passes on only the query and gets back its answer; it does the rest of
  each call itself.

Each name ends with the number of connections. All variants are measured in each round, in turn, and a ratio is the
median of the ratios of the rounds. `other_cores` is the number of cores that all other processes of the machine used:
the figures are valid only if it is about zero. `bound` is the number of searches per second that all cores could
answer if they were always busy, computed from the CPU time of a search.

Prints JSON and writes it to benchmarks/results/reader_prototypes.json. With `--only`, the other parts are kept.
"""

import argparse
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
from corpus import write
from daemon import DaemonProcess
from keyword_path import percentile, search_times, sync
from loopback_provider import LoopbackProvider
from reader_memory import memory_mib, vectors_in_memory
from search_path import CHUNK_BYTES, CHUNKS_A_FILE, DIMENSIONS, settings

from memoryd.client import MemorydClient, connect

HERE = Path(__file__).parent
RESULT = HERE / "results" / "reader_prototypes.json"
CALLERS = 64
QUESTIONS = 400
WARM_SECONDS = 3.0
TARGET_RATIO = 1.6
CORES = os.cpu_count() or 1
# Pairs of a variant and the variant that it is compared with.
PAIRS = (
    ("readers_2_tcp_64", "daemon_tcp_64"),
    ("readers_3_tcp_64", "daemon_tcp_64"),
    ("readers_1_tcp_64", "daemon_tcp_64"),
    ("readers_2_sockets_6", "daemon_socket_6"),
    ("front_2_socket_1", "daemon_socket_1"),
    ("workers_2_socket_1", "daemon_socket_1"),
    ("readers_2_tcp_1", "daemon_tcp_1"),
)
# The pairs that are also measured with the Python callers.
PYTHON_PAIRS = PAIRS[:2]


class ServerProcess:
    """A process of reader_prototype_server.py, ready when the constructor returns."""

    def __init__(self, **options: Any) -> None:
        self.kind, self.address = options["kind"], options["own"]
        self._process = subprocess.Popen(
            [sys.executable, HERE / "reader_prototype_server.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process.stdin.write(json.dumps(options) + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "ready\n":
            status = self._process.wait(20)
            raise RuntimeError(f"the process {self.kind!r} exited with {status}: see its standard error")
        self.pid = self._process.pid

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@dataclass(frozen=True)
class Variant:
    """The addresses that callers connect to, and the ids of the processes that answer."""

    addresses: list[str]
    connections: int
    pids: list[int]
    token: str = ""


class Servers:
    """A daemon with an indexed workspace, and the processes that read its index, until the end of the `with` block."""

    def __init__(self, directory: Path, chunks: int, *, hybrid: bool) -> None:
        self._stack = ExitStack()
        self._workspace, self._state = directory / "workspace", directory / "state"
        self._prose = write(self._workspace, chunks // CHUNKS_A_FILE, CHUNKS_A_FILE * CHUNK_BYTES)
        self._state.mkdir()
        provider = LoopbackProvider(DIMENSIONS) if hybrid else None
        if provider:
            provider.start()
            self._stack.callback(provider.stop)
        (self._state / "memoryd.json5").write_text(settings(provider), "utf-8")
        self._ports = [f"127.0.0.1:{port}" for port in free_ports(4)]
        self.daemon = DaemonProcess(self._workspace, self._state, listen=(self._ports[3],))
        self.questions = [self._prose.question() for _ in range(QUESTIONS)]
        self.readers: list[ServerProcess] = []
        self.workers: list[ServerProcess] = []
        self.fronts: list[ServerProcess] = []

    def __enter__(self) -> Self:
        client = self.daemon.start()
        self._stack.callback(self.daemon.stop)
        sync(client)
        self.chunks = client.status(timeout=60).index.chunks
        search_times(client, self.questions)
        self._answers = answers(client, self.questions)
        client.close()
        self._token = (self._state / "memoryd.token").read_text("ascii").split()[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def index(self) -> Path:
        return self._state / "memory" / "main.memoryd.sqlite"

    def _start(self, kind: str, name: str, **options: Any) -> ServerProcess:
        reader = ServerProcess(
            kind=kind,
            own=f"unix:{self._state}/{name}.sock",
            state=str(self._state),
            workspace=str(self._workspace),
            **options,
        )
        self._stack.callback(reader.stop)
        return reader

    def start_reader(self) -> None:
        """Start one more reader. It listens at each port that this number of readers, or a larger number, shares."""
        number = len(self.readers)
        reader = self._start("reader", f"reader-{number}", shared=self._ports[number:3])
        self.readers.append(reader)
        self._warm(reader)

    def start_workers(self) -> None:
        """Start two workers, and the processes of `front_2` and `workers_2`, which pass searches to them."""
        self.workers = [self._start("worker", f"worker-{number}") for number in range(2)]
        addresses = [worker.address for worker in self.workers]
        self.fronts = [self._start(kind, kind, workers=addresses) for kind in ("front", "workers")]
        for front in self.fronts:
            self._warm(front)

    def _warm(self, reader: ServerProcess) -> None:
        with connect(reader.address) as client:
            search_times(client, self.questions * 2)
            if answers(client, self.questions) != self._answers:
                raise AssertionError(f"the answers of {reader.address} differ from those of the daemon")

    def variants(self) -> dict[str, Variant]:
        """Return the variants that the running processes allow."""
        own, readers = [self.daemon.pid], [reader.pid for reader in self.readers]
        found = {
            f"readers_{count}_tcp_64": Variant([self._ports[count - 1]], 64, readers[:count], self._token)
            for count in range(1, len(readers) + 1)
        }
        workers = [worker.pid for worker in self.workers]
        for front in self.fronts:
            found[f"{front.kind}_2_socket_1"] = Variant([front.address], 1, [front.pid, *workers])
        two = self.readers[:2]
        return found | {
            "daemon_tcp_64": Variant([self._ports[3]], 64, own, self._token),
            "daemon_tcp_1": Variant([self._ports[3]], 1, own, self._token),
            "readers_2_tcp_1": Variant([self._ports[1]], 1, readers[:2], self._token),
            "daemon_socket_6": Variant([self.daemon.address], 6, own),
            "readers_2_sockets_6": Variant([reader.address for reader in two], 6, readers[:2]),
            "daemon_socket_1": Variant([self.daemon.address], 1, own),
        }


def answers(client: MemorydClient, questions: list[str]) -> list[list[tuple[str, int, float, str]]]:
    """Return the paths, first lines, scores and snippets of some searches."""
    found = (client.search(query=question).results for question in questions[:50])
    return [[(each.path, each.start_line, each.score, each.snippet) for each in results] for results in found]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def cpu_seconds(pids: list[int]) -> list[float]:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return [each.user + each.system for each in times]


def busy_seconds() -> float:
    """Return the CPU time that the whole machine has used, in seconds."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - getattr(times, "guest", 0.0)


def load(variant: Variant, command: list[str], questions: list[str], seconds: float) -> dict[str, Any]:
    """Run searches for some seconds; return their rate, latencies and CPU times."""
    request = {
        "kind": "search",
        "addresses": variant.addresses,
        "connections": variant.connections,
        "token": variant.token,
        "concurrency": CALLERS,
        "seconds": seconds,
        "questions": questions,
        "paths": [""],
    }
    before, busy = cpu_seconds(variant.pids), busy_seconds()
    children = os.times()
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True)
    spent = [now - then for now, then in zip(cpu_seconds(variant.pids), before, strict=True)]
    after = os.times()
    callers = after.children_user + after.children_system - children.children_user - children.children_system
    report = json.loads(done.stdout)
    # Go writes a whole number of milliseconds without a point.
    times = [float(each) for each in report["times_ms"]["search"]]
    server_ms, caller_ms = 1_000 * sum(spent) / len(times), 1_000 * report["cpu_seconds"] / len(times)
    return {
        "searches_per_second": len(times) / report["seconds"],
        "p50_ms": percentile(times, 0.5),
        "p99_ms": percentile(times, 0.99),
        "server_cpu_ms": server_ms,
        "caller_cpu_ms": caller_ms,
        "server_cores": sum(spent) / report["seconds"],
        "other_cores": (busy_seconds() - busy - sum(spent) - callers) / report["seconds"],
        "bound": 1_000 * CORES / (server_ms + caller_ms),
        # With other work on the machine, a search can miss its deadline.
        "errors": float(sum(report["errors"].values())),
        "shares": [round(each / sum(spent), 3) for each in spent],
    }


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of each figure, and the shares of the processes in the last round."""
    numbers = {key for key, value in rounds[0].items() if isinstance(value, float)}
    figures = {key: round(statistics.median(each[key] for each in rounds), 2) for key in rounds[0] if key in numbers}
    return {**figures, "shares": rounds[-1]["shares"]}


def ratio(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the rounds of two variants.

    `at_most` depends less on the load of the machine: it is the bound of the first variant, divided by the rate of
    the second if it used as many cores as in its best round. The real ratio is lower, because the callers and the
    readers are not always busy.
    """
    best_cores = max(other["server_cores"] for other in second)
    best_rate = 1_000 * best_cores / statistics.median(other["server_cpu_ms"] for other in second)
    bound = statistics.median(one["bound"] for one in first)
    found = [
        one["searches_per_second"] / other["searches_per_second"] for one, other in zip(first, second, strict=True)
    ]
    return {
        "median": round(statistics.median(found), 2),
        "rounds": [round(each, 2) for each in found],
        "at_most": round(bound / best_rate, 2),
        "cores_of_one_process": round(best_cores, 2),
    }


def compared(servers: Servers, generators: dict[str, list[str]], options: argparse.Namespace) -> dict[str, Any]:
    """Measure every variant in each round, and compare the pairs."""
    variants = servers.variants()
    rounds: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in generators}
    cheapest = list(generators)[-1]
    pairs = {name: PAIRS if name == cheapest else PYTHON_PAIRS for name in generators}
    for number in range(options.rounds):
        for generator, command in generators.items():
            names = dict.fromkeys(name for pair in pairs[generator] for name in reversed(pair))
            # In the opposite order in every second round, so that a trend does not favour one variant.
            for name in list(names)[:: 1 if number % 2 == 0 else -1]:
                measured = load(variants[name], command, servers.questions, options.seconds)
                rounds[generator].setdefault(name, []).append(measured)
                line = {"round": number, "generator": generator, "variant": name}
                print(json.dumps(line | medians([measured])), flush=True)
    return {
        generator: {
            "variants": {name: medians(each) for name, each in found.items()},
            "ratios": {f"{one}/{other}": ratio(found[one], found[other]) for one, other in pairs[generator]},
        }
        for generator, found in rounds.items()
    }


def memory(servers: Servers, command: list[str]) -> dict[str, Any]:
    """Start the readers one by one, and return the memory of each process after some seconds of searches.

    The searches fill the caches of a process. The front and its workers start after the last of these measurements.
    """
    found: dict[str, Any] = {}
    own = servers.variants()["daemon_tcp_64"]
    load(own, command, servers.questions, WARM_SECONDS)
    found["daemon"] = [memory_mib(servers.daemon.pid)]
    for count in (1, 2, 3):
        servers.start_reader()
        variant = servers.variants()[f"readers_{count}_tcp_64"]
        load(variant, command, servers.questions, WARM_SECONDS)
        found[f"daemon_and_{count}_readers"] = [memory_mib(pid) for pid in (servers.daemon.pid, *variant.pids)]
    return found


def distribution(servers: Servers, connections: int, tries: int = 20) -> dict[str, Any]:
    """Return the largest share of the connections that SO_REUSEPORT gave to one of two and of three readers."""
    found = {}
    for count in (2, 3):
        variant = servers.variants()[f"readers_{count}_tcp_64"]
        largest = []
        for _ in range(tries):
            with ExitStack() as stack:
                for _ in range(connections):
                    host, port = variant.addresses[0].split(":")
                    stack.enter_context(socket.create_connection((host, int(port))))
                largest.append(max(accepted(variant, connections)))
        found[f"largest_share_of_{count}"] = {
            "median": statistics.median(largest) / connections,
            "worst": max(largest) / connections,
        }
    return found


def accepted(variant: Variant, connections: int) -> list[int]:
    """Wait until all connections are accepted; return how many each process has."""
    port = int(variant.addresses[0].rpartition(":")[2])
    until = time.monotonic() + 10
    while True:
        found = [
            sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port == port for each in of_process)
            for of_process in (psutil.Process(pid).net_connections("tcp") for pid in variant.pids)
        ]
        if sum(found) == connections:
            return found
        if time.monotonic() > until:
            raise RuntimeError(f"{found} of {connections} connections were accepted")
        time.sleep(0.01)


def generators(directory: Path) -> dict[str, list[str]]:
    """Return the commands of the load generators, the one that needs the least CPU time last."""
    found = {"python": [sys.executable, str(HERE / "load" / "client.py")]}
    if shutil.which("go"):
        binary = directory / "load"
        subprocess.run(["go", "build", "-o", binary, "."], cwd=HERE / "load" / "go_client", check=True)
        found["go"] = [str(binary)]
    return found


def part(directory: Path, options: argparse.Namespace, *, hybrid: bool) -> dict[str, Any]:
    commands = generators(directory)
    cheapest = list(commands.values())[-1]
    with Servers(directory, options.chunks, hybrid=hybrid) as servers:
        found: dict[str, Any] = {"chunks": servers.chunks, "memory_mib": memory(servers, cheapest)}
        found["connections"] = {f"of_{count}": distribution(servers, count) for count in (4, 64)}
        servers.start_workers()
        found |= compared(servers, commands, options)
        if hybrid:
            found["vectors"] = vectors_in_memory(servers.index, DIMENSIONS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--chunks", type=int, default=15_000)
    parser.add_argument("--only", choices=("keyword", "hybrid"))
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    parts: dict[str, Any] = {}
    if options.only and options.out.exists():
        parts = json.loads(options.out.read_text("utf-8"))["parts"]
    for name in (options.only,) if options.only else ("keyword", "hybrid"):
        began = os.getloadavg()
        with tempfile.TemporaryDirectory(prefix="readers-") as directory:
            found = part(Path(directory), options, hybrid=name == "hybrid")
        found["load_average"] = [round(began[0], 1), round(os.getloadavg()[0], 1)]
        parts[name] = {**({"note": options.note} if options.note else {}), **found}
        save(parts, options)


def save(parts: dict[str, Any], options: argparse.Namespace) -> None:
    """Write and print the parts, and whether two readers reach the target."""
    reached = {
        f"{name}_{generator}": found[generator]["ratios"]["/".join(PAIRS[0])]["median"]
        for name, found in parts.items()
        for generator in ("python", "go")
        if generator in found
    }
    result = {
        "callers": CALLERS,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "machine": f"{platform.processor() or platform.machine()}, {CORES} cores",
        "parts": parts,
        "targets": {"ratio_of_two_readers": TARGET_RATIO},
        "met": {name: each >= TARGET_RATIO for name, each in reached.items()},
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(json.dumps({"ratios": reached, "met": result["met"]}, indent=2), flush=True)


if __name__ == "__main__":
    main()
