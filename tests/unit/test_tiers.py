"""The order of the tests if several workers run them."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tiers import LONGEST, deal

FOLDER = Path("/tests")


@dataclass(frozen=True)
class Item:
    path: Path
    number: int


def items_of(folder, name, count):
    return [Item(folder / name, number) for number in range(count)]


SHORT = [item for number in range(20) for item in items_of(FOLDER / "unit", f"test_{number}.py", 10)]
LONG = [item for name in ("e2e/test_a.py", "e2e/test_b.py", *LONGEST) for item in items_of(FOLDER, name, 4)]


def shares(items, workers):
    """Divide the list as xdist does."""
    while workers:
        size = len(items) // workers
        yield items[:size]
        items, workers = items[size:], workers - 1


@pytest.mark.parametrize("workers", [2, 3, 4, 7])
def test_each_worker_begins_with_an_equal_number_of_long_files(workers):
    parts = list(shares(deal([*SHORT, *LONG], FOLDER, workers), workers))
    assert [str(part[0].path.relative_to(FOLDER)) for part in parts] == list(LONGEST[:workers])
    counts = [sum(item in LONG for item in part) for part in parts]
    assert max(counts) - min(counts) <= 4
    for part in parts:
        assert [item in LONG for item in part] == sorted([item in LONG for item in part], reverse=True)


@pytest.mark.parametrize("items", [[*LONG, *SHORT], LONG, SHORT, LONG[:3], []], ids=len)
def test_every_test_is_dealt_once_and_the_tests_of_a_file_stay_in_order(items):
    dealt = deal(items, FOLDER, 3)
    assert sorted(map(hash, dealt)) == sorted(map(hash, items))
    for path in {item.path for item in items}:
        assert [item.number for item in dealt if item.path == path] == [i.number for i in items if i.path == path]


def test_the_longest_files_exist():
    folder = Path(__file__).parents[1]
    assert [name for name in LONGEST if not (folder / name).is_file()] == []
