"""The checks that `memoryd doctor` derives from a status: every problem is reported, with its meaning and advice."""

import json
from datetime import UTC, datetime

import pytest

from memoryd import messages as m
from memoryd_server.cli.doctor_checks import (
    _EXPLAINED,
    check_agent,
    check_least_score,
    check_reranker,
    last_sync_time,
)
from memoryd_server.doctor.checks import CheckResult
from memoryd_server.model import DegradationKind
from memoryd_server.settings import load

OK, WARNING, FAILED = CheckResult.OK, CheckResult.WARNING, CheckResult.FAILED


def status(**fields):
    fields.setdefault("fulltext", m.FulltextStatus(available=True))
    fields.setdefault("index", m.IndexStatus(files=3, chunks=7, revision=2, size_bytes=4096))
    return m.StatusResponse(agent_id="main", **fields)


def bad(answer):
    return [check for check in check_agent(answer) if check.verdict is not OK]


def test_healthy_agent_passes_every_check():
    checks = list(check_agent(status()))
    assert {check.verdict for check in checks} == {OK}
    assert "3 files, 7 chunks, revision 2" in checks[0].detail
    assert "searches use keywords only" in checks[1].detail


@pytest.mark.parametrize("kind", [value for value in m.DegradationKind.values() if value])
def test_each_kind_of_degradation_is_explained(kind):
    (check,) = bad(status(degradations=[m.Degradation(kind=kind, reason="because")]))
    name = m.DegradationKind.Name(kind).removeprefix("DEGRADATION_KIND_")
    assert check.detail == f"{name}: because"
    assert (check.meaning, check.advice) == _EXPLAINED[name]


def test_the_daemons_kinds_are_all_explained():
    assert {kind.name for kind in DegradationKind} <= set(_EXPLAINED)


def test_unknown_degradation_of_a_newer_daemon_is_reported():
    unspecified = m.Degradation(kind=0, reason="something new")
    (check,) = bad(status(degradations=[unspecified]))
    assert "something new" in check.detail


@pytest.mark.parametrize(
    ("fields", "verdict", "text"),
    [
        ({"fulltext": m.FulltextStatus(error="no such table")}, FAILED, "no such table"),
        ({"index": m.IndexStatus(dirty=True, pending_files=4)}, WARNING, "4 files are not indexed yet"),
        ({"source_issues": ["/x does not exist"]}, WARNING, "/x does not exist"),
        (
            {"failed_files": [m.SyncFileFailed(path="memory/a.md", error="too large")]},
            WARNING,
            "memory/a.md: too large",
        ),
        ({"qmd": m.QmdStatus(configured=True, reason="not on the PATH")}, WARNING, "not on the PATH"),
        (
            {"watchers": [m.WatcherStatus(root=".", mode=m.WATCHER_MODE_DEAD, reason="a thread died")]},
            WARNING,
            "a thread died",
        ),
        (
            {"embedding": m.EmbeddingStatus(provider="openai", model="m", probe=m.ProbeResult(error="no route"))},
            FAILED,
            "openai m does not answer: no route",
        ),
        (
            {
                "embedding": m.EmbeddingStatus(provider="openai", model="m", probe=m.ProbeResult(ok=True)),
                "batch": m.BatchStatus(enabled=True, last_error="expired"),
            },
            WARNING,
            "batch jobs: expired",
        ),
    ],
)
def test_problem_is_reported(fields, verdict, text):
    (check,) = bad(status(**fields))
    assert (check.verdict, text in check.detail) == (verdict, True)


def test_working_parts_are_reported_too():
    answer = status(
        embedding=m.EmbeddingStatus(provider="openai", model="m", probe=m.ProbeResult(ok=True)),
        watchers=[m.WatcherStatus(root=".", mode=m.WATCHER_MODE_POLLING, reason="polling is configured")],
        qmd=m.QmdStatus(configured=True, available=True, version="2.8"),
    )
    text = " ".join(check.detail for check in check_agent(answer))
    for words in ("openai m answers in 0 ms", ". is watched: polling, polling is configured", "qmd 2.8 answers"):
        assert words in text
    assert not bad(answer)


def test_time_of_the_last_sync_is_in_utc():
    answer = status()
    assert last_sync_time(answer) is None
    answer.index.last_sync_time.FromDatetime(datetime(2026, 1, 2, tzinfo=UTC))
    assert last_sync_time(answer) == datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "warned"),
    [
        ({}, False),
        ({"minScore": 0.35}, True),
        ({"minScore": 0.3}, False),
        ({"minScore": 0.35, "hybrid": {"vectorWeight": 0.5, "textWeight": 0.5}}, False),
    ],
)
def test_a_least_score_that_removes_exact_words_is_reported(tmp_path, query, warned):
    state = tmp_path / "state"
    state.mkdir()
    settings = {"agents": {"defaults": {"memorySearch": {"query": query}}}}
    (state / "memoryd.json5").write_text(json.dumps(settings))
    agent = load(environ={}, home=tmp_path, flags={"state_dir": str(state)}).agent("")
    checks = list(check_least_score(agent))
    assert [(check.name, check.verdict) for check in checks] == [("search of main", WARNING)] * warned
    assert all("query.minScore is 0.35, more than hybrid.textWeight (0.3)" in check.detail for check in checks)


@pytest.mark.parametrize(
    ("reason", "verdict", "text"),
    [
        ("", OK, "30 candidates and about 9000 tokens per search"),
        ("the model is being loaded", OK, "the model is being loaded"),
        ("the server is down", WARNING, "http rerank-2.5 does not answer: the server is down"),
    ],
)
def test_the_reranker_is_checked(reason, verdict, text):
    check = check_reranker(
        m.RerankerStatus(provider="http", model="rerank-2.5", reason=reason, candidates=30, tokens_per_search=9000)
    )
    assert (check.verdict, text in check.detail) == (verdict, True)
