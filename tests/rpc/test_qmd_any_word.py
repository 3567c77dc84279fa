"""A question that no file has all words of is answered by the files that have any of them, and the reply says so."""

import os
import time

import pytest

from fake_qmd.installs import real_qmd
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.qmd_calls import DIRECT, QMD, ask, qmd_settings, ready
from rpc.wire import Home, empty_reason, paths

# A search of the real command takes half a second on a quiet machine, and seconds on a busy one.
LIMITS = {"timeoutMs": 15_000}
QUESTION = "Which crane lifts the containers?"
MODES = {"search": [], "vsearch": ["vsearch"], "query": ["query"]}


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.environ = {"PATH": os.defpath, "HOME": str(tmp_path)}
    return home


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.slow)])
def command(request, fake):
    if request.param == "real" and real_qmd() is None:
        pytest.skip("no qmd: `make qmd` installs it")
    return fake.path if request.param == "fake" else real_qmd()


@pytest.fixture
def qmd(serve, home):
    """Starts a daemon whose qmd is up to date, over four notes."""

    async def begin(command, **qmd):
        home.write(harbour="# Harbour\n\nThe crane is old.\n", quay="# Quay\n\nTwo ships with containers.\n")
        home.write(garden="# Garden\n\nRoses.\n", sea="# Sea\n\nWaves.\n")
        running = await serve(qmd_settings(command, **{"limits": LIMITS, **qmd}))
        await ready(running)
        return running

    return begin


async def test_question_finds_the_files_with_any_of_its_words(qmd, command):
    running = await qmd(command)
    answer = await ask(running, QUESTION, explain=True)
    info = answer.info
    assert (info.backend, info.served_mode, info.matched_any_word) == (QMD, memory_pb2.SEARCH_MODE_KEYWORD, True)
    assert sorted(paths(answer)) == ["memory/harbour.md", "memory/quay.md"]
    assert (info.keyword_candidates, empty_reason(answer), list(info.degradations)) == (2, "UNSPECIFIED", [])
    assert [leg.note for leg in info.legs] == ["qmd search, then qmd query for any of the words"]
    # Of the same scale as that of a search for the word alone, and not the rank.
    (alone,) = (await ask(running, "crane")).results
    (same,) = (hit for hit in answer.results if hit.path == alone.path)
    assert (alone.snippet, alone.score) == (same.snippet, pytest.approx(same.score, abs=0.011))


async def test_files_with_all_words_are_preferred_to_those_with_any(qmd, command):
    running = await qmd(command)
    answer = await ask(running, "ships containers")
    assert (paths(answer), answer.info.matched_any_word) == (["memory/quay.md"], False)


async def test_excluded_files_remain_excluded(qmd, command):
    running = await qmd(command)
    answer = await ask(running, "crane containers -ships")
    assert (paths(answer), answer.info.matched_any_word) == (["memory/harbour.md"], True)


async def test_min_score_applies_to_the_files_with_any_word(qmd, command):
    answer = await ask(await qmd(command), QUESTION, min_score=0.99)
    assert (empty_reason(answer), answer.info.dropped_by_min_score) == ("FILTERED_BY_SCORE", 2)


async def test_question_without_a_known_word_is_answered_with_the_reason(qmd, command):
    answer = await ask(await qmd(command), "Where are the flamingo and the heron?")
    assert (empty_reason(answer), answer.info.backend, answer.info.matched_any_word) == ("NO_MATCH", QMD, True)
    assert "any of the words" in answer.info.empty_explanation


async def test_words_at_any_place_of_a_long_file_are_shown(qmd, home, command):
    """qmd selects the lines to show from a part of the file, which may begin within a line."""
    filler = [f"line {number:03} of a long note about nothing in particular" for number in range(200)]
    # The second part of the file is the better one because of its last lines, and begins among these lines.
    places = range(46, 66)
    for at in places:
        home.put(
            f"memory/long{at}.md",
            "\n".join((*filler[:at], "The flamingo stands", *filler[at:100], "on a leg", "in a pond")),
        )
    running = await qmd(command, limits={**LIMITS, "maxResults": 50, "maxInjectedChars": 50_000})
    answer = await ask(running, "Does a flamingo with one leg sleep in the pond?", max_results=50)
    assert sorted(paths(answer)) == [f"memory/long{at}.md" for at in places]
    assert all("The flamingo stands" in hit.snippet or "in a pond" in hit.snippet for hit in answer.results)
    assert not answer.info.stale


