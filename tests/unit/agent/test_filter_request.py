"""The conditions on files in a request: dates, and what is refused."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.agent import FilterRequest
from memoryd_server.store import ALL_FILES, FileFilter, FrontMatterCondition


def resolved(**fields):
    violations = []
    found = FilterRequest(**fields).resolve(lambda field, words: violations.append((field, words)))
    return found, violations


def days(since, until):
    found, violations = resolved(since=since, until=until)
    assert not violations
    return found.since, found.until


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-05-09", date(2026, 5, 9), date(2026, 5, 9)),
        ("2026-05", date(2026, 5, 1), date(2026, 5, 31)),
        ("2024-02", date(2024, 2, 1), date(2024, 2, 29)),
        ("2026", date(2026, 1, 1), date(2026, 12, 31)),
        ("9999", date(9999, 1, 1), date.max),
        ("9999-12", date(9999, 12, 1), date.max),
        ("0001", date.min, date(1, 12, 31)),
        ("", None, None),
    ],
)
def test_a_month_or_a_year_means_its_first_or_its_last_day(text, first, last):
    assert days(text, text) == (first, last)


@pytest.mark.parametrize(
    "text",
    ["yesterday", "2026-13", "2026-02-30", "2026-5", "0000", "2026-00", "2026-01-00", "2026-05-01T00:00", "٢٠٢٦"],
)
@pytest.mark.parametrize("field", ["since", "until"])
def test_what_is_no_date_is_refused_with_its_text(text, field):
    _, ((name, words),) = resolved(**{field: text})
    assert name == f"filter.{field}"
    assert text in words


@given(st.dates(), st.dates())
def test_the_first_day_must_not_be_after_the_last(since, until):
    _, violations = resolved(since=since.isoformat(), until=until.isoformat())
    assert bool(violations) == (since > until)


@given(st.text())
def test_any_text_gives_a_date_or_one_violation(text):
    found, violations = resolved(since=text)
    assert len(violations) == (found.since is None and bool(text))


def test_no_condition_is_the_filter_of_all_files():
    assert resolved() == (ALL_FILES, [])


def test_values_are_compared_without_case_and_number_sign():
    found, violations = resolved(
        path_prefixes=("./notes/", "notes/", "x"), front_matter=(("tags", ("#Billing", "billing", "STRASSE")),)
    )
    assert not violations
    assert found == FileFilter(
        path_prefixes=("notes/", "x"), front_matter=(FrontMatterCondition("tags", ("billing", "strasse")),)
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"path_prefixes": ("a",) * 33}, "33 elements; at most 32"),
        ({"path_prefixes": ("a" * 4_097,)}, "more than 4,096 bytes"),
        ({"path_prefixes": ("",)}, "empty"),
        ({"front_matter": (("k", ("v",)),) * 17}, "17 conditions; at most 16"),
        ({"front_matter": (("", ("v",)),)}, "blank"),
        ({"front_matter": (("k" * 129, ("v",)),)}, "more than 128 bytes"),
        ({"front_matter": (("k", ()),)}, "0 values for 'k'; 1 to 32"),
        ({"front_matter": (("k", ("v",) * 33),)}, "33 values"),
        ({"front_matter": (("k", ("",)),)}, "empty"),
        ({"front_matter": (("k", ("v" * 257,)),)}, "more than 256 bytes"),
    ],
)
def test_too_many_or_too_long_conditions_are_refused(fields, words):
    _, ((name, found),) = resolved(**fields)
    assert name == f"filter.{next(iter(fields))}"
    assert words in found
