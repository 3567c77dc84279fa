"""ExplainMiss names the step of indexing or searching that leaves out a file, and agrees with MemorySearch."""

import json

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_providers import Fault, fake_reranker
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from properties import examples
from rpc.qmd_calls import qmd_settings
from rpc.wire import HYBRID, KEYWORD, TIMEOUT, VECTOR, by_meaning, check_refused, quiet, refusal, refused

MEMORY, SESSIONS, ENTRIES = memory_pb2.SOURCE_MEMORY, memory_pb2.SOURCE_SESSIONS, memory_pb2.SOURCE_ENTRIES
WITH_SESSIONS = {"experimental": {"sessionMemory": True}, "sources": ["memory", "sessions"]}


async def ask(running, path, query="heron", *, line=None, **search):
    request = pb.ExplainMissRequest(search=pb.MemorySearchRequest(query=query, **search), path=path, line=line)
    return await running.stub.ExplainMiss(request, timeout=TIMEOUT)


async def asked(running, path, query="heron", *, line=None, **search):
    """Return the answer and the name of its reason."""
    answer = await ask(running, path, query, line=line, **search)
    assert answer.explanation
    return answer, pb.MissReason.Name(answer.reason).removeprefix("MISS_REASON_")


def searching(**more):
    return {"agents": {"defaults": {"memorySearch": more}}}


async def synced(serve, settings=None):
    running = await serve(settings)
    await running.sync()
    return running


async def test_a_result_has_the_rank_the_score_and_the_parts_of_the_search(serve, home):
    home.write(a="a heron and a heron", b="the heron in the reeds near the weir of the mill", c="a crane")
    running = await synced(serve)
    found = await running.search("heron", explain=True)
    for rank, result in enumerate(found.results, 1):
        answer, reason = await asked(running, result.path)
        assert (reason, answer.rank, answer.chunk) == ("FOUND", rank, result)
        assert answer.info.index_revision == found.info.index_revision
    assert len(found.results) == 2


async def test_a_path_outside_the_memory_is_no_memory(serve, home):
    home.put("other/a.md", "a heron")
    running = await synced(serve)
    for path in ("../outside.md", "notes.txt", "memory/../MEMORY.md", "DREAMS.md", "other/a.md"):
        answer, reason = await asked(running, path)
        assert (reason, answer.path) == ("NOT_MEMORY", path)
        assert not answer.HasField("info")
        assert not answer.HasField("chunk")


async def test_a_link_is_not_followed(serve, home):
    home.put("outside.md", "a heron")
    (home.workspace / "memory" / "link.md").symlink_to(home.workspace / "outside.md")
    (home.workspace / "memory" / "folder").symlink_to(home.workspace)
    running = await synced(serve)
    for path in ("memory/link.md", "memory/folder/outside.md"):
        assert (await asked(running, path))[1] == "LINK"


async def test_the_line_of_memoryignore_is_named(serve, home):
    home.put(".memoryignore", "# private\ndrafts/\n*.tmp.md\n!kept.tmp.md\n")
    for name in ("drafts/a.md", "b.tmp.md", "kept.tmp.md"):
        home.put(f"memory/{name}", "a heron")
    running = await synced(serve)
    answer, reason = await asked(running, "memory/drafts/a.md")
    assert (reason, answer.rule) == ("EXCLUDED", ".memoryignore:2: drafts/")
    assert (await asked(running, "memory/b.tmp.md"))[0].rule == ".memoryignore:3: *.tmp.md"
    assert (await asked(running, "memory/kept.tmp.md"))[1] == "FOUND"


async def test_a_line_of_memoryignore_that_is_not_utf_8_is_shown_with_its_bytes(serve, home):
    home.put(".memoryignore", b"[\xffa].md\n")
    home.write(a="a heron")
    running = await synced(serve)
    answer, reason = await asked(running, "memory/a.md")
    assert (reason, answer.rule) == ("EXCLUDED", r".memoryignore:1: [\xffa].md")


