from pathlib import Path

import pytest

from memoryd_server.evaluation.scoring import GoldAnswer, GoldenQuery, LineSpan, ShownHit, judge, make_report

HERE = ShownHit(LineSpan("a.md", 1, 1), "the whole text of it")
ELSEWHERE = ShownHit(LineSpan("b.md", 1, 1), "")


def outcome(hits, *, dataset="locker", kind="fact", lang="en", answerable=True):
    gold = (GoldAnswer(LineSpan("a.md", 1, 1), "the whole text of it"),) if answerable else ()
    return judge(GoldenQuery("1", Path("/w"), "?", gold, kind, lang, dataset, None), hits)


def test_every_question_counts_the_same_in_a_mean():
    report = make_report([outcome([HERE]), outcome([ELSEWHERE, HERE]), outcome([])], [])
    assert report.as_dict() == {
        "overall": {
            "queries": 3,
            "recall@6": 0.6667,
            "hit@1": 0.3333,
            "mrr@10": 0.5,
            "ndcg@10": 0.5436,
            "shown@6": 0.6667,
        },
        "by": {},
    }


def test_groups_are_those_of_one_label_or_of_several_together():
    outcomes = [outcome([HERE], lang="zh"), outcome([], lang="en"), outcome([HERE], dataset="attic")]
    report = make_report(outcomes, ["lang", "dataset/lang"])
    recalls = {by: {name: each.scores.recall for name, each in rows.items()} for by, rows in report.by.items()}
    assert recalls == {
        "lang": {"en": 0.5, "zh": 1},
        "dataset/lang": {"attic/en": 1, "locker/en": 0, "locker/zh": 1},
    }
    assert list(report.by["dataset/lang"]) == ["attic/en", "locker/en", "locker/zh"]


def test_unanswered_queries_are_listed_apart_from_the_means():
    outcomes = [outcome([HERE]), outcome([], answerable=False), outcome([HERE], answerable=False)]
    overall = make_report(outcomes, []).overall
    assert (overall.queries, overall.scores.recall, overall.unanswerable, overall.silent) == (1, 1, 2, 0.5)
    assert overall.as_dict()["answered_with_nothing"] == 0.5


def test_a_group_without_an_answerable_question_has_no_recall():
    assert make_report([outcome([], answerable=False)], []).overall.as_dict() == {
        "queries": 0,
        "unanswerable": 1,
        "answered_with_nothing": 1,
    }


def test_an_unknown_label_is_named():
    with pytest.raises(ValueError, match="unknown labels: size; the labels are dataset, kind, lang"):
        make_report([outcome([HERE])], ["dataset/size"])
