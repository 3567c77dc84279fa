"""Write the figures of the last profile into docs/performance.md: `python benchmarks/profile_page.py [--check]`.

Each place has two markers, `<!-- profile: NAME -->` and `<!-- /profile -->`; the lines between them come from
benchmarks/results/profile.json, which `make profile` writes. `--check` changes nothing and fails if the page differs
from the results.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peers.page import number, render_blocks, table
from profile_stages import BY_NAME, LOADS, MODES, OPERATIONS, STAGES, TARGETS, Operation

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results" / "profile.json"
PAGE = REPOSITORY / "docs" / "performance.md"
BLOCK = re.compile(r"(<!-- profile: (\w+) -->\n).*?(<!-- /profile -->)", re.DOTALL)
NONE = "–"  # noqa: RUF001 -- an en dash
TITLES = {
    "p50_ms": "median, ms",
    "p99_ms": "99th percentile, ms",
    "cpu_ms": "CPU time, ms",
    "cpu_seconds": "CPU time, s",
    "peak_rss_mib": "peak memory, MiB",
    "searches_per_second": "searches per second",
}

Results = Mapping[str, Any]


def render(text: str, results: Results) -> str:
    """Return the text of a page with the lines of all its blocks; see `render_blocks`."""
    return render_blocks(text, BLOCK, BLOCKS, results)


def conditions(results: Results) -> str:
    """Return a list of the conditions under which the figures were measured."""
    lines = [
        f"Machine: {results['machine']}, {results['processors']} cores, Python {results['python']}.",
        f"Vectors: {results['dimensions']} dimensions.",
        *([f"{results['note'].rstrip('.')}."] if results["note"] else []),
    ]
    return "\n".join(f"- {line}" for line in lines)


def targets(results: Results) -> str:
    """Return a table of the targets."""
    titles = {operation.name: operation.title for operation in OPERATIONS} | {
        part: f"64 callers, 15,000 chunks, {readers} reader processes" for part, readers in LOADS.items()
    }
    rows = []
    for run, bounds in TARGETS.items():
        part, _, mode = run.partition("/")
        for key, bound in bounds.items():
            is_met = results["met"][run][key]
            measured = number(results["runs"][part][mode][key])
            rows.append((f"{titles[part]}, {mode}", TITLES[key], number(bound), measured, "yes" if is_met else "no"))
    return table(("what", "metric", "target", "measured", "met"), rows)


def operation_table(operation: Operation) -> Callable[[Results], str]:
    """Return the renderer of the stages of one operation."""

    def rows(results: Results) -> str:
        runs = results["runs"][operation.name]
        lines = [
            _line(BY_NAME[name].title, [runs[mode]["stages"].get(name) for mode in MODES]) for name in operation.stages
        ]
        sums = [
            {key: sum(stage[key] for stage in runs[mode]["stages"].values()) for key in ("wall_ms", "cpu_ms")}
            for mode in MODES
        ]
        lines.append(_line("**sum**", sums))
        lines.append(_line("**without timers**", [runs[mode] for mode in MODES]))
        return table(("stage", *(f"{mode}, {kind}" for mode in MODES for kind in ("wall ms", "CPU ms"))), lines)

    return rows


def _line(title: str, figures: list[Mapping[str, float] | None]) -> list[str]:
    cells = [NONE if each is None else f"{each[key]:.3f}" for each in figures for key in ("wall_ms", "cpu_ms")]
    return [title, *cells]


def latencies(results: Results) -> str:
    """Return a table of the latencies that a caller measures."""
    lines = [
        (operation.title, mode, number(figures["p50_ms"]), number(figures["p99_ms"]))
        for operation in OPERATIONS
        for mode, figures in results["runs"][operation.name].items()
        if "p50_ms" in figures
    ]
    return table(("what", "mode", "median, ms", "99th percentile, ms"), lines)


def load(results: Results) -> str:
    """Return a table of the searches of 64 concurrent callers."""
    heads = (
        "reader processes",
        "mode",
        "searches per second",
        "median, ms",
        "99th percentile, ms",
        "CPU ms per search, daemon and reader processes",
        "CPU ms per search, callers",
    )
    keys = ("searches_per_second", "p50_ms", "p99_ms", "cpu_ms", "client_cpu_ms")
    runs = results["runs"]
    lines = [
        (str(readers), mode, *(number(runs[part][mode][key]) for key in keys))
        for part, readers in LOADS.items()
        for mode in MODES
    ]
    return table(heads, lines)


def first_index(results: Results) -> str:
    """Return a table of the first index as a whole."""
    heads = ("mode", "chunks", "CPU time, s", "wall time, s", "peak memory, MiB")
    keys = ("chunks", "cpu_seconds", "wall_seconds", "peak_rss_mib")
    runs = results["runs"]["first_index"]
    return table(heads, [(mode, *(number(runs[mode][key]) for key in keys)) for mode in MODES])


def stages(_: Results) -> str:
    """Return a table of what each stage includes."""
    return table(("stage", "what it includes"), [(stage.title, stage.description) for stage in STAGES])


BLOCKS: Mapping[str, Callable[[Results], str]] = {
    "conditions": conditions,
    "targets": targets,
    "latencies": latencies,
    **{operation.name: operation_table(operation) for operation in OPERATIONS},
    "load": load,
    "whole_index": first_index,
    "stages": stages,
}


def write_page(results: Results) -> None:
    """Write the figures into the page."""
    PAGE.write_text(render(PAGE.read_text("utf-8"), results), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if the page is out of date")
    check = parser.parse_args().check
    if not RESULTS.exists():
        sys.exit(f"{RESULTS.relative_to(REPOSITORY)} does not exist: run `make profile`")
    results = json.loads(RESULTS.read_text("utf-8"))
    if not check:
        write_page(results)
    elif render(text := PAGE.read_text("utf-8"), results) != text:
        sys.exit(f"{PAGE.relative_to(REPOSITORY)} is out of date: run `make profile-page`")


if __name__ == "__main__":
    main()