async def test_the_memoryignore_of_an_extra_path_is_named(serve, home):
    home.put("notes/.memoryignore", "/old\n")
    home.put("notes/old/a.md", "a heron")
    running = await synced(serve, searching(extraPaths=["notes"]))
    answer, reason = await asked(running, "notes/old/a.md")
    assert (reason, answer.rule) == ("EXCLUDED", "notes/.memoryignore:1: /old")


async def test_a_memoryignore_that_cannot_be_used_is_the_reason(serve, home):
    home.put(".memoryignore", "x\n" * 600)
    home.write(a="a heron")
    running = await synced(serve)
    answer, reason = await asked(running, "memory/a.md")
    assert reason == "FAILED"
    assert ".memoryignore" in answer.explanation


async def test_the_patterns_of_an_extra_path_are_named(serve, home):
    home.put("notes/a.md", "a heron")
    home.put("notes/b/c.md", "a heron")
    running = await synced(serve, searching(extraPaths=[{"path": "notes", "pattern": "*.md"}]))
    assert (await asked(running, "notes/a.md"))[1] == "FOUND"
    answer, reason = await asked(running, "notes/b/c.md")
    assert (reason, answer.rule) == ("EXCLUDED", "*.md")


async def test_a_second_name_of_a_file_is_excluded(serve, home):
    home.write(a="a heron")
    (home.workspace / "memory" / "b.md").hardlink_to(home.workspace / "memory" / "a.md")
    running = await synced(serve)
    assert (await asked(running, "memory/a.md"))[1] == "FOUND"
    answer, reason = await asked(running, "memory/b.md")
    assert (reason, answer.rule) == ("EXCLUDED", "")


async def test_a_missing_and_a_deleted_file_are_not_on_the_disk(serve, home):
    home.write(a="a heron", b="a crane")
    running = await synced(serve)
    assert (await asked(running, "memory/missing.md"))[1] == "NOT_ON_DISK"
    (home.workspace / "memory" / "a.md").unlink()
    for search in ({}, {"min_score": 1.0}, {"query": "unheard"}, {"filter": {"until": "1990"}}):
        answer, reason = await asked(running, "memory/a.md", **search)
        assert reason == "NOT_ON_DISK"
        assert not answer.HasField("chunk")
    await running.sync()
    assert (await asked(running, "memory/a.md"))[1] == "NOT_ON_DISK"


async def test_a_forgotten_file_and_a_forgotten_session_are_forgotten(serve, home):
    home.write(a="a heron")
    home.say("s1.jsonl", '{"type":"message","message":{"role":"user","content":"a heron by the weir"}}\n')
    running = await synced(serve, searching(**WITH_SESSIONS))
    assert (await asked(running, "sessions/s1.jsonl"))[1] == "FOUND"
    for fields in ({"path": "memory/a.md"}, {"session_id": "s1"}):
        await running.stub.MemoryForget(pb.MemoryForgetRequest(**fields), timeout=TIMEOUT)
    assert (await asked(running, "memory/a.md"))[1] == "FORGOTTEN"
    assert (await asked(running, "sessions/s1.jsonl"))[1] == "FORGOTTEN"


async def test_a_new_file_and_a_changed_line_are_pending(serve, home):
    home.write(a="a heron")
    running = await synced(serve)
    home.write(a="a heron\n\nthe weir\n", b="a heron")
    assert (await asked(running, "memory/b.md"))[1] == "PENDING"
    assert (await asked(running, "memory/a.md", line=3))[1] == "PENDING"
    assert (await asked(running, "memory/a.md", line=1))[1] == "FOUND"


async def test_a_file_that_cannot_be_indexed_has_its_error(serve, home):
    home.write(a="heron " * 1_000)
    running = await synced(serve, {"memoryd": {"limits": {"maxFileBytes": 1_000}}})
    answer, reason = await asked(running, "memory/a.md")
    (listed,) = (await running.files()).files
    assert reason == "FAILED"
    assert listed.error in answer.explanation


async def test_a_file_or_a_line_without_text_has_no_text(serve, home):
    home.write(a="", b="a heron\n")
    running = await synced(serve)
    assert (await asked(running, "memory/a.md"))[1] == "NO_TEXT"
    assert (await asked(running, "memory/b.md", line=1))[1] == "FOUND"
    answer, reason = await asked(running, "memory/b.md", line=70)
    assert reason == "NO_TEXT"
    assert "70" in answer.explanation


