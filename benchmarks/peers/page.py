"""Write the figures of the last comparison into the documentation: `python benchmarks/peers/page.py [--check]`.

Each place has two markers, `<!-- peers: NAME -->` and `<!-- /peers -->`; the lines between them come from
benchmarks/results/peers.json, which `python benchmarks/peers` writes. `--check` changes nothing and fails if a page
has other lines than it would have.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results" / "peers.json"
PAGES = (REPOSITORY / "docs" / "compare.md", REPOSITORY / "README.md")
BLOCK = re.compile(r"(<!-- peers: ([a-z ]+) -->\n).*?(<!-- /peers -->)", re.DOTALL)
NAMES = {
    "memoryd": "memoryd",
    "openclaw": "OpenClaw",
    "openclaw-trigram": "OpenClaw, trigrams",
    "qmd": "QMD",
    "qmd-any-word": "QMD, any word",
    "memsearch": "memsearch",
    "basic-memory": "basic-memory",
}
MODES = {"keywords": "Keywords", "vectors": "Vectors"}
# Columns, and where their figures are in a result.
COSTS = {
    "index, s": ("index", "seconds"),
    "index CPU, s": ("index", "cpu_seconds"),
    "embedding CPU, s": ("index", "embedding_cpu_seconds"),
    "index MiB": ("index", "peak_rss_mib"),
    "search p50, ms": ("search", "p50_ms"),
    "p95, ms": ("search", "p95_ms"),
    "first, ms": ("search", "first_ms"),
    "CPU, ms": ("search", "cpu_ms"),
    "MiB": ("search", "rss_mib"),
    "cold, s": ("cold", "seconds"),
}
NONE = "–"  # noqa: RUF001 -- an en dash

Row = Sequence[str]
Results = Mapping[str, Any]


def render(text: str, results: Results) -> str:
    """Return the text of a page with the lines of all its blocks; see `render_blocks`."""
    return render_blocks(text, BLOCK, BLOCKS, results)


def render_blocks(
    text: str, pattern: re.Pattern[str], renderers: Mapping[str, Callable[[Any], str]], results: Any
) -> str:
    """Return the text of a page with the lines of all blocks; `pattern` matches a block's start, name and end.

    Raises:
        ValueError: if a block has an unknown name.
    """

    def block(match: re.Match[str]) -> str:
        start, name, end = match.groups()
        if name not in renderers:
            raise ValueError(f"unknown block {name!r}: use one of {', '.join(sorted(renderers))}")
        return start + "\n" + renderers[name](results).strip("\n") + "\n\n" + end

    return pattern.sub(block, text)


def blocks(text: str, pattern: re.Pattern[str] = BLOCK) -> list[str]:
    """Return the names of the blocks of a page."""
    return [match[2] for match in pattern.finditer(text)]


def conditions(results: Results) -> str:
    """Return a list of what the figures depend on."""
    machine = results["machine"]
    system = f"{machine['system']} {machine['architecture']}, {number(machine['memory_gib'])} GiB of memory"
    lines = [
        f"Machine: {system}, {machine['cpus']} processors ({machine['processor']}).",
        f"Date: {machine['date']}. The run took {number(results['minutes'])} minutes.",
    ]
    lines += [
        f"{MODES[mode]}: {number(corpus['notes'])} notes ({number(corpus['mib'])} MiB), "
        f"{number(corpus['questions'])} questions."
        for mode, corpus in results["modes"].items()
    ]
    return "\n".join(f"- {line}" for line in lines)


def tools(results: Results) -> str:
    """Return a table of the tools and their versions."""
    rows = {each["tool"]: (name(each), each["version"], each["interface"]) for each in measured(results)}
    return table(("tool", "version", "asked through"), rows.values())


def quality(mode: str) -> Callable[[Results], str]:
    """Return the renderer of what the tools find in one mode, best first."""

    def rows(results: Results) -> str:
        found = [each for each in in_mode(results, mode) if "recall_at_6" in each]
        found.sort(key=lambda each: -each["recall_at_6"]["questions"])
        sets = [key for key in found[0]["recall_at_6"] if key not in {"questions", "sets"}] if found else []
        heads = ("", "recall@6", "shown@6", "characters", "mean of sets", *sets)
        lines = [
            (
                name(each),
                share(each["recall_at_6"]["questions"]),
                share(each["shown_at_6"]["questions"]),
                number(each["search"]["text_chars"]),
                share(each["recall_at_6"]["sets"]),
                *(share(each["recall_at_6"][key]) for key in sets),
            )
            for each in found
        ]
        return table(heads, lines)

    return rows


def costs(mode: str) -> Callable[[Results], str]:
    """Return the renderer of what the tools cost in one mode, the fastest search first."""

    def rows(results: Results) -> str:
        found = [each for each in in_mode(results, mode) if "search" in each]
        found.sort(key=lambda each: each["search"]["p50_ms"])
        cells = {head: [figure(each, *path) for each in found] for head, path in COSTS.items()}
        shown = {head: column for head, column in cells.items() if set(column) != {NONE}}
        return table(("", *shown), zip(map(name, found), *shown.values(), strict=True))

    return rows


def dates(results: Results) -> str:
    """Return what changes if no note has a date as its name."""
    found = [each for each in measured(results) if "names_without_dates" in each]
    rows = [
        (
            name(each),
            MODES[each["mode"]].lower(),
            share(each["recall_at_6"]["questions"]),
            share(each["names_without_dates"]["recall_at_6"]["questions"]),
        )
        for each in found
    ]
    return table(("", "mode", "recall@6", "names without dates"), rows)


def remarks(results: Results) -> str:
    """Return a list of the remarks about each tool, and of what could not be measured."""
    lines: dict[str, dict[str, None]] = {}
    for each in results["results"]:
        said = lines.setdefault(name(each), {})
        said.update(dict.fromkeys(each.get("remarks", ())))
        mode = MODES[each["mode"]].lower()
        if "failure" in each:
            said[f"Not measured with {mode}: {reason(each['failure'])}"] = None
        if "cold_failure" in each:
            said[f"No cold search with {mode}: {reason(each['cold_failure'])}"] = None
        if failed := each.get("search", {}).get("failed"):
            said[f"{number(failed)} searches with {mode} failed, and count as searches that find nothing."] = None
    return "\n".join(f"- {tool}: {' '.join(said)}" for tool, said in lines.items() if said)


def first_screen(results: Results) -> str:
    """Return the table of the README: three figures of each tool with the same embedding model."""
    found = [each for each in in_mode(results, "vectors") if "search" in each]
    found.sort(key=lambda each: each["search"]["p50_ms"])
    rows = [
        (
            name(each),
            number(each["search"]["p50_ms"]),
            share(each["recall_at_6"]["questions"]),
            number(each["search"]["rss_mib"]),
        )
        for each in found
    ]
    return table(("", "search, ms", "recall@6", "memory, MiB"), rows)


BLOCKS: Mapping[str, Callable[[Results], str]] = {
    "conditions": conditions,
    "tools": tools,
    **{f"quality {mode}": quality(mode) for mode in MODES},
    **{f"costs {mode}": costs(mode) for mode in MODES},
    "dates": dates,
    "remarks": remarks,
    "first screen": first_screen,
}


def measured(results: Results) -> list[Mapping[str, Any]]:
    """Return the results of the tools that were measured."""
    return [each for each in results["results"] if "failure" not in each]


def in_mode(results: Results, mode: str) -> list[Mapping[str, Any]]:
    return [each for each in measured(results) if each["mode"] == mode]


def name(result: Mapping[str, Any]) -> str:
    return NAMES.get(result["tool"], result["tool"])


def figure(result: Mapping[str, Any], part: str, key: str) -> str:
    """Return one figure of a result, or a dash if it was not measured or is zero."""
    value = result.get(part, {}).get(key)
    return number(value) if value else NONE


def number(value: float) -> str:
    """Return a figure as the pages show it: with three significant digits, but all digits before the point."""
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def share(value: float) -> str:
    """Return a share as the pages show it."""
    return f"{value:.3f}"


def reason(failure: str) -> str:
    """Return the first line of an error as a sentence."""
    return failure.strip().splitlines()[0].rstrip(".") + "."


def table(heads: Sequence[str], rows: Iterable[Row]) -> str:
    """Return a table of Markdown, whose cells after the first are aligned right if they are numbers."""
    lines = [list(row) for row in rows]
    numeric = [all(re.fullmatch(rf"[\d.,]+|{NONE}", line[column]) for line in lines) for column in range(len(heads))]
    rule = ["---:" if is_number and lines else "---" for is_number in numeric]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if a page is out of date")
    check = parser.parse_args().check
    if not RESULTS.exists():
        sys.exit(f"{RESULTS.relative_to(REPOSITORY)} does not exist: run `make peers`")
    results = json.loads(RESULTS.read_text("utf-8"))
    for page in PAGES:
        text = page.read_text("utf-8")
        fresh = render(text, results)
        if fresh == text:
            continue
        if check:
            sys.exit(f"{page.relative_to(REPOSITORY)} is out of date: run `make peers-page`")
        page.write_text(fresh, "utf-8")
        print(f"{page.relative_to(REPOSITORY)} is written")


if __name__ == "__main__":
    main()
