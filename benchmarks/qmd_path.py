"""Measure searches with the real qmd, and its absence: `python benchmarks/qmd_path.py [--out FILE]`.

1,000 files of 4 KB with a real daemon. The time of each call is compared with that of the qmd command alone, so the
difference is memoryd's own. Then qmd is removed, installed again, and called by a caller that disconnects.

Prints JSON and writes it to benchmarks/results/qmd_path.json, or to `--out`.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from corpus import Prose, write
from daemon import DaemonProcess
from keyword_path import percentile, sync

from memoryd.client import MemorydClient, MemorydError
from memoryd.v1 import memory_pb2

FILES = 1_000
FILE_BYTES = 4_096
QUESTIONS = 40
AT_ONCE = 4
DIRECT = "agent:main:cli:direct:bench"
QMD = Path(__file__).parents[1] / ".tools" / "qmd" / "qmd"
TARGETS = {
    "overhead_p50_ms": 100.0,
    "without_qmd_ms": 5_000.0,
    "recovery_seconds": 60.0,
    "group_gone_after_leaving_ms": 2_000.0,
    "processes_left": 0,
}


def settings(command: Path) -> str:
    update = {"onBoot": False, "interval": "0s", "debounceMs": 0}
    qmd = {"command": str(command), "update": update, "limits": {"timeoutMs": 20_000}}
    search = {"sync": {"onSearch": False, "watch": False}}
    return json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memory": {"backend": "qmd", "qmd": qmd}})


def words(prose: Prose) -> list[str]:
    """Return two words per question: qmd finds files that contain all of them."""
    return [" ".join(prose.question().split()[-2:]) for _ in range(QUESTIONS)]


def timed(work) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def ask(client: MemorydClient, question: str, timeout: float = 30.0):
    return client.search(query=question, session_key=DIRECT, timeout=timeout)


def answered_by_qmd(client: MemorydClient, question: str) -> None:
    answer = ask(client, question)
    if answer.info.backend != memory_pb2.BACKEND_QMD:
        raise RuntimeError(f"the builtin engine answered: {answer.info.degradations}")


def bare(state: Path, question: str) -> None:
    """Run the same search without memoryd."""
    home = state / "agents" / "main" / "qmd"
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home / "xdg-config"), "XDG_CACHE_HOME": str(home / "xdg-cache")}
    command = [str(QMD), "--index", "index", "search", "--json", "-n", "12", "-c", "memory-root", "--", question]
    subprocess.run(command, env=environment, cwd=home, capture_output=True, check=True)


def searches(client: MemorydClient, state: Path, prose: Prose) -> dict[str, float]:
    questions = words(prose)
    # Interleaved, so that other load on the machine affects both.
    both = [(timed(lambda q=q: answered_by_qmd(client, q)), timed(lambda q=q: bare(state, q))) for q in questions]
    ours, theirs = ([pair[side] for pair in both] for side in (0, 1))
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as callers:
        list(callers.map(lambda q: answered_by_qmd(client, q), questions))
    together = time.perf_counter() - began
    return {
        "search_p50_ms": round(statistics.median(ours), 1),
        "search_p95_ms": round(percentile(ours, 0.95), 1),
        "bare_command_p50_ms": round(statistics.median(theirs), 1),
        "overhead_p50_ms": round(statistics.median(ours) - statistics.median(theirs), 1),
        f"searches_a_second_{AT_ONCE}_callers": round(QUESTIONS / together, 2),
    }


def absence(client: MemorydClient, command: Path, prose: Prose) -> dict[str, float]:
    away = command.with_suffix(".away")
    command.rename(away)
    first, later = (timed(lambda: ask(client, prose.question(), 5.0)) for _ in range(2))
    away.rename(command)
    began = time.perf_counter()
    while ask(client, prose.question()).info.backend != memory_pb2.BACKEND_QMD:
        time.sleep(0.1)
    return {
        "without_qmd_ms": round(first, 1),
        "without_qmd_later_ms": round(later, 1),
        "recovery_seconds": round(time.perf_counter() - began, 1),
    }


def leaving(client: MemorydClient, command: Path, daemon: psutil.Process) -> dict[str, float]:
    """Return how long the processes of a hanging search exist after its caller disconnected."""
    text = command.read_text()
    command.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600 & sleep 600\n")
    known = {child.pid for child in daemon.children(recursive=True)}
    hanging: set[int] = set()
    left = threading.Event()

    def leave() -> None:
        with contextlib.suppress(MemorydError):
            ask(client, "harbour", timeout=1.0)
        left.set()

    caller = threading.Thread(target=leave)
    caller.start()
    while not left.is_set():
        hanging |= {child.pid for child in daemon.children(recursive=True)} - known
        time.sleep(0.01)
    began = time.perf_counter()
    while any(map(alive, hanging)):
        time.sleep(0.005)
    caller.join()
    command.write_text(text)
    return {
        "hanging_processes": len(hanging),
        "group_gone_after_leaving_ms": round((time.perf_counter() - began) * 1000, 1),
    }


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def measured(directory: Path) -> dict[str, float]:
    workspace, state, command = directory / "workspace", directory / "state", directory / "bin" / "qmd"
    prose = write(workspace, FILES, FILE_BYTES)
    state.mkdir()
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{QMD}" "$@"\n')
    command.chmod(0o755)
    (state / "memoryd.json5").write_text(settings(command), "utf-8")
    daemon = DaemonProcess(workspace, state)
    client = daemon.start()
    of_system = psutil.Process(daemon.pid)
    result = {"files": FILES, "first_sync_seconds": round(sync(client), 2), "noop_sync_seconds": round(sync(client), 2)}
    result |= searches(client, state, prose)
    result |= absence(client, command, prose)
    result |= leaving(client, command, of_system)
    everyone = of_system.children(recursive=True)
    result["peak_rss_mib"] = round(daemon.peak_rss_mib())
    client.close()
    daemon.stop()
    time.sleep(1)
    result["processes_left"] = sum(alive(child.pid) for child in everyone)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "qmd_path.json")
    out = parser.parse_args().out
    if not QMD.exists():
        raise SystemExit("no qmd: `make qmd` installs it")
    with tempfile.TemporaryDirectory(prefix="qmd-") as directory:
        result = measured(Path(directory))
    report = {"machine": platform.processor() or platform.machine(), "result": result, "targets": TARGETS}
    report["missed"] = [name for name, most in TARGETS.items() if result[name] > most]
    text = json.dumps(report, indent=2)
    out.write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