@pytest.mark.skipif(real_qmd() is None, reason="no qmd: `make qmd` installs it")
async def test_the_real_command_finds_the_files_with_any_word(qmd):
    """The rest of what is tested over it is slow."""
    answer = await ask(await qmd(real_qmd()), QUESTION)
    assert (answer.info.backend, answer.info.matched_any_word) == (QMD, True)
    assert sorted(paths(answer)) == ["memory/harbour.md", "memory/quay.md"]


async def test_second_search_is_made_only_if_it_can_find_more(qmd, fake):
    running = await qmd(fake.path)
    assert paths(await ask(running, "crane"))
    assert not paths(await ask(running, "flamingo"))
    assert fake.calls("query") == []
    assert paths(await ask(running, QUESTION))
    assert fake.calls("query") == ["query"]


@pytest.mark.parametrize("mode", MODES)
async def test_keyword_search_is_repeated_whatever_the_search_mode_is(qmd, fake, mode):
    running = await qmd(fake.path, searchMode=mode)
    answer = await ask(running, QUESTION, mode=memory_pb2.SEARCH_MODE_KEYWORD)
    assert (len(paths(answer)), answer.info.matched_any_word) == (2, True)
    assert [call for call in fake.calls() if call in {"search", "vsearch", "query"}] == ["search", "query"]


@pytest.mark.parametrize("mode", ["vsearch", "query"])
async def test_other_search_modes_make_one_search(qmd, fake, mode):
    running = await qmd(fake.path, searchMode=mode)
    answer = await ask(running, "flamingo heron")
    assert (paths(answer), answer.info.matched_any_word) == ([], False)
    assert [call for call in fake.calls() if call in {"search", "vsearch", "query"}] == [mode]


@pytest.mark.parametrize("fault", ["fail", "segfault", "busy", "not-json", "nothing", "noise", "ci", "hang"])
async def test_failure_of_the_second_search_leaves_an_empty_answer_of_qmd(qmd, fake, fault):
    running = await qmd(fake.path, limits={"timeoutMs": 4_000})
    fake.faults(query=fault)
    began = time.monotonic()
    answer = await ask(running, QUESTION, explain=True)
    assert time.monotonic() - began < 9
    assert (paths(answer), empty_reason(answer)) == ([], "NO_MATCH")
    assert (answer.info.backend, answer.info.matched_any_word, list(answer.info.degradations)) == (QMD, False, [])
    assert "and the search for any of them failed: " in answer.info.empty_explanation
    assert [leg.note.partition(";")[0] for leg in answer.info.legs] == ["qmd search"]
    # qmd is not left for the builtin engine.
    assert (await ask(running, "crane")).info.backend == QMD
    status = await running.status()
    assert (status.active_backend, list(status.degradations)) == (QMD, [])


async def test_qmd_that_ignores_the_option_without_reranking_uses_no_models(qmd, fake):
    fake.faults(version="2.0.1")
    answer = await ask(await qmd(fake.path), QUESTION)
    assert (paths(answer), answer.info.backend) == ([], QMD)
    assert "LLM operations are disabled" in answer.info.empty_explanation


@pytest.mark.slow
async def test_second_search_that_hangs_leaves_time_for_the_empty_answer(qmd, fake):
    """Without a builtin engine, a search may take all of the caller's time."""
    running = await qmd(fake.path, fallback="none")
    fake.faults(query="hang")
    request = pb.MemorySearchRequest(query=QUESTION, session_key=DIRECT)
    answer = await running.stub.MemorySearch(request, timeout=8)
    assert (paths(answer), empty_reason(answer), answer.info.backend) == ([], "NO_MATCH", QMD)


@pytest.mark.parametrize("fault", ["foreign-rows", "log-before", "crash-after", "no-line"])
async def test_files_with_any_word_that_were_printed_whole_count(qmd, fake, fault):
    running = await qmd(fake.path)
    fake.faults(query=fault)
    answer = await ask(running, QUESTION)
    assert {"memory/harbour.md", "memory/quay.md"} <= set(paths(answer))
    assert answer.info.matched_any_word
