"""The days of paths and the temporal decay are those of OpenClaw."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from memoryd_server.search.ranking import day_of, is_evergreen, multiplier

CASES = json.loads((Path(__file__).parent / "data" / "temporal.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES["paths"], ids=lambda case: case["path"])
def test_a_path_has_the_day_of_the_reference(case):
    day = case["date"] and datetime.fromisoformat(case["date"]).date()
    assert (day_of(case["path"]), is_evergreen(case["path"])) == (day, case["evergreen"])


@pytest.mark.parametrize("case", CASES["multiplier"], ids=lambda case: f"{case['age_days']}-{case['half_life_days']}")
def test_without_a_floor_a_score_fades_as_in_the_reference(case):
    assert multiplier(float(case["age_days"]), case["half_life_days"]) == pytest.approx(case["multiplier"], rel=1e-12)
