"""Measure what the second search of qmd finds: `python benchmarks/qmd_recall.py --data ../shared/eval/data/locomo`.

A real daemon with the real qmd answers a sample of a golden set, whose format docs/search-quality.md describes. An
answer for any of the words counts as empty before, and as it is after. Recall is the mean share of a question's spans
that six results find. Prints JSON and writes it to benchmarks/results/qmd_recall.json, or to `--out`.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon import DaemonProcess
from keyword_path import sync
from qmd_path import QMD, ask, settings

from memoryd.v1 import memory_pb2
from memoryd_server.evaluation import LineSpan, read_golden_set

RESULTS = Path(__file__).parent / "results" / "qmd_recall.json"
QUESTIONS = 100


@dataclass
class Outcome:
    """The share of a question's spans that were found, and whether by the second search."""

    recall: float
    second: bool
    empty: bool
    seconds: float


def outcome(client: Any, query: Any) -> Outcome:
    began = time.perf_counter()
    answer = ask(client, query.text)
    seconds = time.perf_counter() - began
    if answer.info.backend != memory_pb2.BACKEND_QMD:
        raise RuntimeError(f"the builtin engine answered: {answer.info.degradations}")
    found = [LineSpan(hit.path, hit.start_line, hit.end_line) for hit in answer.results[:6]]
    share = sum(any(hit.overlaps(gold.span) for hit in found) for gold in query.gold) / len(query.gold)
    return Outcome(share, answer.info.matched_any_word, not answer.results, seconds)


def outcomes(workspace: Path, queries: list[Any], directory: Path) -> list[Outcome]:
    directory.mkdir()
    (directory / "memoryd.json5").write_text(settings(QMD), "utf-8")
    daemon = DaemonProcess(workspace, directory)
    client = daemon.start()
    try:
        # The first call may attach to the run of the start, which does not wait for qmd.
        sync(client)
        sync(client)
        return [outcome(client, query) for query in queries]
    finally:
        client.close()
        daemon.stop()


def report(results: list[Outcome]) -> dict[str, float]:
    seconds = {second: [each.seconds for each in results if each.second is second] for second in (False, True)}
    return {
        "questions": len(results),
        "recall@6 before": round(statistics.mean(0 if each.second else each.recall for each in results), 3),
        "recall@6 after": round(statistics.mean(each.recall for each in results), 3),
        "empty before": round(statistics.mean(each.second or each.empty for each in results), 3),
        "empty after": round(statistics.mean(each.empty for each in results), 3),
        "one_search_p50_seconds": round(statistics.median(seconds[False] or [0]), 3),
        "two_searches_p50_seconds": round(statistics.median(seconds[True] or [0]), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with queries.jsonl and its workspaces")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="evenly spread; default: %(default)s")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    queries = [query for query in read_golden_set(options.data.resolve()) if query.gold]
    sample = queries[:: max(1, len(queries) // options.questions)][: options.questions]
    by_workspace: dict[Path, list[Any]] = {}
    for query in sample:
        by_workspace.setdefault(query.workspace, []).append(query)
    with tempfile.TemporaryDirectory(prefix="qmd-") as directory:
        results = [
            each
            for number, (workspace, asked) in enumerate(by_workspace.items())
            for each in outcomes(workspace, asked, Path(directory) / str(number))
        ]
    text = json.dumps({"set": options.data.resolve().name, **report(results)}, indent=2)
    options.out.write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
