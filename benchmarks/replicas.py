"""Measure searches and appends of one and of two replicas on one PostgreSQL database: `replicas.py`.

    python benchmarks/replicas.py [--agents 100] [--calls 1000] [--callers 8]

Callers search, and then append, each time with a random one of the agents, and choose the replicas in turn. The memory
files are in the database, whose commits wait for the disk. The figures of one replica and of two are taken in turn, on
the same machine, which also runs the server and the callers; so they show what a call costs, and not how many calls two
machines would answer. The server is one that `make setup-postgres` installs.

Prints JSON and writes it to benchmarks/results/replicas.json.
"""

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from corpus import Prose, write
from daemon import DaemonProcess
from keyword_path import sync
from postgres_scale import Processor, copy_agents, import_folder, name, quantiles, serving, write_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from memoryd.client import MemorydClient
from postgres_server import PostgresServer, running_server

RESULT = Path(__file__).parent / "results" / "replicas.json"
AGENT_FILES, AGENT_FILE_BYTES = 20, 600
ROUNDS = 3

Call = Callable[[MemorydClient, str, int], object]


class Totals:
    """Transactions and bytes of the write-ahead log of a server, from `start` on."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._began = self._now()

    def _now(self) -> tuple[int, int]:
        with self._server.admin("memoryd") as admin:
            # The statistics of a session arrive within a second.
            time.sleep(1.5)
            row = admin.execute(
                """SELECT xact_commit, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
                    FROM pg_stat_database WHERE datname = 'memoryd'"""
            ).fetchone()
        return int(row[0]), int(row[1])

    def of_a_call(self, calls: int) -> dict[str, float]:
        """Return the transactions and bytes for each of some calls since the start, those of heartbeats included."""
        commits, written = (now - before for now, before in zip(self._now(), self._began, strict=True))
        return {"transactions": round(commits / calls, 2), "wal_bytes": round(written / calls)}


def measure(
    server: PostgresServer,
    running: list[tuple[DaemonProcess, MemorydClient]],
    call: Call,
    options: argparse.Namespace,
    random_: random.Random,
) -> dict[str, Any]:
    """Return the times and costs of calls to the replicas in turn."""
    agents = [name(random_.randrange(options.agents)) for _ in range(options.calls)]
    totals, processors = Totals(server), [Processor(daemon, server) for daemon, _ in running]

    def one(number: int) -> float:
        _, client = running[number % len(running)]
        began = time.perf_counter()
        call(client, agents[number], number)
        return 1000 * (time.perf_counter() - began)

    began = time.perf_counter()
    with ThreadPoolExecutor(options.callers) as callers:
        times = list(callers.map(one, range(options.calls)))
    seconds = time.perf_counter() - began
    spent = [processor.spent_ms(options.calls) for processor in processors]
    return {
        **quantiles(times),
        "calls_a_second": round(options.calls / seconds),
        "daemons_cpu_ms": round(sum(each["daemon_cpu_ms"] for each in spent), 2),
        # Each of them counts all sessions of the server.
        "postgres_cpu_ms": spent[0]["postgres_cpu_ms"],
        **totals.of_a_call(options.calls),
    }


def searching(prose: Prose) -> Call:
    questions = [prose.question() for _ in range(200)]
    return lambda client, agent, number: client.search(
        query=questions[number % len(questions)], agent_id=agent, timeout=60
    )


def appending(prose: Prose, keys: str) -> Call:
    return lambda client, agent, number: client.append(
        path="memory/log.md",
        text=f"- {prose.sentence()}",
        agent_id=agent,
        idempotency_key=f"{keys}-{number}",
        timeout=60,
    )


def run(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    random_ = random.Random(28)
    workspace, states = directory / "workspace", [directory / f"state-{number}" for number in (1, 2)]
    prose = write(workspace, AGENT_FILES, AGENT_FILE_BYTES)
    found: dict[str, Any] = {"agents": options.agents, "calls": options.calls, "callers": options.callers}
    with running_server(durable=True) as server, ExitStack() as stack:
        first = directory / "first"
        write_settings(first, server.url, 1)
        import_folder(workspace, first, name(0))
        with serving(directory, workspace, first) as (_, client):
            sync(client)
        for state in states:
            write_settings(state, server.url, options.agents)
        copy_agents(server, options.agents)
        running = [stack.enter_context(serving(directory, workspace, state)) for state in states]
        for _, client in running:
            for number in range(options.agents):
                client.search(query="open", agent_id=name(number), timeout=60)
        rounds: dict[str, list[dict[str, Any]]] = {}
        for number in range(ROUNDS):
            for count in (1, 2):
                calls = {"search": searching(prose), "append": appending(prose, f"{number}-{count}")}
                for kind, call in calls.items():
                    measured = measure(server, running[:count], call, options, random_)
                    rounds.setdefault(f"{kind}_{count}", []).append(measured)
        # The round with the median of the medians.
        for key, each in rounds.items():
            found[key] = sorted(each, key=lambda one: one["p50_ms"])[len(each) // 2]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--callers", type=int, default=8)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="replicas-", dir="/tmp") as folder:
        found = run(options, Path(folder))
    found["load_average"] = [round(load, 1), round(os.getloadavg()[0], 1)]
    found["machine"] = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(json.dumps(found, indent=2))
    RESULT.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
