"""Measure what the search settings change: `python benchmarks/tuning.py --data ../shared/eval/data --model MODEL.gguf`.

Runs `memoryd eval` once for each variant of the settings, with the same local model, on the English sets that are
present: LoCoMo, its notes, XQuAD, needles, and the repository's paraphrases. `--state` keeps the indexes and vectors
between runs. Prints a line for each variant and writes benchmarks/results/tuning.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results" / "tuning.json"
SETS = ("locomo", "locomo-notes", "xquad", "needles", "paraphrases")
GOLDEN = REPOSITORY / "tests" / "golden"
METRICS = ("recall@6", "hit@1", "ndcg@10", "shown@6", "answered_with_nothing")

Settings = Mapping[str, Any]


def hybrid(**settings: Any) -> Settings:
    return {"query": {"hybrid": settings}}


def decay(days: int) -> Settings:
    return hybrid(temporalDecay={"enabled": True, "halfLifeDays": days})


def chunks(tokens: int, overlap: int) -> Settings:
    return {"chunking": {"tokens": tokens, "overlap": overlap}}


VARIANTS: Mapping[str, tuple[Settings, Settings]] = {
    "default": ({}, {}),
    "keywords only": ({"provider": "none"}, {}),
    "vectors only": (hybrid(enabled=False), {}),
    **{
        f"vectorWeight {w}": (hybrid(vectorWeight=w, textWeight=round(1 - w, 2)), {}) for w in (0.3, 0.5, 0.6, 0.8, 0.9)
    },
    **{f"minScore {least}": ({"query": {"minScore": least}}, {}) for least in (0.2, 0.35, 0.5, 0.7)},
    **{f"halfLifeDays {days}": (decay(days), {}) for days in (7, 30)},
    "halfLifeDays 30, decayFloor 0": (decay(30), {"decayFloor": 0}),
    **{f"lambda {each}": (hybrid(mmr={"enabled": True, "lambda": each}), {}) for each in (0.9, 0.7, 0.5)},
    **{f"candidateMultiplier {each}": (hybrid(candidateMultiplier=each), {}) for each in (1, 20)},
    **{f"chunks {t}/{o}": (chunks(t, o), {}) for t, o in ((100, 20), (200, 40), (400, 0), (800, 160))},
}


def prepare(data: Path, target: Path, sets: list[str]) -> None:
    """Write the English queries of the sets below `target`; their workspaces stay where they are."""
    for name in sets:
        file = (GOLDEN if name == "paraphrases" else data) / name / "queries.jsonl"
        if not file.exists():
            print(f"{name} is not in {data}", file=sys.stderr)
            continue
        folder = target / name
        folder.mkdir()
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        with (folder / "queries.jsonl").open("w", encoding="utf-8") as out:
            for row in rows:
                if row.get("lang") in {"en", "code"}:
                    workspace = os.path.relpath(file.parent / row["workspace"], folder)
                    out.write(json.dumps({**row, "workspace": workspace, "dataset": name}) + "\n")


def measured(data: Path, model: Path, state: Path, variants: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the metrics of each variant by set."""
    for name in variants:
        search, service = VARIANTS[name]
        local = {"provider": "local", "local": {"modelPath": str(model)}}
        settings = {"agents": {"defaults": {"memorySearch": {**local, **search}}}, "memoryd": service}
        config = state / "memoryd.json5"
        config.write_text(json.dumps(settings), "utf-8")
        command = [sys.executable, "-m", "memoryd_server", "eval", "--data", str(data), "--config", str(config)]
        command += ["--state-dir", str(state), "--keep", str(state / "indexes"), "--by", "dataset", "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        report = json.loads(done.stdout)
        if report["degradations"] or report["left_out"]:
            print(f"{name}: {report['degradations']} {report['left_out']}", file=sys.stderr)
        yield name, {key: {m: v[m] for m in METRICS if m in v} for key, v in report["by"]["dataset"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--state", type=Path, help="folder for the indexes and vectors; default: a temporary one")
    parser.add_argument(
        "--only", help="comma-separated variants or the start of their names; others keep their figures"
    )
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated sets; default: %(default)s")
    options = parser.parse_args()
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    variants = [name for name in VARIANTS if name.startswith(wanted)]
    partial = options.only or options.sets != ",".join(SETS)
    results = json.loads(RESULTS.read_text("utf-8")) if partial and RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        state = (options.state or folder / "state").resolve()
        for each in (folder / "data", state):
            each.mkdir(parents=True, exist_ok=True)
        prepare(options.data.resolve(), folder / "data", options.sets.split(","))
        for name, figures in measured(folder / "data", options.model.resolve(), state, variants):
            results[name] = {**results.get(name, {}), **figures}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
            shown = "  ".join(f"{key} {value['recall@6']:.3f} {value['hit@1']:.3f}" for key, value in figures.items())
            print(f"{name:32}{shown}", flush=True)


if __name__ == "__main__":
    main()