async def test_a_source_is_configured_and_searched(serve, home):
    home.write(a="a heron")
    home.say("s1.jsonl", '{"type":"message","message":{"role":"user","content":"a heron by the weir"}}\n')
    running = await synced(serve)
    assert (await asked(running, "sessions/s1.jsonl"))[1] == "SOURCE_NOT_CONFIGURED"
    await running.daemon.reload(lambda: home.settings(quiet(searching(**WITH_SESSIONS))))
    await running.sync()
    assert (await asked(running, "sessions/s1.jsonl", sources=[SESSIONS]))[1] == "FOUND"
    assert (await asked(running, "sessions/s1.jsonl", sources=[MEMORY]))[1] == "SOURCE_NOT_SEARCHED"
    assert (await asked(running, "memory/a.md", sources=[SESSIONS]))[1] == "SOURCE_NOT_SEARCHED"
    assert (await asked(running, "memory/a.md", sources=[ENTRIES]))[1] == "SOURCE_NOT_SEARCHED"


async def test_markdown_that_is_no_source_is_not_configured(serve, home):
    home.write(a="a heron")
    running = await synced(serve, searching(**{**WITH_SESSIONS, "sources": ["sessions"]}))
    assert (await asked(running, "memory/a.md"))[1] == "SOURCE_NOT_CONFIGURED"


async def test_the_condition_that_excludes_a_file_is_named(serve, home):
    home.put("memory/2026-02-03.md", "---\ntags: [boats]\n---\na heron\n")
    running = await synced(serve)
    matching = {"path_prefixes": ["memory/2026"], "front_matter": [{"key": "tags", "values": ["boats"]}]}
    dates = {"since": "2026-02", "until": "2026-02"}
    assert (await asked(running, "memory/2026-02-03.md", filter={**matching, **dates}))[1] == "FOUND"
    for condition, rule in (
        ({"since": "2026-05"}, "since 2026-05-01"),
        ({"until": "2025"}, "until 2025-12-31"),
        ({"path_prefixes": ["memory/b", "projects/"]}, "path_prefixes memory/b, projects/"),
        ({"front_matter": [{"key": "tags", "values": ["birds"]}]}, "front_matter tags: birds"),
    ):
        answer, reason = await asked(running, "memory/2026-02-03.md", filter={**matching, **condition})
        assert (reason, answer.rule) == ("FILTERED", rule)


async def test_a_text_without_a_word_of_the_query_does_not_match(serve, home):
    home.write(a="a heron", b="a crane")
    running = await synced(serve)
    answer, reason = await asked(running, "memory/b.md", mode=KEYWORD)
    assert (reason, answer.chunk.start_line, answer.chunk.end_line) == ("NO_MATCH", 1, 1)
    assert "none of the query's words" in answer.explanation


async def test_a_text_without_a_vector_does_not_match_in_vector_search(serve, home, provider):
    fault = Fault(status=400, body={"error": {"message": "cannot read it"}})
    provider.refuse = lambda texts: fault if any("weir" in text for text in texts) else None
    home.write(a="a heron", b="a heron by the weir")
    running = await synced(serve, by_meaning(provider))
    assert (await asked(running, "memory/a.md", mode=VECTOR))[1] == "FOUND"
    answer, reason = await asked(running, "memory/b.md", mode=VECTOR)
    assert reason == "NO_MATCH"
    assert "vector" in answer.explanation


async def test_a_text_beyond_the_candidates_of_the_retriever_has_its_rank_there(serve, home):
    for number in range(80):
        home.put(f"memory/n{number:02}.md", "heron " + "reeds " * (number + 1))
    home.put("memory/z.md", "crane " * 300)
    for number in range(90):
        home.put(f"memory/x{number:02}.md", "gulls")
    running = await synced(serve)
    answer, reason = await asked(running, "memory/n79.md", max_results=1)
    assert (reason, answer.max_rank) == ("NOT_RETRIEVED", 50)
    assert 70 <= answer.rank <= 80
    assert answer.chunk.score_detail.text > 0


