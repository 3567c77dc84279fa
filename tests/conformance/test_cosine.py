"""Vector similarities are those of OpenClaw."""

import json
from pathlib import Path

import numpy as np
import pytest

from memoryd_server.sqlite.exact import cosines
from memoryd_server.vectors import unit

CASES = json.loads((Path(__file__).parent / "data" / "cosine.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['a']}-{case['b']}")
def test_the_cosine_is_that_of_the_reference(case):
    vectors = np.array([case["a"]], np.float32)
    assert cosines(vectors, unit(case["b"]).astype(np.float64)).tolist() == [case["s"]]
