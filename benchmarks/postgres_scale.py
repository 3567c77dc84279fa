"""Measure a daemon on PostgreSQL with many agents, with one large agent, and its costs: `postgres_scale.py`.

    python benchmarks/postgres_scale.py [--sections agents large costs] [--agents 20000] [--chunks 15000]

`agents`: one daemon with 20,000 agents of 20 chunks, of which it keeps at most 500 open. A daemon indexes the first
agent; its rows are copied for the others. `large`: one agent of 15,000 chunks over gRPC, in PostgreSQL and in SQLite in
turn. `costs`: processor time and bytes of a search, an append and an indexed file. All memory files are in the
database. A server is started, which `make setup-postgres` installs; its commits do not wait for the disk, except in
`costs`. The machine's other load is part of the figures; `load_average` says how much there was.

Prints JSON and writes it to benchmarks/results/postgres_scale.json. The measured sections replace the previous ones.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from corpus import write
from daemon import DaemonProcess
from keyword_path import percentile, search_times, sync
from loopback_provider import LoopbackProvider

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from memoryd.client import MemorydClient
from postgres_server import PostgresServer, running_server

RESULT = Path(__file__).parent / "results" / "postgres_scale.json"
CHUNK_BYTES = 1_350
CHUNKS_A_FILE = 10
AGENT_FILES, AGENT_FILE_BYTES = 20, 600
WARM_AGENTS = 200
QUESTIONS = 200
APPENDS = 200
DIMENSIONS = 768
TARGETS = {
    "agents.warm.p50_ms": 15.0,
    "agents.any.p50_ms": 15.0,
    "agents.rss_mib.all_searched": 300,
    "large.hybrid.postgres.p50_ms": 15.0,
}


def name(number: int) -> str:
    return f"agent-{number:05}"


def quantiles(times_ms: list[float]) -> dict[str, float]:
    return {f"p{share}_ms": round(percentile(times_ms, share / 100), 2) for share in (10, 50, 95)}


def write_settings(state: Path, url: str, agents: int = 0, provider: LoopbackProvider | None = None) -> None:
    """Write settings with documents in the database; without a URL, with files."""
    search: dict[str, Any] = {"query": {"maxResults": 6}, "sync": {"watch": False}}
    if provider is not None:
        search |= {"provider": "openai-compatible", "model": "bench", "remote": {"baseUrl": provider.url}}
    listed = {"list": [{"id": name(number)} for number in range(agents)]} if agents else {}
    own: dict[str, Any] = {"confirmAboveTokens": 0} | ({"store": {"url": url}} if url else {})
    state.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"agents": {"defaults": {"memorySearch": search}, **listed}, "memoryd": own})
    (state / "memoryd.json5").write_text(text, "utf-8")


def import_folder(folder: Path, state: Path, agent: str) -> None:
    command = [sys.executable, "-m", "memoryd_server", "import", "folder", folder, "--agent", agent]
    subprocess.run([*command, "--state-dir", state], check=True, stdout=subprocess.DEVNULL)


def backends(server: PostgresServer) -> list[psutil.Process]:
    """Return the processes of the server that serve connections of memoryd."""
    with server.admin("memoryd") as admin:
        rows = admin.execute("SELECT pid FROM pg_stat_activity WHERE usename = 'memoryd'").fetchall()
    return [psutil.Process(row[0]) for row in rows]


class Processor:
    """The processor time of a daemon and of the server's connections, from `start` on."""

    def __init__(self, daemon: DaemonProcess, server: PostgresServer) -> None:
        self._daemon = daemon
        self._server = server
        # A connection that is closed keeps its last time; a new one begins with none.
        self._of_backends: dict[int, float] = {}
        self._began = self._now()

    def _now(self) -> tuple[float, float]:
        for process in backends(self._server):
            times = process.cpu_times()
            self._of_backends[process.pid] = times.user + times.system
        return self._daemon.cpu_seconds(), sum(self._of_backends.values())

    def spent_ms(self, count: int) -> dict[str, float]:
        """Return the milliseconds per call since the start."""
        now = self._now()
        pairs = zip(("daemon_cpu_ms", "postgres_cpu_ms"), self._began, now, strict=True)
        return {who: round(1000 * (after - before) / count, 2) for who, before, after in pairs}


def searches(client: MemorydClient, numbers: list[int], questions: list[str]) -> dict[str, float]:
    """Search each agent once, one after the other."""
    times = []
    for at, number in enumerate(numbers):
        began = time.perf_counter()
        client.search(query=questions[at % len(questions)], agent_id=name(number), timeout=60)
        times.append(1000 * (time.perf_counter() - began))
    return {"searches": len(times), **quantiles(times)}