async def test_a_score_below_the_minimum_is_named_with_the_minimum(serve, home):
    home.write(a="a heron", b="heron " + "reeds " * 300)
    running = await synced(serve)
    answer, reason = await asked(running, "memory/b.md", min_score=0.9)
    assert (reason, answer.limit) == ("BELOW_MIN_SCORE", 0.9)
    assert answer.value == pytest.approx(answer.chunk.score)
    assert answer.value < 0.9
    assert (await asked(running, "memory/b.md", min_score=answer.value - 1e-9))[1] == "FOUND"


async def test_a_cosine_below_that_of_the_model_is_named_with_the_cosine(serve, home, provider):
    home.write(a="a heron in the reeds", b="violin ladder pepper castle", c="soup tram lamp copper")
    running = await synced(serve, by_meaning(provider))
    answer, reason = await asked(running, "memory/b.md", "heron reeds", mode=VECTOR)
    assert reason == "BELOW_CUTOFF"
    assert answer.value == pytest.approx(answer.chunk.score_detail.vector)
    assert answer.value < answer.limit


async def test_a_text_below_the_last_result_has_its_rank_and_the_last_score(serve, home):
    for number in range(9):
        home.put(f"memory/n{number}.md", "heron " + "reeds " * 10 * (number + 1))
    running = await synced(serve)
    (last,) = (await running.search("heron", max_results=1)).results
    answer, reason = await asked(running, "memory/n8.md", max_results=1)
    assert (reason, answer.rank, answer.max_rank) == ("BELOW_MAX_RESULTS", 9, 1)
    assert (answer.limit, answer.value) == (last.score, answer.chunk.score)
    assert (await asked(running, "memory/n8.md", max_results=9))[1] == "FOUND"


async def test_mmr_moves_a_repetition_down(serve, home):
    home.write(a="heron ferry lamp", b="heron ferry lamp", c="heron lamp harbour bread soup")
    running = await synced(serve, searching(query={"hybrid": {"mmr": {"enabled": True, "lambda": 0.3}}}))
    answer, reason = await asked(running, "memory/b.md", "heron lamp", max_results=2)
    assert (reason, answer.rank, answer.max_rank) == ("DIVERSITY", 3, 2)


async def test_adjacent_chunks_of_one_file_move_down(serve, home):
    line = "the heron stands near the weir and waits for a fish\n"
    home.write(a=line * 200, b=line * 20 + "gulls " * 10)
    running = await synced(serve)
    results = (await running.search("heron weir", max_results=20, explain=True)).results
    rank, moved = next((n, each) for n, each in enumerate(results, 1) if each.score_detail.HasField("adjacent"))
    most = next(n for n, each in enumerate(results) if each.path == "memory/b.md")
    assert rank > most
    answer, reason = await asked(running, "memory/a.md", "heron weir", line=moved.start_line + 10, max_results=most + 1)
    assert (reason, answer.rank) == ("ADJACENT", rank)
    assert answer.chunk.score_detail.adjacent == moved.score_detail.adjacent


async def test_a_place_is_reserved_for_another_source(serve, home):
    home.write(a="a heron", b="a heron", c="a heron")
    home.say("s1.jsonl", '{"type":"message","message":{"role":"user","content":"the heron ' + "reeds " * 80 + '"}}\n')
    running = await synced(serve, searching(**WITH_SESSIONS))
    found = {result.path for result in (await running.search("heron", max_results=3)).results}
    assert "sessions/s1.jsonl" in found
    (left_out,) = {"memory/a.md", "memory/b.md", "memory/c.md"} - found
    answer, reason = await asked(running, left_out, max_results=3)
    assert (reason, answer.rank) == ("RESERVED", 3)


