"""The cut without a named least score, over vectors of chosen cosines; `minScore` still bounds the fused score."""

import math

import pytest

from memoryd.v1 import memory_pb2
from rpc.wire import empty_reason, paths

HYBRID, KEYWORD, VECTOR = (memory_pb2.SEARCH_MODE_HYBRID, memory_pb2.SEARCH_MODE_KEYWORD, memory_pb2.SEARCH_MODE_VECTOR)

NOTES = {"answer": "the due date is in march", "other": "tabs of two columns", "third": "ferry painted blue"}
FEATURES = (*NOTES.values(), "common")

# What a question has in common with each note, before the model's base similarity.
NEAR = {
    "deadline": {"answer": 0.4},
    "penicillin": {"answer": 0.1, "third": 0.12},
    "deadline ferry": {"answer": 0.4},
    "paperwork ferry": {"answer": 0.9, "third": 0.41},
}


def with_base(base):
    """A model whose unrelated texts have the cosine `base`: notes differ wholly, questions are as near as NEAR says."""

    def vector(text, dimensions):
        own = [0.0] * dimensions
        near = next((NEAR[each] for each in NEAR if text == each), None)
        if near is None:
            own[1 + sum(text.encode()) % (dimensions - 2)] = 1.0
        else:
            for name, cosine in near.items():
                own[1 + sum(NOTES[name].encode()) % (dimensions - 2)] = cosine
            own[-1] = math.sqrt(1 - sum(number**2 for number in own))
        return [math.sqrt(base), *(math.sqrt(1 - base) * number for number in own[1:])]

    return vector


def using(server, model="some-model", **query):
    remote = {"baseUrl": server.url, "apiKey": "sk-of-this-test"}
    search = {"provider": "openai-compatible", "model": model, "remote": remote, "query": query}
    return {"agents": {"defaults": {"memorySearch": search}}}


@pytest.fixture
def ask(home, serve, provider):
    """Starts a daemon over the notes, with a model of a base similarity, and returns it."""

    async def ask(base=0.0, model="some-model", **query):
        provider.vector = with_base(base)
        home.write(**NOTES)
        daemon = await serve(using(provider, model, **query))
        await daemon.synced()
        return daemon

    return ask


def test_the_notes_have_features_of_their_own():
    assert len({sum(text.encode()) % 14 for text in NOTES.values()}) == len(NOTES)


async def test_a_keyword_leg_that_found_nothing_does_not_lower_the_score(ask):
    daemon = await ask()
    answer = await daemon.search("deadline", min_score=0.0, explain=True)
    assert paths(answer)[0] == "memory/answer.md"
    assert answer.info.served_mode == HYBRID
    assert answer.results[0].score == pytest.approx(0.4, abs=1e-5)
    assert not answer.results[0].score_detail.HasField("text")


@pytest.mark.parametrize("base", [0.0, 0.2, 0.7, 0.9])
@pytest.mark.parametrize("mode", [HYBRID, VECTOR, memory_pb2.SEARCH_MODE_UNSPECIFIED])
async def test_an_unknown_model_finds_paraphrases_and_cuts_unrelated_notes_at_any_base_similarity(ask, base, mode):
    daemon = await ask(base)
    assert paths(await daemon.search("deadline", mode=mode)) == ["memory/answer.md"]
    answer = await daemon.search("penicillin", mode=mode)
    assert (paths(answer), empty_reason(answer)) == ([], "FILTERED_BY_SCORE")
    assert answer.info.dropped_by_min_score == 3


async def test_a_paraphrase_is_found_although_one_of_its_words_is_in_another_note(ask):
    daemon = await ask()
    answer = await daemon.search("deadline ferry")
    assert set(paths(answer)) == {"memory/answer.md", "memory/third.md"}


@pytest.mark.parametrize(("model", "found"), [("text-embedding-3-small", True), ("text-embedding-ada-002", False)])
async def test_a_known_model_has_the_least_cosine_of_the_table(ask, model, found):
    daemon = await ask(model=model)
    assert bool((await daemon.search("deadline")).results) is found


@pytest.mark.parametrize(("least", "found"), [(0.35, True), (0.39, True), (0.41, False)])
async def test_a_least_score_in_the_settings_bounds_the_score_where_no_keyword_was_found(ask, least, found):
    daemon = await ask(minScore=least)
    assert bool((await daemon.search("deadline")).results) is found


async def test_a_least_score_of_035_in_the_settings_bounds_the_fused_score_unlike_the_default(ask):
    daemon = await ask(minScore=0.35)
    answer = await daemon.search("deadline ferry")
    assert (paths(answer), answer.info.dropped_by_min_score) == ([], 3)


@pytest.mark.parametrize(("least", "expected"), [(0.7, []), (0.6, ["answer"]), (0.5, ["answer", "third"])])
async def test_a_least_score_in_the_settings_never_shows_less_than_it_removes(ask, least, expected):
    """The best result comes from vectors alone (.63), the next one from keywords (.59)."""
    daemon = await ask(minScore=least)
    every = await daemon.search("paperwork ferry", min_score=0.0)
    assert [round(result.score, 2) for result in every.results][:2] == [0.63, 0.59]
    answer = await daemon.search("paperwork ferry")
    assert paths(answer) == [f"memory/{name}.md" for name in expected]
    if not expected:
        assert empty_reason(answer) == "FILTERED_BY_SCORE"
        assert "memory.search.query.minScore, 0.7;" in answer.info.empty_explanation


@pytest.mark.parametrize(("least", "found"), [(0.27, 2), (0.29, 1)])
async def test_a_least_score_in_the_request_bounds_the_fused_score(ask, least, found):
    daemon = await ask()
    assert len((await daemon.search("deadline ferry", min_score=least)).results) == found


async def test_explain_names_the_least_cosine_that_applied(ask):
    daemon = await ask(model="text-embedding-3-small")
    (_, meanings) = (await daemon.search("deadline", explain=True)).info.legs
    assert meanings.note == "least cosine 0.250"
    (_, meanings) = (await daemon.search("deadline", explain=True, min_score=0.1)).info.legs
    assert meanings.note == ""


async def test_an_index_without_a_measured_centre_answers_and_the_next_sync_measures_it(ask, home, serve, provider):
    """As the index of an earlier version is."""
    daemon = await ask(0.7)
    await daemon.stop()
    home.store.change(
        sqlite="DELETE FROM meta WHERE key LIKE 'vector_centre%'",
        postgres="UPDATE generations SET vector_centre = NULL, vector_centre_revision = NULL",
    )
    daemon = await serve(using(provider))
    assert len((await daemon.search("penicillin")).results) == 3
    await daemon.synced()
    assert paths(await daemon.search("penicillin")) == []
    assert paths(await daemon.search("deadline")) == ["memory/answer.md"]


@pytest.mark.parametrize("base", [0.0, 0.7])
async def test_the_only_chunk_of_an_index_is_not_lost(home, serve, provider, base):
    provider.vector = with_base(base)
    home.write(answer=NOTES["answer"])
    daemon = await serve(using(provider))
    await daemon.synced()
    assert paths(await daemon.search("deadline")) == ["memory/answer.md"]
