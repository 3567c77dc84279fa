"""Measure search quality with files and with PostgreSQL, and compare the figures: `make eval-postgres DATA=...`.

    python benchmarks/eval_postgres.py --data ../shared/eval/data [--model model.gguf] [--limit 200]

Runs `memoryd eval` twice: with SQLite and the workspaces, and with a PostgreSQL server of its own (`make
setup-postgres` installs it), into which the workspaces are imported. By default with keyword search; with a model also
with hybrid search. Writes benchmarks/results/eval_postgres.json, and exits with 1 if a figure differs by more than
0.001.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from postgres_server import running_server

RESULT = Path(__file__).parent / "results" / "eval_postgres.json"
LABELS = "dataset,dataset/lang,dataset/kind"
TOLERANCE = 0.001


def figures(report: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each figure of a run."""
    groups = {"overall": report["overall"]}
    groups |= {f"{label} {name}": group for label, each in report["by"].items() for name, group in each.items()}
    for name, group in groups.items():
        for metric, value in group.items():
            yield f"{name} {metric}", value


def evaluate(options: argparse.Namespace, folder: Path, *flags: str) -> dict[str, Any]:
    """Return the results of one run of `memoryd eval`."""
    out = folder / "out.json"
    command = [sys.executable, "-m", "memoryd_server", "eval", "--data", options.data, "--by", LABELS, "--out", out]
    if options.limit:
        command += ["--limit", str(options.limit)]
    subprocess.run([*map(str, command), "--state-dir", str(folder), *flags], check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text("utf-8"))


def compare(files: dict[str, Any], postgres: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a run on PostgreSQL, and how they differ from those of a run on files."""
    before, after = dict(figures(files)), dict(figures(postgres))
    differences = {name: round(after[name] - before[name], 4) for name in before.keys() & after.keys()}
    old, new = files["questions"], postgres["questions"]
    return {
        "seconds": {"sqlite": files["seconds"], "postgres": postgres["seconds"]},
        "left_out": postgres["left_out"],
        "degradations": postgres["degradations"],
        "figures": len(before),
        "largest_difference": max(map(abs, differences.values())),
        "differences": {name: each for name, each in sorted(differences.items()) if each},
        "only_in_one_run": sorted(before.keys() ^ after.keys()),
        "questions_with_other_scores": sum(old.get(key) != new.get(key) for key in {**old, **new}),
        "overall": {"sqlite": files["overall"], "postgres": postgres["overall"]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="also measure hybrid search with this local model")
    parser.add_argument("--limit", type=int, help="queries of each dataset")
    parser.add_argument("--only", choices=("keyword", "hybrid"))
    options = parser.parse_args()
    modes = ["keyword", *(["hybrid"] if options.model else [])]
    modes = [mode for mode in modes if options.only in (None, mode)]
    report: dict[str, Any] = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    report["tolerance"] = TOLERANCE
    for mode in modes:
        with tempfile.TemporaryDirectory() as folder, running_server() as server:
            flags = ["--keyword"]
            if mode == "hybrid":
                local = {"provider": "local", "local": {"modelPath": str(options.model.resolve())}}
                config = Path(folder) / "hybrid.json5"
                config.write_text(json.dumps({"agents": {"defaults": {"memorySearch": local}}}), "utf-8")
                flags = ["--config", str(config)]
            files = evaluate(options, Path(folder), *flags)
            postgres = evaluate(options, Path(folder), *flags, "--database", server.url)
        report[mode] = {"queries_of_each_dataset": options.limit or "all", **compare(files, postgres)}
        RESULT.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
        print(json.dumps({mode: report[mode]}, indent=2), flush=True)
    results = [report[mode] for mode in modes]
    differs = any(each["largest_difference"] > TOLERANCE or each["only_in_one_run"] for each in results)
    return 1 if differs or any(each["left_out"] or each["degradations"] for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
