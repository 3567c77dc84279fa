"""MemorySearch answers from the index, says how, and never waits, fails on words, or shows what is gone."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from properties import examples
from rpc.wire import empty_reason, kinds, paths
from waiting import eventually

SOURCE = memory_pb2
GROUP = "agent:main:telegram:group:7"
DIRECT = "agent:main:telegram:direct:42"
SENTENCES = "\n".join(f"Paragraph {n} tells of the lighthouse and of keeper number {n}." for n in range(200))
FILES = {
    "harbour": "# Harbour\n\nThe crane at pier seven lifts containers.\nGulls circle over it.\n",
    "garden": "# Garden\n\nThe old pear tree needs pruning in March.\n",
    "keeper": SENTENCES,
    "crlf": "first line\r\nthe walrus line\r\nlast line\r\n",
    "wide": "word " * 3_000 + "narwhal " + "word " * 3_000,
    "zh": "今天的会议讨论了发布计划。\n",
}


@pytest.fixture
async def indexed(serve, home):
    home.write(**FILES)
    running = await serve()
    await running.sync()
    return running


@pytest.mark.parametrize(
    "query", ["crane", "pear tree", "lighthouse keeper", "walrus", "narwhal", "会议", "keeper 137"]
)
async def test_every_range_can_be_read_and_holds_its_snippet(indexed, query):
    answer = await indexed.search(query, citations=memory_pb2.CITATION_MODE_OFF)
    assert answer.results
    assert [r.score for r in answer.results] == sorted((r.score for r in answer.results), reverse=True)
    for result in answer.results:
        assert 0 <= result.score <= 1
        assert 1 <= result.start_line <= result.snippet_start_line <= result.snippet_end_line <= result.end_line
        span = {"start_line": result.start_line, "line_count": result.end_line - result.start_line + 1}
        whole = await indexed.get(result.path, **span)
        assert whole.end_line == result.end_line
        span = {
            "start_line": result.snippet_start_line,
            "line_count": result.snippet_end_line - result.snippet_start_line + 1,
        }
        assert result.snippet in (await indexed.get(result.path, **span)).text.replace("\r\n", "\n")
        assert len(result.snippet) <= 700
        assert result.source == memory_pb2.SOURCE_MEMORY
        assert result.citation.startswith(f"{result.path}#L{result.start_line}")
        assert result.modified_time.seconds > 0
        assert not result.HasField("score_detail")


async def test_the_best_hit_comes_first_and_holds_the_words(indexed):
    answer = await indexed.search("pier seven crane")
    assert paths(answer)[0] == "memory/harbour.md"
    assert "pier seven" in answer.results[0].snippet


ON, OFF, AUTO, UNSET = (
    memory_pb2.CITATION_MODE_ON,
    memory_pb2.CITATION_MODE_OFF,
    memory_pb2.CITATION_MODE_AUTO,
    memory_pb2.CITATION_MODE_UNSPECIFIED,
)


@pytest.mark.parametrize(
    ("setting", "asked", "session_key", "cited"),
    [
        (None, ON, GROUP, True),
        (None, OFF, "", False),
        (None, AUTO, "", True),
        (None, AUTO, DIRECT, True),
        (None, AUTO, GROUP, False),
        (None, AUTO, "agent:main:discord:channel:9", False),
        (None, UNSET, "", True),
        (None, UNSET, GROUP, False),
        ("on", UNSET, GROUP, True),
        ("off", UNSET, DIRECT, False),
        ("off", ON, DIRECT, True),
        ("on", OFF, DIRECT, False),
    ],
)
async def test_a_citation_is_added_if_configured(serve, home, *, setting, asked, session_key, cited):
    home.write(**FILES)
    running = await serve({"memory": {"citations": setting}} if setting else None)
    await running.sync()
    (result,) = (await running.search("walrus", citations=asked, session_key=session_key)).results
    assert result.snippet.endswith(f"\n\nSource: {result.citation}") is cited
    assert ("Source:" in result.snippet) is cited


@pytest.mark.parametrize(("asked", "given"), [({}, 6), ({"max_results": 2}, 2), ({"max_results": 1_000}, 50)])
async def test_no_more_results_than_asked_for_and_never_more_than_fifty(serve, home, asked, given):
    home.write(**{f"note{n}": f"zebra number {n}" for n in range(60)})
    running = await serve()
    await running.sync()
    assert len((await running.search("zebra", **asked)).results) == given


async def test_the_settings_number_of_results_is_the_default(serve, home):
    home.write(**{f"note{n}": f"zebra number {n}" for n in range(60)})
    running = await serve({"agents": {"defaults": {"memorySearch": {"query": {"maxResults": 3}}}}})
    await running.sync()
    assert len((await running.search("zebra")).results) == 3


async def test_the_least_score_of_the_settings_means_the_same_as_that_of_a_request(serve, home):
    home.write(best="zebra zebra zebra", weak="one zebra among " + "many other words that say nothing " * 30)
    running = await serve({"agents": {"defaults": {"memorySearch": {"query": {"minScore": 0.99}}}}})
    await running.sync()
    for answer in (await running.search("zebra"), await running.search("zebra", min_score=0.99)):
        assert paths(answer) == ["memory/best.md"]
        assert answer.info.dropped_by_min_score == 1
    every = await running.search("zebra", min_score=0)
    assert paths(every) == ["memory/best.md", "memory/weak.md"]
    assert every.results[1].score < 0.99


@pytest.mark.parametrize("most", [1, 10, 100, 4_000, 1_000_000])
async def test_a_snippet_is_never_longer_than_asked_for(indexed, most):
    answer = await indexed.search("lighthouse narwhal", max_snippet_chars=most, citations=OFF)
    assert answer.results
    assert all(0 < len(result.snippet) <= min(most, 4_000) for result in answer.results)


@pytest.mark.parametrize("citations", [ON, OFF])
@pytest.mark.parametrize("budget", [1, 50, 500, 1_500, 100_000])
async def test_all_snippets_together_keep_the_budget(indexed, budget, citations):
    free = await indexed.search("lighthouse", max_results=6, citations=citations)
    answer = await indexed.search("lighthouse", max_results=6, max_total_chars=budget, citations=citations)
    lengths = [len(result.snippet) for result in answer.results]
    assert sum(lengths) <= budget
    assert answer.results
    whole = [result.snippet for result in free.results]
    assert [r.snippet for r in answer.results[:-1]] == whole[: len(answer.results) - 1]
    assert whole[len(answer.results) - 1].startswith(answer.results[-1].snippet)
    for result in answer.results:
        assert result.snippet_start_line <= result.snippet_end_line <= result.end_line


async def test_explain_reports_what_each_retriever_did(indexed):
    answer = await indexed.search("crane", explain=True)
    (detail,) = [result.score_detail for result in answer.results]
    assert (detail.text, detail.keyword_rank) == (1.0, 1)
    assert not detail.HasField("vector")
    assert not detail.HasField("vector_rank")
    keyword, vector = answer.info.legs
    assert (keyword.leg, keyword.ran, keyword.candidates) == (memory_pb2.SEARCH_MODE_KEYWORD, True, 1)
    assert list(keyword.terms) == ["crane"]
    assert (vector.leg, vector.ran) == (memory_pb2.SEARCH_MODE_VECTOR, False)
    assert vector.note
    assert not (await indexed.search("crane")).info.legs


async def test_an_answer_says_who_gave_it_and_from_what(indexed):
    info = (await indexed.search("crane")).info
    assert info.backend == memory_pb2.BACKEND_BUILTIN
    assert info.served_mode == memory_pb2.SEARCH_MODE_KEYWORD
    assert info.index_revision == (await indexed.status()).index.revision > 0
    assert info.index_state == memory_pb2.INDEX_STATE_READY
    assert (info.stale, info.keyword_candidates, info.vector_candidates) == (False, 1, 0)
    assert info.elapsed.ToNanoseconds() > 0
    assert info.empty_reason == memory_pb2.EMPTY_REASON_UNSPECIFIED
    assert not info.empty_explanation
    assert not info.HasField("embedding")
    assert not info.degradations


async def check_empty(running, reason, query="zebra", **request):
    answer = await running.search(query, **request)
    assert not answer.results
    assert empty_reason(answer) == reason
    assert answer.info.empty_explanation


async def test_an_empty_answer_of_an_empty_index_says_so(serve, home):
    running = await serve()
    await check_empty(running, "EMPTY_INDEX")
    await running.sync()
    await check_empty(running, "EMPTY_INDEX")
    home.write(blank="  \n\n")
    await running.sync()
    await check_empty(running, "EMPTY_INDEX")


@pytest.mark.parametrize("query", ["zebra", "斑馬", "?!", "\0", "*", '"', "XOR NEAR", "🦓"])
async def test_an_empty_answer_without_a_match_says_so(indexed, query):
    await check_empty(indexed, "NO_MATCH", query)


async def test_a_hit_whose_file_is_gone_is_never_shown(indexed, home):
    (home.workspace / "memory" / "harbour.md").unlink()
    await check_empty(indexed, "FILES_GONE", "crane")
    answer = await indexed.search("crane pear")
    assert paths(answer) == ["memory/garden.md"]
    assert answer.info.stale


@pytest.mark.parametrize("swap", ["link", "folder", "pipe"])
async def test_a_hit_whose_file_became_something_else_is_never_shown(indexed, home, swap):
    file = home.workspace / "memory" / "harbour.md"
    elsewhere = home.root / "elsewhere.md"
    file.rename(elsewhere)
    if swap == "link":
        file.symlink_to(elsewhere)
    elif swap == "folder":
        file.mkdir()
    await check_empty(indexed, "FILES_GONE", "crane")


async def test_a_file_that_is_gone_takes_no_other_hits_place(serve, home):
    home.write(best="zebra zebra", second="zebra and the other animals of the plain")
    running = await serve()
    await running.sync()
    assert paths(await running.search("zebra", max_results=1)) == ["memory/best.md"]
    (home.workspace / "memory" / "best.md").unlink()
    assert paths(await running.search("zebra", max_results=1)) == ["memory/second.md"]


async def test_an_answer_from_a_changed_file_is_stale_until_the_next_sync(indexed, home):
    assert not (await indexed.search("crane")).info.stale
    home.write(harbour="The crane is gone and a walrus came.")
    answer = await indexed.search("crane")
    assert answer.results
    assert answer.info.stale
    assert answer.info.index_state == memory_pb2.INDEX_STATE_STALE
    await indexed.sync()
    assert not (await indexed.search("crane")).info.stale


async def test_a_search_before_the_first_sync_is_stale(serve, home):
    home.write(**FILES)
    running = await serve()
    info = (await running.search("crane")).info
    assert (info.stale, info.index_revision) == (True, (await running.status()).index.revision)


@pytest.mark.parametrize(
    ("sources", "found", "degraded"),
    [
        ([], 1, []),
        ([memory_pb2.SOURCE_UNSPECIFIED], 1, []),
        ([memory_pb2.SOURCE_MEMORY], 1, []),
        ([memory_pb2.SOURCE_MEMORY, memory_pb2.SOURCE_MEMORY], 1, []),
        ([memory_pb2.SOURCE_MEMORY, memory_pb2.SOURCE_SESSIONS], 1, ["SOURCE_SKIPPED"]),
        ([memory_pb2.SOURCE_SESSIONS], 0, ["SOURCE_SKIPPED"]),
    ],
)
async def test_a_source_that_is_not_indexed_is_named_and_the_others_answer(indexed, sources, found, degraded):
    answer = await indexed.search("crane", sources=sources)
    assert len(answer.results) == found
    assert kinds(answer.info.degradations) == degraded
    assert bool(answer.info.empty_explanation) is not bool(found)


@pytest.mark.parametrize(
    ("mode", "degraded"),
    [
        (memory_pb2.SEARCH_MODE_UNSPECIFIED, []),
        (memory_pb2.SEARCH_MODE_KEYWORD, []),
        (memory_pb2.SEARCH_MODE_HYBRID, ["VECTOR_LEG_SKIPPED"]),
    ],
)
async def test_hybrid_without_a_provider_answers_by_keywords_and_says_so(indexed, mode, degraded):
    answer = await indexed.search("crane", mode=mode)
    assert paths(answer) == ["memory/harbour.md"]
    assert answer.info.served_mode == memory_pb2.SEARCH_MODE_KEYWORD
    assert kinds(answer.info.degradations) == degraded
    assert all(d.reason and d.wanted for d in answer.info.degradations)


@pytest.mark.parametrize("mode", [memory_pb2.SEARCH_MODE_UNSPECIFIED, memory_pb2.SEARCH_MODE_HYBRID])
async def test_a_provider_that_this_version_cannot_use_is_one_degradation(serve, home, mode):
    home.write(**FILES)
    running = await serve({"agents": {"defaults": {"memorySearch": {"provider": "openai"}}}})
    await running.sync()
    answer = await running.search("crane", mode=mode)
    assert paths(answer) == ["memory/harbour.md"]
    assert kinds(answer.info.degradations) == ["VECTOR_LEG_SKIPPED"]


# Bytes 1..4,096 and something in it that is not white space.
QUERIES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300).filter(str.strip)


async def test_no_text_is_an_error(indexed):
    @settings(
        max_examples=examples(150),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(QUERIES | st.sampled_from(['"', "a-b:c*", "NEAR(a b)", "^x", "(", "x" * 4_096, "é" * 2_048, "a " * 2_048]))
    def check(query):
        queries.append(query)

    queries = []
    check()
    for query in queries:
        answer = await indexed.search(query, explain=True)
        assert bool(answer.results) is not bool(answer.info.empty_explanation)


async def test_a_reply_of_fifty_long_snippets_fits_the_wire(serve, home):
    home.write(**{f"note{n}": ("🦓🐘 zebra " * 400 + "\n") for n in range(60)})
    running = await serve({"agents": {"defaults": {"memorySearch": {"chunking": {"tokens": 4_000, "overlap": 0}}}}})
    await running.sync()
    answer = await running.search("zebra", max_results=50, max_snippet_chars=4_000)
    assert len(answer.results) == 50


async def test_a_search_that_waits_for_a_revision_answers_when_it_is_there(serve, home):
    home.write(**FILES)
    running = await serve()
    waiting = running.stub.MemorySearch(pb.MemorySearchRequest(query="crane", min_revision=1), timeout=10)
    await running.search("crane")
    assert not waiting.done()
    await running.sync()
    answer = await waiting
    assert paths(answer) == ["memory/harbour.md"]
    assert answer.info.index_revision >= 1


async def test_a_search_on_a_dirty_index_starts_a_sync_and_does_not_wait_for_it(serve, home):
    home.write(**FILES)
    running = await serve({"agents": {"defaults": {"memorySearch": {"sync": {"onSearch": True}}}}})
    assert not (await running.search("crane")).results
    answer = await running.search("crane", min_revision=1)
    assert paths(answer) == ["memory/harbour.md"]


@pytest.mark.folder_only("a sync does not read an unchanged document again")
async def test_a_search_during_a_sync_that_reads_unchanged_files_again_is_not_stale(home, serve, pause_sync):
    """Files that were indexed within a second of their last change, or that failed, are read again by the next sync."""
    home.write(boat="the red ferry sails at dawn", tea="green tea without sugar")
    home.put("memory/broken.md", b"\xff\xfe\x00")
    running = await serve({"agents": {"defaults": {"memorySearch": {"sync": {"onSessionStart": True}}}}})
    await running.synced()
    held = pause_sync(running)
    # This search starts the session's sync, which the second one meets.
    await running.search("ferry", session_key="agent:main:one")
    await held.until_reached()
    info = (await running.search("ferry", session_key="agent:main:one")).info
    assert (info.stale, info.index_state) == (False, memory_pb2.INDEX_STATE_READY)
    home.write(boat="the red ferry sails at noon")
    assert (await running.search("ferry", session_key="agent:main:one")).info.stale
    held.release()


async def test_a_session_s_first_search_starts_a_sync_and_its_second_does_not(serve, home):
    running = await serve({"agents": {"defaults": {"memorySearch": {"sync": {"onSessionStart": True}}}}})
    home.write(**FILES)
    assert not (await running.search("crane", session_key=DIRECT)).results
    assert paths(await running.search("crane", session_key=DIRECT, min_revision=1)) == ["memory/harbour.md"]
    await running.search("crane", session_key=DIRECT)
    (ended,) = await eventually(lambda: running.logged("complete-sync"))
    assert ended["trigger"] == "SESSION_START"
