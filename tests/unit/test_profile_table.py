"""The profile has every stage, size and mode, its stages add up, and docs/performance.md shows its figures."""

import copy
import json
import re
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

# The scripts import each other by name. At the end of the path they do not replace other modules.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import profile_page as page
import profile_rounds as rounds
import profile_stages as stages
import profile_timer as timers
from peers.page import blocks

RUNS = [(operation, mode) for operation in stages.OPERATIONS for mode in stages.MODES]
# Stages that are measured without timers around functions.
WITHOUT_FUNCTIONS = {"call", "start", "waits"}

each_run = pytest.mark.parametrize(("operation", "mode"), RUNS, ids=lambda value: getattr(value, "name", value))


@pytest.fixture(scope="module")
def results():
    return json.loads(page.RESULTS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def text():
    return page.PAGE.read_text(encoding="utf-8")


def incomplete(results):
    """Return what is missing in the results of a profile, or does not add up."""
    found = []
    for operation, mode in RUNS:
        figures = results["runs"].get(operation.name, {}).get(mode)
        name = f"{operation.name}/{mode}"
        if figures is None:
            found.append(f"{name} is missing")
            continue
        if list(figures["stages"]) != operation.stages_of(mode):
            found.append(f"{name} has other stages")
        elif any(set(stage) != set(stages.TOLERANCES) for stage in figures["stages"].values()):
            found.append(f"{name} has a stage without a time")
        elif not stages.adds_up(figures):
            found.append(f"{name} does not add up: {stages.differences(figures)}")
    found += [
        f"{part}/{mode} is missing"
        for part in stages.LOADS
        for mode in stages.MODES
        if mode not in results["runs"].get(part, {})
    ]
    return found


def test_every_stage_was_measured_at_each_size_and_mode_and_adds_up(results):
    assert incomplete(results) == []


@each_run
def test_results_without_a_run_a_stage_or_a_time_are_incomplete(results, operation, mode):
    def without(change):
        changed = copy.deepcopy(results)
        change(changed["runs"][operation.name])
        return incomplete(changed)

    last = operation.stages[-1]
    assert without(lambda runs: runs.pop(mode)) == [f"{operation.name}/{mode} is missing"]
    assert without(lambda runs: runs[mode]["stages"].pop(last)) == [f"{operation.name}/{mode} has other stages"]
    assert without(lambda runs: runs[mode]["stages"][last].pop("cpu_ms"))
    assert without(lambda runs: runs[mode].update(cpu_ms=2 * runs[mode]["cpu_ms"]))
    assert without(lambda runs: runs[mode].update(wall_ms=2 * runs[mode]["wall_ms"]))


def test_all_sizes_are_profiled():
    assert [operation.chunks for operation in stages.SEARCHES] == [1_500, 15_000, 100_000]


def test_every_stage_is_described_and_belongs_to_an_operation():
    used = {name for operation in stages.OPERATIONS for name in operation.stages}
    assert used == {stage.name for stage in stages.STAGES}
    assert len({stage.title for stage in stages.STAGES}) == len(stages.STAGES)
    assert [stage.name for stage in stages.STAGES if not re.fullmatch(r"[A-Z`].{20,}\.", stage.description)] == []
    assert {stage.name for stage in stages.STAGES if not stage.functions} == WITHOUT_FUNCTIONS


def test_every_function_of_a_stage_exists():
    timers.require_functions()


def test_function_that_does_not_exist_is_named():
    stage = replace(stages.STAGES[2], functions=("memoryd_server.search.engine:SearchEngine.no_such_method",))
    with pytest.raises(timers.FunctionMissing, match=r"SearchEngine\.no_such_method does not exist.*profile_stages"):
        timers.require_functions([stage])


def test_every_target_was_measured(results):
    assert results["targets"] == stages.TARGETS
    assert results["met"] == stages.met(results["runs"])
    assert {run: set(found) for run, found in results["met"].items()} == {
        run: set(targets) for run, targets in stages.TARGETS.items()
    }


def test_rate_below_its_target_and_time_above_it_are_not_met():
    found = stages.met(
        {
            "load_readers": {"hybrid": {"searches_per_second": 449}},
            "search_15000": {"keyword": {"p50_ms": 2.1, "cpu_ms": 2.1}},
        }
    )
    assert found["load_readers/hybrid"] == {"searches_per_second": False}
    assert found["search_15000/keyword"] == {"p50_ms": True, "cpu_ms": False}


def test_page_has_every_block_with_the_figures_of_the_results(results, text):
    assert sorted(blocks(text, page.BLOCK)) == sorted(page.BLOCKS)
    assert page.render(text, results) == text, "docs/performance.md is out of date: run `make profile-page`"


@each_run
def test_changed_stage_changes_the_page(results, text, operation, mode):
    changed = copy.deepcopy(results)
    changed["runs"][operation.name][mode]["stages"][operation.stages[-1]]["wall_ms"] += 1
    assert page.render(text, changed) != text


def test_unknown_block_is_refused(results):
    with pytest.raises(ValueError, match="unknown block 'weather'"):
        page.render("<!-- profile: weather -->\n<!-- /profile -->", results)


def test_results_have_no_paths_of_the_machine():
    text = page.RESULTS.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users|var)/[^\s\"]*", text) == []


