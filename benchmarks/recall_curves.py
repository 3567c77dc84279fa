"""Measure the recall before a turn: `python benchmarks/recall_curves.py --data ../shared/eval/data --model MODEL.gguf`.

Requests a block of 1,500 tokens from real daemons for each question of LoCoMo and of its notes, for the questions about
the other memories of the same set, and for the turns of tests/golden/small_talk.jsonl and, as a control, of
tests/golden/small_talk_control.jsonl and tests/golden/small_talk_unseen.jsonl. Each text is recalled twice: with a
minimum confidence of 0, which returns any result ("confidence alone"), and with the least one above 0, which requires
evidence ("recall"). The curves over the minimum confidence are computed from these recalls, because it only decides
whether a block is returned. "shown" is the share of the gold spans whose text is in the block, as in shown@6 of
docs/search-quality.md, and "silent" the share of the turns without a block.

Questions are also recalled at the end and at the start of a log of 1 MB. `--state` keeps the indexes and vectors for
the next run. Prints a summary and writes benchmarks/results/recall_curves.json. Without a model, only keyword search
is measured.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon import DaemonProcess
from keyword_path import sync

from memoryd import messages
from memoryd.client import MemorydClient
from memoryd_server.evaluation import GoldenQuery, LineSpan, ShownHit, read_golden_set
from memoryd_server.evaluation.scoring import shown_share
from memoryd_server.settings.service import RecallSettings

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results" / "recall_curves.json"
GOLDEN = REPOSITORY / "tests" / "golden"
SETS = ("locomo", "locomo-notes")
BOUNDS = (0.0, 0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DEFAULTS = {
    "keyword": RecallSettings().min_keyword_confidence,
    "hybrid": RecallSettings().min_confidence,
}
TOKENS = 1_500
ANY, EVIDENCE = 0.0, 1e-9
UNANSWERABLE = "adversarial"
OWN, OTHERS, TALK, CONTROL, UNSEEN = GROUPS = "own", "others", "small talk", "control", "unseen"
TURNS = {TALK: "small_talk.jsonl", CONTROL: "small_talk_control.jsonl", UNSEEN: "small_talk_unseen.jsonl"}
LOG_BYTES = 2**20
LOG_QUESTIONS = 50
SECONDS = 60
# Long enough that hybrid search answers on a busy machine. The default is 150 ms.
EMBEDDING_MS = 30_000


@dataclass(frozen=True, slots=True)
class Turn:
    """A text to recall for. `gold` is empty if nothing should be returned."""

    group: str
    kind: str
    query: GoldenQuery | None
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """A recall: whether the block was empty, the share of the gold in it, the confidence and the block's size."""

    turn: Turn
    empty: bool
    shown: float
    confidence: float | None
    items: int
    tokens: int
    seconds: float

    def is_silent(self, bound: float) -> bool:
        """Return whether the block is empty with this minimum confidence."""
        return self.empty or (self.confidence is not None and self.confidence < bound)


