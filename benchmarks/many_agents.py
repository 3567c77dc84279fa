"""What a thousand agents cost one daemon, of which fifty are used: `python benchmarks/many_agents.py`.

Prints JSON and writes it to benchmarks/results/many_agents.json: memory, threads and descriptors of a real daemon
after its start, after 50 agents were searched from several callers at once, and after those were left alone.
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

from memoryd.client import MemorydClient

MEMORY_TARGET_MIB = 1_024
# The reconcile pass is what gives memory back, 45 s apart from the next by default.
PASS_SECONDS = 45
TURNS = ("first_start", "second_start")


def settings(directory: Path, agents: int, idle_seconds: float) -> dict[str, Any]:
    """`agents` agents with a workspace each, whose memories give back what they hold after `idle_seconds`."""
    listed = [{"id": name(number), "workspace": str(directory / name(number))} for number in range(agents)]
    return {"agents": {"list": listed}, "memoryd": {"idleSeconds": idle_seconds}}


def name(number: int) -> str:
    return f"agent-{number:04}"


def write_notes(workspace: Path, files: int, prose: Prose) -> None:
    folder = workspace / "memory"
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"note-{number:04}.md").write_text(prose.note(1_500), "utf-8")


def figures(daemon: DaemonProcess) -> dict[str, float]:
    process = psutil.Process(daemon.pid)
    return {
        "rss_mib": round(process.memory_info().rss / 2**20, 1),
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
    }


def settle(daemon: DaemonProcess, limit_seconds: float) -> float:
    """Waits until the daemon has done what it does by itself at the start; returns the seconds that took."""
    began = time.monotonic()
    while time.monotonic() - began < limit_seconds:
        before = daemon.cpu_seconds()
        time.sleep(5)
        if daemon.cpu_seconds() - before < 1.0:
            break
    return round(time.monotonic() - began, 1)


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
    parser.add_argument("--files", type=int, default=400, help="notes of each agent that is used")
    parser.add_argument("--few", type=int, default=3, help="notes of each of the others")
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "many_agents.json")
    options = parser.parse_args()
    prose = Prose(1)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for number in range(options.agents):
            write_notes(directory / name(number), options.files if number < options.used else options.few, prose)
        state = directory / "state"
        state.mkdir()
        (state / "memoryd.json5").write_text(json.dumps(settings(directory, options.agents, options.idle_seconds)))
        report: dict[str, Any] = {"agents": options.agents, "used": options.used, "files_of_each": options.files}
        report |= {"python": platform.python_version(), "machine": platform.machine()}
        for turn in TURNS:
            report[turn] = one_life(DaemonProcess(directory / name(0), state), options, prose)
            print(json.dumps({turn: report[turn]}), flush=True)
    report["target_rss_mib"] = MEMORY_TARGET_MIB
    report["met"] = all(report[turn]["peak_rss_mib"] <= MEMORY_TARGET_MIB for turn in TURNS)
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


def one_life(daemon: DaemonProcess, options: argparse.Namespace, prose: Prose) -> dict[str, Any]:
    client = daemon.start()
    at = {"listening": figures(daemon)}
    settled = settle(daemon, 60)
    at["settled"] = figures(daemon)
    idle_share = cpu_share(daemon, 15)
    questions = [prose.question() for _ in range(40)]
    searched = use(client, range(options.used), questions, len(questions))
    at["used"] = figures(daemon)
    time.sleep(options.idle_seconds + PASS_SECONDS + 5)
    at["left_alone"] = figures(daemon)
    client.close()
    peak = round(daemon.peak_rss_mib(), 1)
    began = time.monotonic()
    daemon.stop(seconds=300)
    return {
        "start_seconds": round(daemon.start_seconds, 2),
        "stop_seconds": round(time.monotonic() - began, 2),
        "settled_after_seconds": settled,
        "idle_processor_share": idle_share,
        **searched,
        "peak_rss_mib": peak,
        "at": at,
    }


if __name__ == "__main__":
    main()