def report_of(operation, mode, *, without="", milliseconds=1):
    """Return a report of two calls, from 0 to 50 ms and from 50 to 100 ms, in which each stage took some time."""
    nanoseconds = milliseconds * 1e6
    names = [name for name in operation.stages_of(mode) if stages.BY_NAME[name].functions and name != without]
    calls = [(name, int(start), nanoseconds, nanoseconds / 2) for start in (1e6, 60e6) for name in names]
    return names, {"calls": calls, "cpu_ns": 40e6, "timer_ns": 0}


def stages_of_report(operation, mode, report):
    timed = rounds.round_of(report, [(0, 50_000_000), (50_000_000, 100_000_000)])
    return rounds.stages_of(operation, mode, [timed], {"call": [rounds.Round([rounds.Call(3.0)], 2.0)]})


def test_unmeasured_time_is_the_stage_of_threads_and_waits():
    names, report = report_of(stages.SEARCHES[0], "hybrid")
    found = stages_of_report(stages.SEARCHES[0], "hybrid", report)
    assert [found[name] for name in names] == [{"wall_ms": 1.0, "cpu_ms": 0.5}] * len(names)
    assert found["call"] == {"wall_ms": 3.0, "cpu_ms": 2.0}
    assert found["waits"] == {"wall_ms": 50 - 3 - len(names), "cpu_ms": 20 - 2 - len(names) / 2}


def test_cost_of_the_timers_is_subtracted():
    names, report = report_of(stages.SEARCHES[0], "keyword")
    found = rounds.round_of(report | {"timer_ns": 100_000}, [(0, 50_000_000), (50_000_000, 100_000_000)])
    assert [call.wall_ms for call in found.calls] == pytest.approx([50 - 0.1 * len(names)] * 2)
    assert found.cpu_ms == pytest.approx(20 - 0.1 * len(names))


def test_stage_without_a_called_function_is_named():
    _, report = report_of(stages.SEARCHES[0], "hybrid", without="windows")
    with pytest.raises(RuntimeError, match="no timed function of windows ran in search_1500/hybrid"):
        stages_of_report(stages.SEARCHES[0], "hybrid", report)


def test_stage_that_the_operation_does_not_have_is_named():
    _, report = report_of(stages.SEARCHES[0], "hybrid")
    report["calls"].append(("plan", 1_000_000, 15e6, 15e6))
    with pytest.raises(RuntimeError, match="plan is no stage of search_1500/hybrid"):
        stages_of_report(stages.SEARCHES[0], "hybrid", report)


def test_time_of_a_nested_call_counts_only_once():
    timer = timers.Timer()

    def spin(milliseconds):
        ends = time.perf_counter() + milliseconds / 1_000
        while time.perf_counter() < ends:
            pass

    inner = timer.timed("inner", lambda: spin(5))

    def work():
        spin(2)
        inner()
        inner()

    began = time.perf_counter_ns()
    timer.timed("outer", work)()
    whole_ns = time.perf_counter_ns() - began
    calls = timer.take()
    own = {stage: [call for call in calls if call.stage == stage] for stage in ("outer", "inner")}
    assert [len(own["outer"]), len(own["inner"])] == [1, 2]
    assert all(call.wall_ns >= 4.9e6 for call in own["inner"])
    assert 1.9e6 <= own["outer"][0].wall_ns <= whole_ns - 9.8e6
    assert sum(call.wall_ns for call in calls) <= whole_ns
    assert timer.take() == []


def test_call_on_another_thread_has_no_wall_time():
    timer = timers.Timer()
    send = timer.timed("provider", lambda: sum(range(200_000)), on_other_thread=True)

    def wait():
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()

    timer.timed("provider", wait)()
    shorter, longer = sorted(timer.take(), key=lambda call: call.wall_ns)
    assert shorter.wall_ns == 0
    assert shorter.cpu_ns > 0
    assert longer.wall_ns >= shorter.cpu_ns
