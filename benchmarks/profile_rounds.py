"""Rounds of calls to a daemon, as it is or with timers, and the mean cost of a call by stage."""

import statistics
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import grpc
import psutil
from daemon import DaemonProcess
from grpc_health.v1 import health_pb2, health_pb2_grpc
from keyword_path import percentile
from profile_stages import Operation

from memoryd.client import MemorydClient

# A stage that the operation does not list may take at most this share of a call's wall time.
MOST_OF_OTHERS = 0.05
PROGRAM = Path(__file__).with_name("profile_daemon.py")


class ProfiledDaemon:
    """A daemon and its client; with `timed`, the daemon has timers."""

    def __init__(self, folder: Path, *, timed: bool) -> None:
        state = folder / "state"
        self.workspace = folder / "workspace"
        self._socket = str(state / "profile.sock")
        program = {"program": (str(PROGRAM),)} if timed else {}
        self.daemon = DaemonProcess(self.workspace, state, PROFILE_SOCKET=self._socket, **program)
        self.client: MemorydClient = self.daemon.start()
        self._control: Connection | None = Client(self._socket, "AF_UNIX") if timed else None
        self._channel = grpc.insecure_channel(self.daemon.address)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def check(self) -> None:
        """Make the cheapest call."""
        self._health.Check(health_pb2.HealthCheckRequest())

    def ask(self, command: str) -> Any:
        """Send a command to the timers, and return their report."""
        assert self._control is not None
        self._control.send(command)
        return self._control.recv()

    def stop(self) -> None:
        self._channel.close()
        self.client.close()
        self.daemon.stop()


def cpu_ns(pid: int) -> int:
    """Return the CPU time of another process with the resolution of its clock; psutil's is 10 ms."""
    # The clock id of a process, computed as clock_getcpuclockid(3) does.
    return time.clock_gettime_ns((~pid << 3) | 2)


def children(pid: int) -> list[int]:
    """Return the processes that another process started and that still run."""
    return [process.pid for process in psutil.Process(pid).children()]


@dataclass(frozen=True)
class Call:
    """The wall time of one call in milliseconds, and of its stages in the daemon with timers."""

    wall_ms: float
    stages: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """Sequential calls, and the daemon's mean CPU time per call in milliseconds, in total and by stage."""

    calls: list[Call]
    cpu_ms: float
    stages: dict[str, float] = field(default_factory=dict)


def plain_round(daemon: ProfiledDaemon, calls: list[Callable[[], Any]]) -> Round:
    """Make calls to a daemon without timers."""
    began = cpu_ns(daemon.daemon.pid)
    found = [Call((ended - start) / 1e6) for start, ended in intervals(calls)]
    return Round(found, (cpu_ns(daemon.daemon.pid) - began) / 1e6 / len(calls))


def timed_round(daemon: ProfiledDaemon, calls: list[Callable[[], Any]]) -> Round:
    """Make calls to a daemon with timers."""
    daemon.ask("begin")
    made = intervals(calls)
    return round_of(daemon.ask("end"), made)


def intervals(calls: list[Callable[[], Any]]) -> list[tuple[int, int]]:
    """Make calls; return the times at which each began and ended (`time.perf_counter_ns`)."""
    found = []
    for call in calls:
        began = time.perf_counter_ns()
        call()
        found.append((began, time.perf_counter_ns()))
    return found


def round_of(report: dict[str, Any], made: list[tuple[int, int]], units: int = 1) -> Round:
    """Return the calls of a report of the timers, without the cost of the timers.

    `made` has the beginning and the end of each call; the timers use the same clock as this process. A call that
    consists of `units` operations, such as the files of a first index, is divided by their number.
    """
    starts = [began for began, _ in made]
    stages: list[Counter[str]] = [Counter() for _ in made]
    costs = [0.0] * len(made)
    cpu: Counter[str] = Counter()
    for stage, began_ns, wall_ns, stage_cpu_ns in report["calls"]:
        place = max(0, bisect_right(starts, began_ns) - 1)
        stages[place][stage] += wall_ns / units / 1e6
        costs[place] += report["timer_ns"] / units / 1e6
        cpu[stage] += stage_cpu_ns / units / len(made) / 1e6
    calls = [
        Call((ended - began) / units / 1e6 - cost, dict(found))
        for (began, ended), cost, found in zip(made, costs, stages, strict=True)
    ]
    return Round(calls, report["cpu_ns"] / units / len(made) / 1e6 - sum(costs) / len(made), dict(cpu))


def typical(rounds: list[Round]) -> Call:
    """Return the interquartile mean of the calls: the mean of the middle half, ordered by wall time."""
    calls = sorted((call for each in rounds for call in each.calls), key=lambda call: call.wall_ms)
    calls = calls[len(calls) // 4 : len(calls) - len(calls) // 4]
    names = {name for call in calls for name in call.stages}
    stages = {name: statistics.fmean(call.stages.get(name, 0.0) for call in calls) for name in names}
    return Call(statistics.fmean(call.wall_ms for call in calls), stages)


def mean_cpu(rounds: list[Round], stage: str = "") -> float:
    """Return the mean CPU time of a call, or of one of its stages, in milliseconds."""
    return statistics.fmean(each.stages.get(stage, 0.0) if stage else each.cpu_ms for each in rounds)


def stages_of(
    operation: Operation, mode: str, timed: list[Round], floors: dict[str, list[Round]]
) -> dict[str, dict[str, float]]:
    """Return the wall and CPU time of each stage.

    `floors` are stages that were measured without timers. The stage "waits" is the time that no other stage measured.

    Raises:
        RuntimeError: a stage was not measured, or a stage of another operation took more than `MOST_OF_OTHERS`.
    """
    call = typical(timed)
    names = operation.stages_of(mode)
    wanted = {*names} - {"waits", *floors}
    if missing := wanted - {*call.stages}:
        raise RuntimeError(
            f"no timed function of {', '.join(sorted(missing))} ran in {operation.name}/{mode}: update its functions "
            "in benchmarks/profile_stages.py"
        )
    # A smaller share is allowed, for example the search by which the daemon checks its health.
    other = {name for name in {*call.stages} - wanted if call.stages[name] > MOST_OF_OTHERS * call.wall_ms}
    if other:
        raise RuntimeError(
            f"{', '.join(sorted(other))} is no stage of {operation.name}/{mode}, but took more than "
            f"{MOST_OF_OTHERS:.0%} of a call: add it to the operation in benchmarks/profile_stages.py"
        )
    found = {name: (call.stages[name], mean_cpu(timed, name)) for name in wanted}
    found |= {name: (typical(rounds).wall_ms, mean_cpu(rounds)) for name, rounds in floors.items()}
    measured_wall, measured_cpu = (sum(times) for times in zip(*found.values(), strict=True))
    found["waits"] = call.wall_ms - measured_wall, mean_cpu(timed) - measured_cpu
    return {name: {"wall_ms": round(found[name][0], 4), "cpu_ms": round(found[name][1], 4)} for name in names}


def summary(
    operation: Operation, mode: str, rounds: list[Round], timed: list[Round], floors: dict[str, list[Round]]
) -> dict[str, Any]:
    """Return the figures of an operation in one mode, in milliseconds per call."""
    times = [call.wall_ms for each in rounds for call in each.calls]
    return {
        "wall_ms": round(typical(rounds).wall_ms, 4),
        "cpu_ms": round(mean_cpu(rounds), 4),
        "p50_ms": round(percentile(times, 0.5), 3),
        "p99_ms": round(percentile(times, 0.99), 3),
        "stages": stages_of(operation, mode, timed, floors),
    }
