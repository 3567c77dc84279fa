"""The results of a comparison as JSON: one object for each tool and mode, and one line for each question."""

import json
import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import psutil
from comparison import Answer, PeerRun
from measure import percentile

METRICS = ("recall", "shown")


def machine() -> dict[str, Any]:
    """Return what the figures depend on: the processors, the memory and what else the machine did at the start."""
    return {
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def result(run: PeerRun) -> dict[str, Any]:
    """Return the measurements of a tool in one mode. What was not measured is left out; `failure` has the reason."""
    report: dict[str, Any] = {"tool": run.peer.name, "mode": run.setup.mode}
    if run.failure is not None:
        report["failure"] = run.failure
    if run.index is not None:
        report |= {
            "version": run.peer.version,
            "interface": run.peer.interface,
            "remarks": list(run.peer.remarks),
            "index": {
                "seconds": round(run.index.seconds, 2),
                "cpu_seconds": round(run.index.cpu_seconds, 2),
                "embedding_cpu_seconds": round(run.index.embedding_cpu_seconds, 2),
                "peak_rss_mib": round(run.index.peak_rss_mib, 1),
            },
        }
    if run.answers:
        report |= {"search": _search(run), **scores(run.answers)}
    if run.cold is not None:
        report["cold"] = {
            "seconds": round(run.cold.seconds, 3),
            "cpu_seconds": round(run.cold.cpu_seconds, 3),
            "embedding_cpu_seconds": round(run.cold.embedding_cpu_seconds, 3),
        }
    if run.cold_failure is not None:
        report["cold_failure"] = run.cold_failure
    if run.undated and run.failure is None:
        report["names_without_dates"] = scores(run.undated)
    return report


def scores(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    """Return each metric for each set, as the mean of the sets, and as the mean of all questions."""
    by_set = defaultdict(list)
    for answer in answers:
        by_set[answer.question.dataset].append(answer.judgement)
    report = {}
    for metric in METRICS:
        sets = {name: fmean(getattr(each, metric) for each in by_set[name]) for name in sorted(by_set)}
        means = {
            "questions": fmean(getattr(answer.judgement, metric) for answer in answers),
            "sets": fmean(sets.values()),
        }
        report[f"{metric}_at_6"] = {name: round(value, 4) for name, value in {**means, **sets}.items()}
    return report


def question_lines(runs: Sequence[PeerRun]) -> Iterator[str]:
    """Yield a line of JSON for each question of each run."""
    for run in runs:
        for answer in run.answers:
            row = {
                "tool": run.peer.name,
                "mode": run.setup.mode,
                "question": answer.question.key,
                "ms": round(answer.milliseconds, 2),
                "recall": round(answer.judgement.recall, 4),
                "shown": round(answer.judgement.shown, 4),
                "rank": answer.judgement.rank,
                "chars": answer.chars,
            }
            yield json.dumps(row, ensure_ascii=False) + "\n"


def _search(run: PeerRun) -> dict[str, Any]:
    times, count = [answer.milliseconds for answer in run.answers], len(run.answers)
    search: dict[str, Any] = {
        "first_ms": round(run.first_milliseconds, 1),
        "p50_ms": round(median(times), 2),
        "p95_ms": round(percentile(times, 0.95), 2),
        "cpu_ms": round(run.cpu_seconds / count * 1_000, 2),
        "embedding_cpu_ms": round(run.embedding_cpu_seconds / count * 1_000, 2),
        "rss_mib": round(run.rss_mib, 1),
        "text_chars": round(fmean(answer.chars for answer in run.answers)),
        "failed": len(run.errors),
    }
    if run.errors:
        search["first_error"] = run.errors[0]
    return search


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
