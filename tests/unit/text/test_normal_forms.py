"""The normal forms equal Unicode's, and marks in the wrong order cost no more than marks in the right order."""

import re
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import memoryd_server
from memoryd_server.text.stemming import normalized
from properties import examples

FORMS = ("NFC", "NFD", "NFKC")
# Marks of several classes, marks that are taken apart, letters that are marks by compatibility; letters that take them.
MARKS = "\u0301\u0316\u0338\u0344\u0345\u0f71\u0f73\u0f75\u0f81\u3099\u309a\uff9e\uff9f\u0bd7\u05b0\u064b\u0651"
LETTERS = "aé\u1ed9が\uff76Ω\uac00\u1100\u1161\u11a8क\ufdfa\u3316·—"
PILES = st.tuples(st.sampled_from(LETTERS), st.text(st.sampled_from(MARKS), min_size=20, max_size=80)).map("".join)
TEXTS = st.lists(PILES | st.text(max_size=40), max_size=4).map("".join)

SIZE = 60_000
# In the wrong order they take hundreds of times as long where each is moved past its neighbours.
MOST_TIMES_IN_ORDER = 30
LEAST_SECONDS = 0.005


@settings(max_examples=examples(300), deadline=None)
@example("a" + "\u0301\u0316" * 100)
@example("\u0f73" * 100 + "\uff9e\u0301" * 100)
@given(TEXTS)
def test_the_normal_forms_are_those_of_unicode(text):
    assert [normalized(form, text) for form in FORMS] == [unicodedata.normalize(form, text) for form in FORMS]


def seconds(form, text):
    found = []
    for _ in range(3):
        began = time.process_time()
        normalized(form, text)
        found.append(time.process_time() - began)
    return min(found)


@pytest.mark.slow
@pytest.mark.attacks
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0f73", "\uff9e\u0301"])
def test_marks_in_the_wrong_order_take_no_longer(form, marks):
    in_order = max(seconds(form, "a" + "\u0301" * SIZE), LEAST_SECONDS)
    assert seconds(form, "a" + marks * (SIZE // len(marks))) < MOST_TIMES_IN_ORDER * in_order


def test_nothing_else_calls_unicode_s_own_on_texts():
    """`sources/secrets.py` calls it on single characters."""
    sources = Path(memoryd_server.__file__).parent.rglob("*.py")
    on_texts = re.compile(r"\bnormalize\((?!\"NFKC\", chr\()")
    calls = {file.name for file in sources if on_texts.search(file.read_text("utf-8"))}
    assert calls == {"stemming.py"}
