"""Rows that another program wrote into a dataset are shown as entries."""

import pytest

from memoryd_server.entries.dataset import row_to_entry
from memoryd_server.entries.model import EntryCategory

ROW = {"id": "1", "text": "a", "importance": 0.5, "category": "fact", "createdAt": 7, "key": None}


@pytest.mark.parametrize("category", ["core", "", None, "FACT"])
def test_a_category_of_another_program_is_other(category):
    assert row_to_entry({**ROW, "category": category}).category is EntryCategory.OTHER


def test_a_known_category_is_kept():
    assert row_to_entry(ROW).category is EntryCategory("fact")


def test_a_row_without_text_or_importance_is_an_empty_entry():
    found = row_to_entry({**ROW, "text": None, "importance": None})
    assert (found.text, found.importance) == ("", 0.0)