def copy_agents(server: PostgresServer, agents: int) -> None:
    """Copy the rows of the first agent for all others, as the superuser."""
    with server.admin("memoryd") as admin:
        tables = admin.execute(
            """SELECT c.oid::regclass::text, array_agg(quote_ident(attname) ORDER BY attnum)
                FROM pg_class AS c JOIN pg_attribute AS a ON attrelid = c.oid
                WHERE relnamespace = 'memoryd'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
                    AND attgenerated = '' GROUP BY c.oid HAVING bool_or(attname = 'agent_id')"""
        ).fetchall()
        for table, columns in tables:
            others = ", ".join(column for column in columns if column != "agent_id")
            for first in range(1, agents, 2_000):
                last = min(first + 2_000, agents) - 1
                admin.execute(
                    f"INSERT INTO {table}(agent_id, {others}) SELECT 'agent-' || to_char(n, 'FM00000'), {others}"
                    f" FROM generate_series({first}, {last}) AS n, {table} WHERE agent_id = '{name(0)}'"
                )
        admin.execute("VACUUM ANALYZE")


def database_bytes(server: PostgresServer) -> dict[str, int]:
    """Return the bytes of each table with its indexes, the largest first."""
    with server.admin("memoryd") as admin:
        rows = admin.execute(
            """SELECT relname, pg_total_relation_size(oid) FROM pg_class
                WHERE relnamespace = 'memoryd'::regnamespace AND relkind = 'r' ORDER BY 2 DESC"""
        ).fetchall()
    return {table: size for table, size in rows if size > 100_000}


@contextmanager
def serving(folder: Path, workspace: Path, state: Path) -> Iterator[tuple[DaemonProcess, MemorydClient]]:
    folder.mkdir(exist_ok=True)
    daemon = DaemonProcess(workspace, state)
    client = daemon.start()
    try:
        yield daemon, client
    finally:
        client.close()
        daemon.stop(60)


