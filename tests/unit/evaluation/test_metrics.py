import importlib.util
import math
import random
from pathlib import Path

import pytest

from memoryd_server.evaluation.scoring import (
    GoldAnswer,
    LineSpan,
    ShownHit,
    ndcg,
    recall,
    reciprocal_rank,
    score,
    shown_share,
)

REFERENCE = Path(__file__).parents[4] / "shared" / "eval" / "score.py"
SECOND = 1 / math.log2(3)
THIRD = 1 / math.log2(4)


def gold(start, end, text="", path="a.md"):
    return GoldAnswer(LineSpan(path, start, end), text)


def hit(start, end, snippet="", path="a.md"):
    return ShownHit(LineSpan(path, start, end), snippet)


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        ((3, 5), (5, 9), True),
        ((3, 5), (6, 9), False),
        ((3, 5), (1, 3), True),
        ((3, 5), (1, 2), False),
        ((3, 5), (4, 4), True),
        ((4, 4), (1, 9), True),
    ],
)
def test_spans_meet_when_they_share_a_line(one, other, meets):
    assert LineSpan("a.md", *one).overlaps(LineSpan("a.md", *other)) is meets


def test_the_same_lines_of_another_file_do_not_meet():
    assert not LineSpan("a.md", 1, 9).overlaps(LineSpan("b.md", 1, 9))


@pytest.mark.parametrize(
    ("finds", "wanted", "expected"),
    [
        ([], 1, 0),
        ([set(), set()], 2, 0),
        ([{0}], 2, 0.5),
        ([{0}, {0}], 2, 0.5),
        ([{0, 1}], 2, 1),
        ([{0}, set(), {2}], 3, 2 / 3),
    ],
)
def test_recall_is_the_share_of_spans_found(finds, wanted, expected):
    assert recall(finds, wanted) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("finds", "expected"), [([], 0), ([set()], 0), ([{0}], 1), ([set(), {1}, {0}], 0.5), ([set(), set(), {0}], 1 / 3)]
)
def test_the_reciprocal_rank_is_that_of_the_first_find(finds, expected):
    assert reciprocal_rank(finds) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("finds", "wanted", "expected"),
    [
        ([], 1, 0),
        ([{0}], 1, 1),
        ([set(), {0}], 1, SECOND),
        # Found again is not found anew.
        ([{0}, {0}], 1, 1),
        # One of two found, in the best place.
        ([{0}], 2, 1 / (1 + SECOND)),
        ([{0}, set(), {1}], 2, (1 + THIRD) / (1 + SECOND)),
        # One result that finds both is all that could be done.
        ([{0, 1}], 2, 1),
    ],
)
def test_ndcg_counts_each_span_once_and_earlier_for_more(finds, wanted, expected):
    assert ndcg(finds, wanted) == pytest.approx(expected)


def test_ndcg_of_more_gold_than_ranks_is_measured_by_the_ranks_there_are():
    assert ndcg([{number} for number in range(10)], 30) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "snippet", "expected"),
    [
        ("The ferry was late.", "… the FERRY, was late", 1),
        ("The ferry was late.", "the ferry was", 1),
        ("The ferry was late.", "was late", 0),
        ("码头搬到了新大楼的三层", "码头搬到了新大楼的三层。", 1),
        ("short", "a short one", 0),
        ("short", "Short!", 1),
        ("---", "---", 0),
    ],
)
def test_a_span_is_shown_when_half_of_it_can_be_read(text, snippet, expected):
    assert shown_share([gold(1, 1, text)], [hit(1, 3, snippet)]) == expected


def test_text_outside_the_gold_span_does_not_count():
    text = "The ferry was late."
    assert shown_share([gold(1, 1, text)], [hit(2, 3, text)]) == 0
    assert shown_share([gold(1, 1, text)], [hit(1, 1, text, path="b.md")]) == 0


def test_the_snippets_of_a_file_count_together():
    text = "abcdefghijklmnopqrstuvwxyz0123456789"
    assert shown_share([gold(1, 2, text)], [hit(1, 1, text[:18]), hit(2, 2, text[18:])]) == 1


def test_a_document_is_shown_by_any_hit_in_it():
    assert shown_share([gold(1, 42, "long " * 100)], [hit(40, 44, "other")]) == 1
    assert shown_share([gold(1, 41, "long " * 100)], [hit(40, 44, "other")]) == 0


def test_of_a_long_passage_its_beginning_counts():
    begin, rest = "".join(f"b{n:03}" for n in range(175)), "".join(f"r{n:03}" for n in range(175))
    assert shown_share([gold(1, 1, begin + rest)], [hit(1, 1, begin)]) == 1
    assert shown_share([gold(1, 1, begin + rest)], [hit(1, 1, rest)]) == 0


def test_only_six_results_are_seen_and_ten_are_ranked():
    others = [hit(9, 9, path="other.md")]
    wanted = [gold(1, 1, "The ferry was late.")]
    found = hit(1, 1, "The ferry was late.")
    sixth, seventh, eleventh = (score(wanted, others * before + [found]) for before in (5, 6, 10))
    assert (sixth.recall, sixth.shown, sixth.hit, sixth.mrr) == (1, 1, 0, pytest.approx(1 / 6))
    assert (seventh.recall, seventh.shown, seventh.mrr) == (0, 0, pytest.approx(1 / 7))
    assert (eleventh.recall, eleventh.mrr, eleventh.ndcg) == (0, 0, 0)


def test_an_empty_answer_scores_nothing():
    scores = score([gold(1, 1, "text")], [])
    assert (scores.recall, scores.hit, scores.mrr, scores.ndcg, scores.shown) == (0, 0, 0, 0, 0)


def reference():
    if not REFERENCE.is_file():
        pytest.skip(f"the reference scorer is not at {REFERENCE}")
    spec = importlib.util.spec_from_file_location("reference_score", REFERENCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_figures_are_those_of_the_reference_scorer(tmp_path):
    judge = reference()
    chance = random.Random(7)
    words = ["harbour", "Fähre", "船坞", "berth-14", "tide,", "ท่าเรือ", "नाव", "42", "กก"]
    files = {name: [" ".join(chance.choices(words, k=chance.randrange(12))) for _ in range(60)] for name in "abc"}
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines), "utf-8")

    def span(longest):
        start = chance.randrange(1, 60)
        return chance.choice("abc"), start, min(60, start + chance.randrange(longest))

    def text(name, start, end):
        return "\n".join(files[name][start - 1 : end])

    for _ in range(500):
        wanted = [span(chance.choice([1, 4, 60])) for _ in range(chance.randrange(1, 5))]
        found = [span(20) for _ in range(chance.randrange(13))]
        snippets = [text(*each)[: chance.choice([40, 700])] for each in found]
        results = [
            {"path": name, "start_line": start, "end_line": end, "snippet": snippet}
            for (name, start, end), snippet in zip(found, snippets, strict=True)
        ]
        theirs = judge.score_query({"gold": wanted}, results, str(tmp_path))
        ours = score(
            [GoldAnswer(LineSpan(*each), text(*each)) for each in wanted],
            [ShownHit(LineSpan(*each), snippet) for each, snippet in zip(found, snippets, strict=True)],
        )
        names = {"recall": "recall@6", "hit": "hit@1", "mrr": "mrr@10", "ndcg": "ndcg@10", "shown": "shown@6"}
        assert {name: getattr(ours, name) for name in names} == pytest.approx(
            {name: theirs[other] for name, other in names.items()}
        )
