"""Measure what the processes of a tool cost: time, processor time and memory of whole process trees.

Processor time includes ended processes that their parents waited for. Memory is the sum of the resident sizes, so that
pages that processes share count more than once.
"""

import contextlib
import os
import resource
import statistics
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType
from typing import Self

import psutil

SAMPLE_SECONDS = 0.1


def with_descendants(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that still run, and their descendants."""
    found: dict[int, psutil.Process] = {}
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {each.pid: each for each in (root, *root.children(recursive=True))}
    return list(found.values())


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Return the processor time of the processes, and of the children that they waited for."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def rss_mib(processes: Iterable[psutil.Process]) -> float:
    """Return the sum of the resident memory of the processes."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total / 2**20


class TreeUsage:
    """The costs of all descendants of this process while a `with` block runs, except the trees of `others`."""

    def __init__(self, others: Collection[psutil.Process] = ()) -> None:
        self.seconds = self.cpu_seconds = self.peak_rss_mib = 0.0
        self._others = others
        self._own = psutil.Process(os.getpid())
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._cpu_before = self._cpu()
        self._began = time.perf_counter()
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = self._cpu() - self._cpu_before
        self._ended.set()
        self._sampler.join()

    def _processes(self) -> list[psutil.Process]:
        others = {each.pid for each in with_descendants(self._others)}
        return [each for each in self._own.children(recursive=True) if each.pid not in others]

    def _cpu(self) -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime + cpu_seconds(self._processes())

    def _sample(self) -> None:
        while True:
            self.peak_rss_mib = max(self.peak_rss_mib, rss_mib(self._processes()))
            if self._ended.wait(SAMPLE_SECONDS):
                return


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed, interpolated; the only value if there is one."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]
