"""Measure the cost of a thousand agents in one daemon, of which fifty are used: `python benchmarks/many_agents.py`.

Measured twice: with keyword search only, and with vectors from a provider on loopback for the used agents. Prints JSON
and writes it to benchmarks/results/many_agents.json: memory, threads and descriptors of a real daemon when it listens,
after its initial work, after concurrent searches of the used agents, and after these agents became idle and released
memory; and the times until it listens, until the last agent responds, and of the shutdown.
"""

import argparse
import json
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from corpus import Prose
from daemon import DaemonProcess
from loopback_provider import LoopbackProvider, PreparedVectors

from memoryd.client import MemorydClient

MEMORY_TARGET_MIB = 1_024
# Memory is released by the reconcile pass, which runs every 45 s by default.
PASS_SECONDS = 45
TURNS = ("first_start", "second_start")
DIMENSIONS = 768
CHUNK_BYTES = 1_350


def settings(directory: Path, options: argparse.Namespace, provider: LoopbackProvider | None) -> dict[str, Any]:
    """Return settings for agents with separate workspaces; used agents have vectors if there is a provider."""
    listed: list[dict[str, Any]] = []
    for number in range(options.agents):
        agent: dict[str, Any] = {"id": name(number), "workspace": str(directory / name(number))}
        if provider is not None and number < options.used:
            remote = {"baseUrl": provider.url, "nonBatchConcurrency": 8, "batch": {"enabled": False}}
            agent["memorySearch"] = {"provider": "openai-compatible", "model": "bench", "remote": remote}
        listed.append(agent)
    own = {"idleSeconds": options.idle_seconds, "confirmAboveTokens": 0}
    return {"agents": {"list": listed}, "memoryd": own}


def name(number: int) -> str:
    return f"agent-{number:04}"


def write_notes(workspace: Path, files: int, size: int, prose: Prose) -> None:
    folder = workspace / "memory"
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"note-{number:04}.md").write_text(prose.note(size), "utf-8")


def figures(daemon: DaemonProcess) -> dict[str, float]:
    process = psutil.Process(daemon.pid)
    return {
        "rss_mib": round(process.memory_info().rss / 2**20, 1),
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
    }


def settle(daemon: DaemonProcess, client: MemorydClient, has_vectors: range, limit_seconds: float) -> float:
    """Wait until the daemon has completed its initial work; return the seconds."""
    began = time.monotonic()
    for number in has_vectors:
        while not embedded(client, number):
            if time.monotonic() - began > limit_seconds:
                raise RuntimeError(f"no vectors in {limit_seconds} s")
            time.sleep(0.5)
    while time.monotonic() - began < limit_seconds:
        before = daemon.cpu_seconds()
        time.sleep(1)
        if daemon.cpu_seconds() - before < 0.15:
            break
    return round(time.monotonic() - began, 1)


def embedded(client: MemorydClient, number: int) -> bool:
    index = client.status(agent_id=name(number), timeout=60).index
    return index.chunks > 0 and not index.pending_embeddings


def first_answer(client: MemorydClient, agent: str, question: str) -> float:
    """Return the milliseconds until the first response of an agent that is not open yet."""
    began = time.perf_counter()
    client.search(query=question, agent_id=agent)
    return round((time.perf_counter() - began) * 1000, 1)


def cpu_share(daemon: DaemonProcess, seconds: float) -> float:
    before = daemon.cpu_seconds()
    time.sleep(seconds)
    return round((daemon.cpu_seconds() - before) / seconds, 3)


def use(client: MemorydClient, used: range, questions: list[str], rounds: int) -> dict[str, float]:
    times: list[float] = []

    def one(number: int) -> None:
        for question in questions[:rounds]:
            began = time.perf_counter()
            client.search(query=question, agent_id=name(number))
            times.append((time.perf_counter() - began) * 1000)

    with ThreadPoolExecutor(8) as callers:
        list(callers.map(one, used))
    times.sort()
    return {
        "searches": len(times),
        "search_p50_ms": round(times[len(times) // 2], 1),
        "search_p99_ms": round(times[int(len(times) * 0.99)], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--used", type=int, default=50)
    parser.add_argument("--files", type=int, default=200, help="notes of each used agent")
    parser.add_argument("--chunks-a-file", type=int, default=6, help="chunks per file with vectors; 1 without")
    parser.add_argument("--few", type=int, default=3, help="notes of each other agent")
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--only", choices=("keyword", "hybrid"), help="run only this; keep the other results")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "many_agents.json")
    options = parser.parse_args()
    report: dict[str, Any] = json.loads(options.out.read_text("utf-8")) if options.only else {}
    report |= {"agents": options.agents, "used": options.used, "files_of_each": options.files}
    report |= {"python": platform.python_version(), "machine": platform.machine()}
    for kind in ("keyword", "hybrid"):
        if options.only in (None, kind):
            report[kind] = two_lives(options, has_vectors=kind == "hybrid")
    report["target_rss_mib"] = MEMORY_TARGET_MIB
    peaks = [life["peak_rss_mib"] for kind in ("keyword", "hybrid") for life in report.get(kind, {}).values()]
    report["met"] = max(peaks) <= MEMORY_TARGET_MIB
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


def two_lives(options: argparse.Namespace, *, has_vectors: bool) -> dict[str, Any]:
    """Measure a first start, which creates the indexes, and a second start, which opens them."""
    prose = Prose(1)
    provider = LoopbackProvider(DIMENSIONS, make=PreparedVectors(DIMENSIONS)) if has_vectors else None
    if provider is not None:
        provider.start()
    size = CHUNK_BYTES * (options.chunks_a_file if has_vectors else 1)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for number in range(options.agents):
            write_notes(directory / name(number), options.files if number < options.used else options.few, size, prose)
        state = directory / "state"
        state.mkdir()
        (state / "memoryd.json5").write_text(json.dumps(settings(directory, options, provider)))
        for turn in TURNS:
            found[turn] = one_life(DaemonProcess(directory / name(0), state), options, prose, has_vectors=has_vectors)
            print(json.dumps({turn: found[turn]}), flush=True)
    if provider is not None:
        provider.stop()
    return found


def one_life(daemon: DaemonProcess, options: argparse.Namespace, prose: Prose, *, has_vectors: bool) -> dict[str, Any]:
    client = daemon.start()
    at = {"listening": figures(daemon)}
    asked = first_answer(client, name(options.agents - 1), prose.question())
    settled = settle(daemon, client, range(options.used if has_vectors else 0), 900)
    at["settled"] = figures(daemon)
    idle_share = cpu_share(daemon, PASS_SECONDS)
    questions = [prose.question() for _ in range(40)]
    searched = use(client, range(options.used), questions, len(questions))
    at["used"] = figures(daemon)
    index = client.status(agent_id=name(0), timeout=60).index
    time.sleep(options.idle_seconds + PASS_SECONDS + 20)
    at["left_alone"] = figures(daemon)
    client.close()
    peak = round(daemon.peak_rss_mib(), 1)
    began = time.monotonic()
    daemon.stop(seconds=300)
    return {
        "start_seconds": round(daemon.start_seconds, 2),
        "first_answer_ms": asked,
        "settled_after_seconds": settled,
        "stop_seconds": round(time.monotonic() - began, 2),
        "idle_processor_share": idle_share,
        "chunks_of_each": index.chunks,
        **searched,
        "peak_rss_mib": peak,
        "at": at,
    }


if __name__ == "__main__":
    main()
