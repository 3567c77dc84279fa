"""The default cut with a real model: it keeps paraphrases, and questions about other things have no answer.

No paraphrase in the set shares a word with the lines that answer it. The set was written after the model's scale had
been fixed with other questions, and no question has been taken out, so it includes some that the model cannot place.
docs/search-quality.md, "The least score", has the figures.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.text.analyzer import Analyzer
from rpc.wire import Home, empty_reason, paths, quiet, start

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)
REPOSITORY = Path(__file__).parents[2]
SAMPLE = REPOSITORY / "docs" / "sample-workspace"
GOLDEN = REPOSITORY / "tests" / "golden" / "paraphrases" / "queries.jsonl"
ROWS = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]
PARAPHRASES = [row for row in ROWS if row["gold"]]
OTHERS = [row for row in ROWS if not row["gold"]]

# Questions whose answer is among the model's first PLACED_WITHIN by cosine: what the cut can be held to.
PLACED_WITHIN = 3
LEAST_FOUND_OF_PLACED = 0.9
# Of all paraphrases; measured: .77 (known) and .78 (unknown).
LEAST_FOUND = 0.75
# Of the unrelated questions; measured: 4 of 31 (known) and 6 of 31 (unknown).
MOST_ANSWERED = 0.2

# Some hundred texts are embedded, on a machine that may be busy.
PATIENCE_SECONDS = 250

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NOTES = {
    "report": "The report's due date is 14 March.",
    "editor": "Settings of the editor: tabs of two columns, dark background.",
    "boat": "The ferry was painted blue last summer.",
    "meeting": "Our meeting with the bank is moved to Tuesday.",
    "soup": "Lentil soup needs cumin and a bay leaf.",
}

THINGS = ("roof", "garden", "choir", "bicycle", "lamp", "school", "piano", "orchard")


def local(path):
    return {"agents": {"defaults": {"memorySearch": {"provider": "local", "local": {"modelPath": str(path)}}}}}


@dataclass
class Asked:
    """The position of the answer by cosine alone and by default, from 1; None where it is not among the results."""

    query: str
    by_cosine: int | None
    by_default: int | None


@dataclass
class Measured:
    paraphrases: list[Asked]
    unrelated: dict
    """Results by question, of the questions that share no word with the workspace."""

    @property
    def placed(self):
        return [each for each in self.paraphrases if each.by_cosine and each.by_cosine <= PLACED_WITHIN]


def position(answer, gold):
    """The place of the first result that overlaps any gold span."""
    spans = ((n, r.path, r.start_line, r.end_line) for n, r in enumerate(answer.results, 1))
    found = (n for n, path, a, b in spans for p, first, last in gold if path == p and a <= last and b >= first)
    return next(found, None)


async def measured(home, model):
    daemon = await start(home, quiet(local(model)), workspace=str(SAMPLE))
    try:
        async for _ in daemon.stub.Sync(pb.SyncRequest(), timeout=PATIENCE_SECONDS):
            pass
        asked, unrelated = [], {}
        for row in PARAPHRASES:
            ranked = await daemon.search(row["query"], mode=VECTOR, min_score=0.0, max_results=PLACED_WITHIN)
            answer = await daemon.search(row["query"])
            assert answer.info.served_mode == HYBRID
            asked.append(Asked(row["query"], position(ranked, row["gold"]), position(answer, row["gold"])))
        for row in OTHERS:
            if not (await daemon.search(row["query"], mode=KEYWORD)).results:
                unrelated[row["query"]] = paths(await daemon.search(row["query"]))
        return Measured(asked, unrelated)
    finally:
        await daemon.stop()


@pytest.fixture(scope="module", params=["known", "unknown"])
def figures(request, model_path, tmp_path_factory):
    """The same model under its own name, which has a scale in the table, and under a name that has none."""
    home = Home(tmp_path_factory.mktemp("p"))
    model = home.root / ("all-MiniLM-L6-v2.gguf" if request.param == "known" else "some-model.gguf")
    model.symlink_to(model_path)
    return asyncio.run(measured(home, model))


def test_paraphrases_that_the_model_can_place_are_found_by_default(figures):
    missed = [each for each in figures.placed if each.by_default is None]
    assert len(figures.placed) >= 60
    assert len(missed) <= (1 - LEAST_FOUND_OF_PLACED) * len(figures.placed), missed


def test_paraphrases_are_found_by_default_whether_or_not_the_model_can_place_them(figures):
    found = sum(each.by_default is not None for each in figures.paraphrases)
    assert found / len(figures.paraphrases) >= LEAST_FOUND


def test_unrelated_questions_have_no_result(figures):
    answered = {query: found for query, found in figures.unrelated.items() if found}
    assert len(figures.unrelated) >= 25
    assert len(answered) / len(figures.unrelated) <= MOST_ANSWERED, answered


@pytest.mark.parametrize(
    ("question", "note"),
    [
        ("what is the deadline", "report"),
        ("preferences for writing code", "editor"),
        ("vessel colour", "boat"),
        ("when do we see the lender", "meeting"),
    ],
)
async def test_a_paraphrase_is_found_by_default(home, serve, model_path, question, note):
    home.write(**NOTES)
    daemon = await serve(local(model_path))
    await daemon.synced()
    assert not (await daemon.search(question, mode=KEYWORD)).results
    assert paths(await daemon.search(question))[0] == f"memory/{note}.md"


async def test_a_paraphrase_is_found_when_a_common_word_is_in_other_notes(home, serve, model_path):
    meetings = {f"m{n}": f"Our meeting number {n} was about the {what}." for n, what in enumerate(THINGS)}
    home.write(**NOTES, **meetings)
    daemon = await serve(local(model_path))
    await daemon.synced()
    question = "our deadline for the meeting paper"
    assert "memory/report.md" not in paths(await daemon.search(question, mode=KEYWORD, max_results=50))
    assert "memory/report.md" in paths(await daemon.search(question))


async def test_an_unrelated_question_has_no_result_and_the_reason_names_the_least_cosine(home, serve, model_path):
    home.write(**NOTES)
    daemon = await serve(local(model_path))
    await daemon.synced()
    answer = await daemon.search("who discovered penicillin")
    assert (paths(answer), empty_reason(answer)) == ([], "FILTERED_BY_SCORE")
    assert "0.22" in answer.info.empty_explanation


def test_no_paraphrase_shares_a_word_with_its_answer():
    analyzer = Analyzer()
    for row in PARAPHRASES:
        path, first, last = row["gold"][0]
        text = "\n".join((SAMPLE / path).read_text("utf-8").split("\n")[first - 1 : last])
        assert all(answer in text for answer in row["answer"]), row["id"]
        terms = {term.text for term in analyzer.query_terms(row["query"])}
        assert not terms & set(analyzer.index_tokens(text).split()), row["id"]


def test_the_set_holds_enough_distinct_questions():
    assert len({row["query"] for row in PARAPHRASES}) >= 60
    assert len({tuple(row["gold"][0]) for row in PARAPHRASES}) >= 60
    assert len({row["query"] for row in OTHERS}) >= 30
