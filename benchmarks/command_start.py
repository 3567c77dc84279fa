"""Measure how long the `memoryd` command takes: `python benchmarks/command_start.py`.

Each round runs the help page, a search that finds a running daemon without flags, and `python -c "import grpc"`, which
every client of the daemon has to do. On a machine that is used by others, only the ratios to the last one can be
compared. Prints JSON and writes it to benchmarks/results/command_start.json.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from daemon import DaemonProcess

RESULTS = Path(__file__).parent / "results" / "command_start.json"
MEMORYD = str(Path(sys.executable).with_name("memoryd"))
COMMANDS = {
    "import_grpc": [sys.executable, "-c", "import grpc"],
    "help": [MEMORYD, "--help"],
    "search": [MEMORYD, "search", "ferry"],
}


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """The wall time and the CPU time of a command, in seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure all commands in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory(prefix="memoryd-start-") as folder:
        home = Path(folder)
        (home / "notes" / "memory").mkdir(parents=True)
        (home / "notes" / "memory" / "a.md").write_text("The ferry leaves at nine.\n", "utf-8")
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("MEMORYD_", "OPENCLAW_", "XDG_"))
        }
        environment = {**kept, "HOME": folder}
        daemon = DaemonProcess(home / "notes", home / "state", HOME=folder, XDG_RUNTIME_DIR="")
        with daemon.start() as client:
            with client.sync() as events:
                list(events)
            for number in range(rounds + 1):
                for name, command in COMMANDS.items():
                    measured = run(command, environment)
                    # The first round reads the files from the disk.
                    if number:
                        times[name].append(measured)
        daemon.stop()
    base = [wall for wall, _ in times["import_grpc"]]
    results = {
        "rounds": rounds,
        "commands": {
            name: {
                "wall_s": round(statistics.median(wall for wall, _ in measured), 3),
                "cpu_s": round(statistics.median(cpu for _, cpu in measured), 3),
                "wall_ratio": round(
                    statistics.median(wall / each for (wall, _), each in zip(measured, base, strict=True)), 2
                ),
            }
            for name, measured in times.items()
        },
    }
    text = json.dumps(results, indent=2) + "\n"
    RESULTS.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