def measure_agents(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    random_ = random.Random(7)
    workspace, state, first_state = directory / "workspace", directory / "state", directory / "first"
    prose = write(workspace, AGENT_FILES, AGENT_FILE_BYTES)
    questions = [prose.question() for _ in range(QUESTIONS)]
    with running_server() as server:
        write_settings(first_state, server.url, 1)
        write_settings(state, server.url, options.agents)
        import_folder(workspace, first_state, name(0))
        with serving(directory, workspace, first_state) as (_, client):
            sync(client)
            chunks = client.status(agent_id=name(0), timeout=60).index.chunks
        began = time.perf_counter()
        copy_agents(server, options.agents)
        found: dict[str, Any] = {"agents": options.agents, "chunks_of_each": chunks}
        found["bytes_of_each_file"] = AGENT_FILE_BYTES
        found["fill_seconds"] = round(time.perf_counter() - began, 1)
        found["bytes_of_each_agent"] = round(sum(database_bytes(server).values()) / options.agents)
        with serving(directory, workspace, state) as (daemon, client):
            found["start_seconds"] = round(daemon.start_seconds, 1)
            found["rss_mib"] = {"started": round(daemon.rss_mib())}
            order = random_.sample(range(options.agents), options.agents)
            found["cold"] = with_processor(daemon, server, client, order[:1_000], questions)
            found["rss_mib"]["after_1000"] = round(daemon.rss_mib())
            warm = order[-WARM_AGENTS:]
            searches(client, warm, questions)
            found["warm"] = with_processor(daemon, server, client, warm * 5, questions)
            # One after another is too slow for all; the figures of latency are those above.
            began = time.perf_counter()
            with ThreadPoolExecutor(4) as callers:
                list(callers.map(lambda number: searches(client, [number], questions), order))
            found["all_searched_seconds"] = round(time.perf_counter() - began, 1)
            found["rss_mib"]["all_searched"] = round(daemon.rss_mib())
            found["any"] = searches(client, random_.choices(range(options.agents), k=1_000), questions)
            found["rss_mib"]["peak"] = round(daemon.peak_rss_mib())
            found["connections"] = len(backends(server))
            before = daemon.cpu_seconds()
            time.sleep(45)
            found["idle_processor_share"] = round((daemon.cpu_seconds() - before) / 45, 3)
    return found


def with_processor(
    daemon: DaemonProcess, server: PostgresServer, client: MemorydClient, numbers: list[int], questions: list[str]
) -> dict[str, float]:
    processor = Processor(daemon, server)
    times = searches(client, numbers, questions)
    return {**times, **processor.spent_ms(len(numbers))}


def measure_large(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Return the times of searches of the same questions in both stores, in turn."""
    provider = LoopbackProvider(DIMENSIONS)
    provider.start()
    workspace = directory / "workspace"
    prose = write(workspace, options.chunks // CHUNKS_A_FILE, CHUNKS_A_FILE * CHUNK_BYTES)
    questions = [prose.question() for _ in range(QUESTIONS)]
    found: dict[str, Any] = {"chunks": options.chunks, "dimensions": DIMENSIONS}
    with running_server() as server:
        for mode, maker in (("keyword", None), ("hybrid", provider)):
            states = {"postgres": directory / f"pg-{mode}", "sqlite": directory / f"lite-{mode}"}
            write_settings(states["postgres"], server.url, 0, maker)
            write_settings(states["sqlite"], "", 0, maker)
            import_folder(workspace, states["postgres"], "main")
            times: dict[str, list[float]] = {store: [] for store in states}
            daemons = {store: DaemonProcess(workspace, state) for store, state in states.items()}
            clients = {store: daemon.start() for store, daemon in daemons.items()}
            for client in clients.values():
                sync(client)
            with server.admin("memoryd") as admin:
                admin.execute("VACUUM ANALYZE")
            if mode == "hybrid":
                wait_for_engine(clients["postgres"])
            for client in clients.values():
                search_times(client, questions)
            for part in range(0, len(questions), 20):
                for store, client in clients.items():
                    times[store] += search_times(client, questions[part : part + 20])
            found[mode] = {store: quantiles(each) for store, each in times.items()}
            for store, daemon in daemons.items():
                clients[store].close()
                daemon.stop(60)
    provider.stop()
    return found


def wait_for_engine(client: MemorydClient) -> None:
    """Wait until the HNSW index is created, which the first reconcile passes after the sync do."""
    deadline = time.monotonic() + 300
    while client.status(timeout=60).vector.engine != "pgvector-hnsw" and time.monotonic() < deadline:
        time.sleep(1)


def measure_costs(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    workspace, state = directory / "workspace", directory / "state"
    files = options.files
    prose = write(workspace, files, CHUNKS_A_FILE * CHUNK_BYTES)
    found: dict[str, Any] = {"files": files, "chunks_a_file": CHUNKS_A_FILE}
    with running_server(durable=True) as server:
        write_settings(state, server.url)
        import_folder(workspace, state, "main")
        with serving(directory, workspace, state) as (daemon, client):
            # The sync at the start has just begun, and this call joins it.
            processor, began = Processor(daemon, server), time.perf_counter()
            sync(client)
            index = client.status(timeout=60).index
            found["chunks"] = index.chunks
            found["indexed_file"] = {"ms": round(1000 * (time.perf_counter() - began) / files, 2)}
            found["indexed_file"] |= processor.spent_ms(files)
            found["bytes_a_chunk"] = {
                table: round(size / index.chunks) for table, size in database_bytes(server).items()
            }
            questions = [prose.question() for _ in range(QUESTIONS)]
            search_times(client, questions[:50])
            processor = Processor(daemon, server)
            found["search"] = quantiles(search_times(client, questions)) | processor.spent_ms(len(questions))
            processor, times = Processor(daemon, server), []
            for number in range(APPENDS):
                began = time.perf_counter()
                path, key = f"memory/log-{number % 10}.md", f"bench-{number}"
                client.append(path=path, text=f"- {prose.sentence()}", idempotency_key=key, timeout=60)
                times.append(1000 * (time.perf_counter() - began))
            found["append_indexed"] = quantiles(times) | processor.spent_ms(APPENDS)
            found["connections"] = len(backends(server))
    return found


SECTIONS = {"agents": measure_agents, "large": measure_large, "costs": measure_costs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--agents", type=int, default=20_000)
    parser.add_argument("--chunks", type=int, default=15_000)
    parser.add_argument("--files", type=int, default=300)
    options = parser.parse_args()
    report = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    for section in options.sections:
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="scale-", dir="/tmp") as folder:
            measured = SECTIONS[section](options, Path(folder))
        report[section] = {**measured, "load_average": [round(load, 1), round(os.getloadavg()[0], 1)]}
        print(json.dumps({section: report[section]}, indent=2), flush=True)
        report["machine"] = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
        report["targets"] = TARGETS
        RESULT.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
