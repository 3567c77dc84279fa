"""Calculate what a fleet of agents needs, from measured costs: `capacity.py`.

    python benchmarks/capacity.py --agents 20000 [--chunks 200] [--searches 50] [--appends 10] ...

Reads the costs of calls from benchmarks/results/postgres_scale.json and replicas.json, and prints each step of the
calculation as a table in Markdown. The tables in docs/scale.md are made by it. The costs are those of the machine that
measured them; measure on your own before you buy any.
"""

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
SECONDS_A_DAY = 86_400
VECTOR_BYTES = 4_000
# Room for rows that VACUUM has not removed yet, and for the write-ahead log.
DISK_FACTOR = 1.5
OTHER_CONNECTIONS = 5


@dataclass(frozen=True)
class Costs:
    """Processor time in milliseconds and bytes, of one call or chunk."""

    search_daemon: float
    search_postgres: float
    append_daemon: float
    append_postgres: float
    append_transactions: float
    append_wal_bytes: float
    chunk_bytes: float
    configured_agent_bytes: float


def measured_costs() -> Costs:
    scale = json.loads((RESULTS / "postgres_scale.json").read_text("utf-8"))
    append = json.loads((RESULTS / "replicas.json").read_text("utf-8"))["append_2"]
    # A fleet has more agents than a daemon keeps open, so most searches open their agent.
    search = scale["agents"]["cold"]
    return Costs(
        search["daemon_cpu_ms"],
        search["postgres_cpu_ms"],
        append["daemons_cpu_ms"],
        append["postgres_cpu_ms"],
        append["transactions"],
        append["wal_bytes"],
        sum(scale["costs"]["bytes_a_chunk"].values()),
        scale["agents"]["rss_mib"]["started"] * 2**20 / scale["agents"]["agents"],
    )


def rows(options: argparse.Namespace, costs: Costs) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each quantity, how it is calculated, and its value."""
    agents, peak = options.agents, options.peak
    searches = agents * options.searches / SECONDS_A_DAY * peak
    yield "searches a second", f"{agents:,} x {options.searches} / 86,400 s x {peak}", f"{searches:,.0f}"
    appends = agents * options.appends / SECONDS_A_DAY * peak
    yield "appends a second", f"{agents:,} x {options.appends} / 86,400 s x {peak}", f"{appends:,.0f}"
    share = options.utilization
    for who, search, append in (
        ("daemons", costs.search_daemon, costs.append_daemon),
        ("PostgreSQL", costs.search_postgres, costs.append_postgres),
    ):
        cores = (searches * search + appends * append) / 1000 / share
        formula = f"({searches:,.0f} x {search:.1f} ms + {appends:,.0f} x {append:.1f} ms) / {share}"
        yield f"cores of {who}", formula, f"{cores:,.1f}"
        if who == "daemons":
            replicas = max(2, math.ceil(cores / options.cores) + 1)
            yield "replicas", f"{cores:,.1f} / {options.cores} cores, and one that may fail", f"{replicas:,}"
            connections = replicas * (options.connections + OTHER_CONNECTIONS)
            yield (
                "connections",
                f"{replicas:,} x ({options.connections} + {OTHER_CONNECTIONS}) at most",
                f"{connections:,}",
            )
    transactions = costs.append_transactions
    yield "transactions a second", f"{appends:,.0f} x {transactions:.1f}", f"{appends * transactions:,.0f}"
    log = costs.append_wal_bytes
    yield "write-ahead log", f"{appends:,.0f} x {log / 1000:,.0f} kB", f"{appends * log / 1e6:,.1f} MB/s"
    chunk = costs.chunk_bytes + VECTOR_BYTES
    size = agents * options.chunks * chunk
    yield (
        "disk",
        f"{agents:,} x {options.chunks} x {chunk / 1000:.1f} kB x {DISK_FACTOR}",
        f"{size * DISK_FACTOR / 1e12:,.2f} TB",
    )
    memory = agents * costs.configured_agent_bytes
    yield (
        "memory of a daemon",
        f"{agents:,} x {costs.configured_agent_bytes / 1000:.1f} kB",
        f"{memory / 1e9:,.1f} GB",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, required=True)
    parser.add_argument("--chunks", type=int, default=200, help="of each agent")
    parser.add_argument("--searches", type=int, default=50, help="of each agent, a day")
    parser.add_argument("--appends", type=int, default=10, help="of each agent, a day")
    parser.add_argument("--peak", type=int, default=5, help="calls of the busiest second / calls of a mean second")
    parser.add_argument("--utilization", type=float, default=0.6, help="the share of a core to use at the peak")
    parser.add_argument("--cores", type=int, default=1, help="that a daemon, one Python process, can use")
    parser.add_argument("--connections", type=int, default=10, help="memoryd.store.maxConnections")
    found = list(rows(parser.parse_args(), measured_costs()))
    print("| | calculation | result |\n|---|---|---|")
    for row in found:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