async def test_the_reranker_moves_a_result_down(serve, home):
    key = "sk-of-this-test"
    with fake_reranker("jina", [key]) as server:
        server.score = lambda _query, document: min(1.0, len(document) / 200)
        home.write(a="heron ferry", b="the heron and the ferry " + "in the reeds of the weir " * 6)
        block = {"provider": "http", "baseUrl": server.url, "model": server.model, "apiKey": key, "timeoutMs": 20_000}
        running = await synced(serve, {"memoryd": {"rerank": {**block, "weight": 1}}})
        answer, reason = await asked(running, "memory/a.md", "heron ferry", max_results=1)
        assert (reason, answer.rank, answer.max_rank) == ("RERANKED", 1, 1)
        assert answer.chunk.score_detail.HasField("rerank")
        assert (await asked(running, "memory/b.md", "heron ferry", max_results=1))[1] == "FOUND"


async def test_an_answer_that_is_withheld_is_named_with_its_confidence(serve, home):
    home.write(a="a heron")
    running = await synced(serve)
    answer, reason = await asked(running, "memory/a.md", "heron unheard unseen", abstain_below=1.0)
    assert (reason, answer.rank, answer.limit) == ("ABSTAINED", 1, 1.0)
    assert answer.value == answer.info.confidence


async def test_a_snippet_for_which_no_room_is_left_is_named(serve, home):
    home.write(a="a heron", b="heron " + "reeds " * 30)
    running = await synced(serve)
    answer, reason = await asked(running, "memory/b.md", max_total_chars=5)
    assert (reason, answer.rank, answer.max_rank) == ("TEXT_LIMIT", 2, 1)


async def test_a_line_belongs_to_the_chunk_that_has_it(serve, home):
    parts = [f"# Part {n}\n\n" + f"word{n} " * 300 for n in range(3)]
    home.write(a="\n\n".join(parts))
    running = await synced(serve)
    answer, reason = await asked(running, "memory/a.md", "word0", line=11)
    assert reason == "NO_MATCH"
    assert answer.chunk.start_line <= 11 <= answer.chunk.end_line
    assert (await asked(running, "memory/a.md", "word0"))[1] == "FOUND"


async def test_a_line_of_a_transcript_without_a_message_has_no_text(serve, home):
    said = [json.dumps({"type": "message", "message": {"role": "user", "content": f"a heron {n}"}}) for n in range(2)]
    home.say("s1.jsonl", f'{said[0]}\n{{"type": "session"}}\n{said[1]}\n')
    running = await synced(serve, searching(**WITH_SESSIONS))
    reasons = [(await asked(running, "sessions/s1.jsonl", "crane", line=line))[1] for line in (1, 2, 3, 4)]
    assert reasons == ["NO_MATCH", "NO_TEXT", "NO_MATCH", "NO_TEXT"]
    assert (await asked(running, "sessions/s1.jsonl", line=3))[1] == "FOUND"


async def test_the_fields_of_both_requests_are_checked(serve, home):
    running = await synced(serve)
    search = pb.MemorySearchRequest(agent_id="other", min_score=2, session_key="agent:other:x")
    request = pb.ExplainMissRequest(agent_id="main", search=search, path=" ", line=0)
    violations = {"search.query", "search.min_score", "search.agent_id", "search.session_key", "path", "line"}
    call = running.stub.ExplainMiss(request, timeout=TIMEOUT)
    await check_refused(call, "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations)


async def test_qmd_does_not_explain_its_ranking(serve, qmd_home, fake):
    running = await serve(qmd_settings(fake))
    await check_refused(ask(running, "memory/a.md"), "UNIMPLEMENTED", "NOT_IMPLEMENTED", mentions="qmd")


async def test_an_explanation_starts_no_sync_and_counts_no_session(serve, home):
    home.write(a="a heron")
    running = await synced(serve)
    before = len(running.runs())
    await asked(running, "memory/a.md", session_key="agent:main:telegram:1")
    assert len(running.runs()) == before


WORDS = ["heron", "ferry", "lamp", "weir", "E1042", "the", "crane"]
texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.sampled_from(WORDS).map(
    lambda word: f"{word} " * 300
)
files = st.dictionaries(
    st.sampled_from([f"memory/{name}.md" for name in ("a", "b", "2026-05-01", "c/d")] + ["MEMORY.md"]),
    st.lists(texts, max_size=6).map("\n\n".join),
    max_size=5,
)
searches = st.fixed_dictionaries(
    {"query": st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)},
    optional={
        "mode": st.sampled_from([HYBRID, KEYWORD, VECTOR]),
        "max_results": st.integers(1, 4),
        "min_score": st.sampled_from([0.0, 0.4, 0.9]),
        "abstain_below": st.sampled_from([0.2, 0.9]),
        "max_total_chars": st.sampled_from([5, 50]),
        "sources": st.sampled_from([[MEMORY], [SESSIONS], [MEMORY, SESSIONS]]),
        "filter": st.sampled_from([{"path_prefixes": ["memory/"]}, {"since": "2026-05-01", "until": "2026-05-01"}]),
    },
)
lines = st.none() | st.integers(1, 9)
MMR = {"query": {"hybrid": {"mmr": {"enabled": True, "lambda": 0.4}, "candidateMultiplier": 2}}}