def settings(model: Path | None) -> str:
    search = {"provider": "none"} if model is None else {"provider": "local", "local": {"modelPath": str(model)}}
    recall = {"embeddingTimeoutMs": EMBEDDING_MS}
    return json.dumps({"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"recall": recall}})


@contextmanager
def memory(workspace: Path, state: Path, model: Path | None) -> Iterator[MemorydClient]:
    """Yield a client of a daemon whose index of the workspace is complete."""
    state.mkdir(parents=True, exist_ok=True)
    (state / "memoryd.json5").write_text(settings(model), "utf-8")
    daemon = DaemonProcess(workspace, state)
    client = daemon.start()
    try:
        # The first call may attach to the run of the start.
        sync(client)
        sync(client)
        yield client
    finally:
        client.close()
        daemon.stop()


def small_talk() -> list[Turn]:
    return [
        Turn(group, row["kind"], None, row["text"])
        for group, name in TURNS.items()
        for row in map(json.loads, (GOLDEN / name).read_text("utf-8").splitlines())
    ]


def questions_of(queries: Sequence[GoldenQuery], workspace: Path) -> list[Turn]:
    """Return the set's questions as turns of this memory. Adversarial ones, which have no answer, are left out."""
    return [
        Turn(OWN if query.workspace == workspace else OTHERS, query.kind, query, query.text)
        for query in queries
        if query.kind != UNANSWERABLE
    ]


def request(turn: Turn, text: str, min_confidence: float | None) -> messages.MemoryRecallRequest:
    made = messages.MemoryRecallRequest(text=text, max_tokens=TOKENS)
    if min_confidence is not None:
        made.min_confidence = min_confidence
    if turn.query is not None and turn.query.asked_at is not None:
        made.now.FromDatetime(turn.query.asked_at)
    return made


def recall(client: MemorydClient, mode: str, turn: Turn, text: str, min_confidence: float | None) -> Outcome:
    made = request(turn, text, min_confidence)
    began = time.perf_counter()
    answer = client.recall(made, timeout=SECONDS)
    seconds = time.perf_counter() - began
    wanted = {messages.SEARCH_MODE_UNSPECIFIED, messages.SearchMode.Value(f"SEARCH_MODE_{mode.upper()}")}
    if answer.info.degradations or answer.info.served_mode not in wanted:
        raise RuntimeError(f"{turn.text[:80]!r} was not answered by {mode} search: {answer.info}")
    if answer.tokens_used > TOKENS:
        raise RuntimeError(f"{turn.text[:80]!r} has a block of {answer.tokens_used} tokens")
    hits = [ShownHit(LineSpan(item.path, item.start_line, item.end_line), item.text) for item in answer.items]
    shown = shown_share(turn.query.gold, hits) if turn.group == OWN else 0.0
    confidence = answer.info.confidence if answer.info.HasField("confidence") else None
    return Outcome(turn, not answer.block, shown, confidence, len(hits), answer.tokens_used, seconds)


def mean(values: Sequence[float]) -> float:
    return round(statistics.fmean(values), 3)


def point(outcomes: Mapping[str, Sequence[Outcome]], bound: float) -> dict[str, float]:
    """Return the shares of each group with this minimum confidence."""
    return {
        "min_confidence": bound,
        "shown": mean([0.0 if each.is_silent(bound) else each.shown for each in outcomes[OWN]]),
        "silent on own questions": mean([each.is_silent(bound) for each in outcomes[OWN]]),
        "silent on others' questions": mean([each.is_silent(bound) for each in outcomes[OTHERS]]),
        "silent on small talk": mean([each.is_silent(bound) for each in outcomes[TALK]]),
        "silent on control": mean([each.is_silent(bound) for each in outcomes[CONTROL]]),
        "silent on unseen": mean([each.is_silent(bound) for each in outcomes[UNSEEN]]),
    }


def by_kind(outcomes: Sequence[Outcome], bound: float) -> dict[str, float]:
    kinds = sorted({each.turn.kind for each in outcomes})
    return {kind: mean([each.is_silent(bound) for each in outcomes if each.turn.kind == kind]) for kind in kinds}


def answered(outcomes: Sequence[Outcome], bound: float) -> dict[str, int]:
    """Return the turns of small talk with a block, with the number of memories that returned one."""
    counts: dict[str, int] = {}
    for each in outcomes:
        if not each.is_silent(bound):
            counts[each.turn.text[:80]] = counts.get(each.turn.text[:80], 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def report(outcomes: Sequence[Outcome], of_any: Sequence[Outcome], default: float) -> dict[str, Any]:
    groups = {group: [each for each in outcomes if each.turn.group == group] for group in GROUPS}
    all_results = {group: [each for each in of_any if each.turn.group == group] for group in GROUPS}
    blocks = [each for each in groups[OWN] if not each.is_silent(default)]
    return {
        "recalls": {group: len(each) for group, each in groups.items()},
        "recall": [point(groups, bound) for bound in BOUNDS],
        "confidence alone": [point(all_results, bound) for bound in BOUNDS],
        "default": {
            **point(groups, default),
            "silent by kind of small talk": by_kind(groups[TALK], default),
            "small talk with a block": answered(groups[TALK], default),
            "control with a block": answered(groups[CONTROL], default),
            "unseen with a block": answered(groups[UNSEEN], default),
            "median items": statistics.median(each.items for each in blocks),
            "median tokens": statistics.median(each.tokens for each in blocks),
        },
    }


def log_text() -> str:
    """Return a log of 1 MB with many words and numbers; always the same."""
    draw = random.Random(23)
    words = (
        "worker request job cache queue retry timeout session upload index shard user page token batch socket".split()
    )
    states = "started finished failed resumed skipped delayed accepted closed expired reloaded".split()
    lines, size = [], 0
    while size < LOG_BYTES:
        second = len(lines)
        line = (
            f"2026-02-03T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.{draw.randrange(1000):03}Z "
            f"{draw.choice(('INFO', 'WARN', 'ERROR', 'DEBUG'))} [{draw.choice(words)}-{draw.randrange(40)}] "
            f"{draw.choice(words)} {draw.randrange(10**6)} {draw.choice(states)} after {draw.randrange(9000)} ms "
            f"id={draw.getrandbits(64):016x} path=/v1/{draw.choice(words)}/{draw.randrange(10**4)}"
        )
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)


PLACES: Mapping[str, Callable[[str, str], str]] = {
    "question alone": lambda question, _: question,
    "question after the log": lambda question, log: f"{log}\n\n{question}",
    "question before the log": lambda question, log: f"{question}\n\n{log}",
    "log alone": lambda _, log: log,
}


def with_log(client: MemorydClient, mode: str, turns: Sequence[Turn], log: str) -> dict[str, list[Outcome]]:
    """Return the recalls with the default settings of each question alone and with the log."""
    return {
        name: [recall(client, mode, turn, put(turn.text, log), None) for turn in turns] for name, put in PLACES.items()
    }


def log_report(outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "recalls": len(each),
            "shown": mean([outcome.shown for outcome in each]),
            "silent": mean([outcome.empty for outcome in each]),
            "p50_ms": round(1e3 * statistics.median(outcome.seconds for outcome in each), 1),
            "p95_ms": round(1e3 * statistics.quantiles([outcome.seconds for outcome in each], n=20)[-1], 1),
        }
        for name, each in outcomes.items()
    }


def measured(mode: str, data: Path, state: Path, model: Path | None) -> dict[str, Any]:
    """Return the results of one mode by set."""
    results: dict[str, Any] = {}
    talk, log = small_talk(), log_text()
    for name in SETS:
        queries = read_golden_set(data / name)
        recalls: dict[float, list[Outcome]] = {ANY: [], EVIDENCE: []}
        logs: dict[str, list[Outcome]] = {place: [] for place in PLACES}
        for workspace in dict.fromkeys(query.workspace for query in queries):
            turns = [*questions_of(queries, workspace), *talk]
            own = [turn for turn in turns if turn.group == OWN]
            with memory(workspace, state / f"{mode}-{name}-{workspace.name}", model) as client:
                for bound, outcomes in recalls.items():
                    outcomes += [recall(client, mode, turn, turn.text, bound) for turn in turns]
                for place, found in with_log(client, mode, own[:: len(own) // LOG_QUESTIONS + 1], log).items():
                    logs[place] += found
        results[name] = {**report(recalls[EVIDENCE], recalls[ANY], DEFAULTS[mode]), "log of 1 MB": log_report(logs)}
        print_summary(mode, name, results[name])
    return results


def print_summary(mode: str, name: str, result: Mapping[str, Any]) -> None:
    print(f"{mode} search, {name}")
    for title in ("confidence alone", "recall"):
        print(f"  {title}: minimum confidence, shown, silent on own and others' questions, small talk, control")
        for each in result[title]:
            print("    " + "  ".join(f"{value:.3f}" for value in each.values()))
    print(
        json.dumps({"default": result["default"], "log of 1 MB": result["log of 1 MB"]}, indent=1, ensure_ascii=False)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets locomo and locomo-notes")
    parser.add_argument("--model", type=Path, help="all-MiniLM-L6-v2 as a GGUF file, for hybrid search")
    parser.add_argument("--state", type=Path, help="folder for the indexes and vectors; default: a temporary one")
    parser.add_argument("--modes", default="keyword,hybrid", help="the others keep their results; default: %(default)s")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    results["max_tokens"] = TOKENS
    models = {"keyword": None, "hybrid": options.model and options.model.resolve()}
    with tempfile.TemporaryDirectory() as directory:
        state = (options.state or Path(directory)).resolve()
        for mode in options.modes.split(","):
            if mode == "hybrid" and options.model is None:
                continue
            results[mode] = measured(mode, options.data, state, models[mode])
            RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