@pytest.mark.parametrize(
    "more", [WITH_SESSIONS, {}, MMR, {**MMR, **WITH_SESSIONS}], ids=["sessions", "plain", "mmr", "both"]
)
@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(memory=st.tuples(files, texts), steps=st.lists(searches, min_size=1, max_size=4), line=lines)
async def test_the_explanation_agrees_with_the_search(indexed, more, memory, steps, line):
    running, (corpus, said) = await indexed(more), memory
    for file in running.home.workspace.rglob("*.md"):
        file.unlink()
    for path, text in corpus.items():
        running.home.put(path, text)
    running.home.say("s1.jsonl", json.dumps({"type": "message", "message": {"role": "user", "content": said}}) + "\n")
    await running.sync()
    for fields in steps:
        results = await results_of(running, fields)
        if results is None:
            continue
        for path in (*corpus, "sessions/s1.jsonl", "memory/none.md"):
            answer, reason = await asked(running, path, line=line, **fields)
            own = [
                rank
                for rank, result in enumerate(results, 1)
                if result.path == path and (line is None or result.start_line <= line <= result.end_line)
            ]
            assert (reason == "FOUND") == bool(own)
            if own:
                assert (answer.rank, answer.chunk) == (own[0], results[own[0] - 1])
            else:
                check_numbers(answer, reason, results, fields)


async def results_of(running, fields):
    """Return the results of a search; None if it fails, because there is no vector yet."""
    try:
        return list((await running.search(explain=True, **fields)).results)
    except grpc.aio.AioRpcError as error:
        failure = refusal(error)
    assert fields["mode"] == VECTOR
    if MEMORY in fields.get("sources", [MEMORY]):
        found = await refused(ask(running, "memory/none.md", **fields))
        assert (found.code, found.reason, found.message) == (failure.code, failure.reason, failure.message)
    return None


def check_numbers(answer, reason, results, fields):
    """Check that the numbers of an answer are those of the step that it names."""
    most = fields.get("max_results", 6)
    if reason in {"BELOW_MIN_SCORE", "BELOW_CUTOFF", "ABSTAINED"}:
        assert answer.value < answer.limit
    if reason == "BELOW_MIN_SCORE":
        assert answer.limit == fields["min_score"]
    if reason == "BELOW_MAX_RESULTS":
        assert answer.rank > answer.max_rank == most
        if results and "max_total_chars" not in fields:
            assert answer.limit == results[-1].score
            assert len(results) == most
    if reason == "RESERVED":
        assert answer.rank <= most or answer.info.vector_candidates
    if reason == "NO_MATCH":
        assert not answer.chunk.score_detail.text
    if reason == "NOT_ON_DISK":
        assert answer.path == "memory/none.md"
    assert reason not in {"NOT_MEMORY", "LINK", "EXCLUDED", "PENDING", "FAILED", "FORGOTTEN", "RERANKED"}


@pytest.fixture
def indexed(serve, provider):
    """Start one daemon for all examples of a test."""
    started = []

    async def indexed(more):
        if not started:
            started.append(await serve(by_meaning(provider, **more)))
        return started[0]

    return indexed
