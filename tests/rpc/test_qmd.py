"""The qmd backend over the fake and, if installed, the real command."""

import asyncio
import os

import pytest

from fake_qmd.installs import make_fake, real_qmd, tiny_models
from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from rpc.qmd_calls import BUILTIN, DIRECT, QMD, answered_by, ask, fallback_reason, qmd_settings, ready
from rpc.wire import TIMEOUT, Home, check_refused, empty_reason, kinds, paths, start
from waiting import eventually

# A search of the real command takes half a second on a quiet machine, and seconds on a busy one.
LIMITS = {"timeoutMs": 15_000}


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.slow)])
def command(request, tmp_path):
    """The path of a command."""
    if request.param == "fake":
        return make_fake(tmp_path / "bin").path
    if real_qmd() is None:
        pytest.skip("no qmd: `make qmd` installs it")
    return real_qmd()


@pytest.fixture
def models(command):
    """A command, and the variables that name models for it."""
    if real_qmd() == command and tiny_models() is None:
        pytest.skip("no models for qmd: `make qmd` makes them where their maker is present")
    return command, tiny_models() or {}


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.environ = {"PATH": os.defpath, "HOME": str(tmp_path), "QMD_FORCE_CPU": "1"}
    return home


@pytest.fixture
def qmd(serve, command):
    """Starts a daemon whose qmd is up to date."""

    async def begin(**qmd):
        running = await serve(qmd_settings(command, **{"limits": LIMITS, **qmd}))
        await ready(running)
        return running

    return begin


async def test_a_search_is_answered_by_qmd_and_says_so(qmd, home):
    home.write(harbour="# Harbour\n\nThe crane lifts.\n", garden="# Garden\n\nRoses.\n", sea="Sea.\n")
    running = await qmd()
    answer = await ask(running, "crane", explain=True)
    (hit,) = answer.results
    assert (hit.path, hit.snippet) == ("memory/harbour.md", "\nThe crane lifts.")
    assert (hit.start_line, hit.end_line, hit.snippet_start_line, hit.snippet_end_line) == (2, 3, 2, 3)
    assert 0 <= hit.score <= 1
    assert hit.source == memory_pb2.SOURCE_MEMORY
    assert hit.modified_time.seconds > 0
    info = answer.info
    assert (info.backend, info.served_mode) == (QMD, memory_pb2.SEARCH_MODE_KEYWORD)
    assert (info.keyword_candidates, info.stale, info.index_state) == (1, False, memory_pb2.INDEX_STATE_READY)
    assert not info.degradations
    assert [leg.note for leg in info.legs] == ["qmd search"]
    assert not answer.dropped
    assert not hit.score_detail.parts


@pytest.mark.skipif(real_qmd() is None, reason="no qmd: `make qmd` installs it")
async def test_the_real_command_answers(serve, home):
    """The rest of what is tested over it is slow."""
    home.write(harbour="# Harbour\n\nThe crane lifts.\n", sea="Sea.\n", garden="Roses.\n")
    running = await serve(qmd_settings(real_qmd(), limits=LIMITS))
    await ready(running)
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (QMD, ["memory/harbour.md"])


async def test_a_path_of_a_hit_can_be_read(qmd, home):
    home.put("MEMORY.md", "# Long\n\nzebra one\nzebra two\n")
    home.put("notes/other.md", "a zebra elsewhere\n")
    running = await qmd(paths=[{"path": "notes", "name": "My Notes"}])
    answer = await ask(running, "zebra")
    assert sorted(paths(answer)) == ["MEMORY.md", "qmd/my-notes/other.md"]
    for hit in answer.results:
        got = await running.get(hit.path, start_line=hit.start_line, line_count=hit.end_line - hit.start_line + 1)
        assert got.text == hit.snippet


ODD_NAMES = ["会议 记录.md", "Café.md", "Cafe\u0301 2.md", "a b#1 100%.md", "q?x&y=1.md", "UPPER.md", "emoji 🦩.md"]


async def test_names_are_found_and_read_as_they_are(qmd, home):
    for name in ODD_NAMES:
        home.put(f"memory/{name}", f"# Note\n\nflamingo in {name}\n")
    running = await qmd(limits={**LIMITS, "maxResults": 20})
    answer = await ask(running, "flamingo", max_results=20)
    assert sorted(paths(answer)) == sorted(f"memory/{name}" for name in ODD_NAMES)
    for hit in answer.results:
        assert "flamingo" in (await running.get(hit.path)).text


async def test_all_scripts_are_searched(qmd, home):
    home.write(zh="# 会议\n\n今天我们讨论了数据库迁移计划\n", other="nothing of it\n")
    running = await qmd()
    assert paths(await ask(running, "数据库")) == ["memory/zh.md"]


async def test_the_index_outlives_the_daemon(qmd, serve, home, command):
    home.write(a="a crane\n")
    await (await qmd()).stop()
    again = await serve(qmd_settings(command, limits=LIMITS))
    answer = await ask(again, "crane")
    assert (answer.info.backend, paths(answer)) == (QMD, ["memory/a.md"])
    # Nobody knows yet whether the files are as they were.
    assert answer.info.stale


@pytest.mark.slow
async def test_searches_are_answered_during_an_update(qmd, home):
    home.many(200)
    running = await qmd()
    home.many(200, "more")
    sync = asyncio.ensure_future(running.synced())
    answers = await asyncio.gather(*(ask(running, f"unique{n}") for n in range(150, 156)))
    assert [answer.info.backend for answer in answers] == [QMD] * 6
    assert all(any(path.endswith(f"/{n:05}.md") for path in paths(answer)) for n, answer in enumerate(answers, 150))
    await sync
    assert len(paths(await ask(running, "unique170"))) == 2


async def test_sync_brings_qmd_up_to_date_before_it_completes(qmd, home):
    home.write(a="a crane\n")
    running = await qmd()
    home.write(b="a second crane\n")
    (home.workspace / "memory" / "a.md").write_text("a heron\n")
    await running.sync()
    assert paths(await ask(running, "crane")) == ["memory/b.md"]
    assert paths(await ask(running, "heron")) == ["memory/a.md"]


async def test_a_file_that_is_gone_or_rewritten_is_not_shown(qmd, home):
    home.write(gone="a crane\n", empty="a crane\n", changed="# Old\n\na crane\n", kept="a crane\n")
    running = await qmd()
    memory = home.workspace / "memory"
    (memory / "gone.md").unlink()
    (memory / "empty.md").write_text("")
    (memory / "changed.md").write_text("something else\n")
    answer = await ask(running, "crane")
    assert (paths(answer), answer.info.stale) == (["memory/kept.md"], True)
    (memory / "kept.md").unlink()
    assert empty_reason(await ask(running, "crane")) == "FILES_GONE"


def holding(folder, word):
    """The files below a folder that hold a word."""
    return [file.name for file in folder.rglob("*") if file.is_file() and word.encode() in file.read_bytes()]


async def test_a_deleted_file_leaves_qmds_files_with_the_next_sync(qmd, home):
    home.write(gone="a secret of zanzibar\n", changed="another of zanzibar\n", kept="nothing\n")
    transcripts = home.state_dir / "agents" / "main" / "sessions"
    transcripts.mkdir(parents=True)
    (transcripts / "s.jsonl").write_text('{"type":"message","message":{"role":"user","content":"off to zanzibar"}}\n')
    running = await qmd(sessions={"enabled": True})
    folder = home.state_dir / "agents" / "main" / "qmd"
    assert holding(folder, "zanzibar")
    (home.workspace / "memory" / "gone.md").unlink()
    (transcripts / "s.jsonl").unlink()
    home.write(changed="nothing of it\n")
    await running.sync()
    assert holding(folder, "zanzibar") == []


async def test_a_note_that_has_moved_is_shown_where_it_is(qmd, home):
    home.write(a="# Title\n\na crane stands here\n")
    running = await qmd()
    home.write(a="one\ntwo\nthree\n# Title\n\na crane stands here\n")
    answer = await ask(running, "crane")
    (hit,) = answer.results
    assert answer.info.stale
    assert "a crane stands here" in hit.snippet
    assert (await running.get(hit.path, start_line=hit.start_line, line_count=2)).text == hit.snippet


async def test_a_file_behind_a_link_is_neither_shown_nor_read(qmd, home, tmp_path):
    home.put("notes/real.md", "a crane\n")
    running = await qmd(paths=[{"path": "notes", "name": "notes"}])
    outside = tmp_path / "secret.md"
    outside.write_text("a crane\n")
    (home.workspace / "notes" / "real.md").unlink()
    (home.workspace / "notes" / "real.md").symlink_to(outside)
    assert paths(await ask(running, "crane")) == []
    await check_refused(
        running.stub.MemoryGet(pb.MemoryGetRequest(path="qmd/notes/real.md")), "PERMISSION_DENIED", "PATH_NOT_ALLOWED"
    )


@pytest.mark.parametrize(
    "path", ["qmd/notes/../../secret.md", "qmd/notes/.hidden.md", "qmd/notes/a.txt", "qmd/notes/", "qmd/other/a.md"]
)
async def test_nothing_else_can_be_read_through_a_collection(qmd, home, path):
    home.put("notes/a.txt", "text\n")
    home.put("notes/.hidden.md", "hidden\n")
    running = await qmd(paths=[{"path": "notes", "name": "notes"}])
    await check_refused(running.stub.MemoryGet(pb.MemoryGetRequest(path=path)), "PERMISSION_DENIED", "PATH_NOT_ALLOWED")


async def test_a_missing_file_of_a_collection_is_not_found(qmd, home):
    home.put("notes/a.md", "a crane\n")
    running = await qmd(paths=[{"path": "notes", "name": "notes"}])
    await check_refused(
        running.stub.MemoryGet(pb.MemoryGetRequest(path="qmd/notes/b.md")), "NOT_FOUND", "FILE_NOT_FOUND"
    )


async def test_a_session_out_of_scope_gets_nothing_and_hears_why(qmd, home):
    home.write(a="a crane\n")
    running = await qmd()
    for key in ("", "agent:main:slack:channel:c1", "agent:main:subagent:x"):
        answer = await ask(running, "crane", session_key=key)
        assert (list(answer.results), empty_reason(answer)) == ([], "SCOPE_DENIED")
        assert "memory.qmd.scope" in answer.info.empty_explanation
    assert paths(await ask(running, "crane", session_key=DIRECT)) == ["memory/a.md"]


async def test_an_empty_answer_says_why(qmd, home):
    home.write(a="a crane\n")
    running = await qmd()
    answer = await ask(running, "flamingo")
    assert (empty_reason(answer), answer.info.backend) == ("NO_MATCH", QMD)
    assert "all the words" in answer.info.empty_explanation
    answer = await ask(running, "crane", min_score=0.99)
    assert (empty_reason(answer), answer.info.dropped_by_min_score) == ("FILTERED_BY_SCORE", 1)


@pytest.mark.parametrize(
    "query", ["-c nosuch", "--help", "lex: crane", "a\nb", '"', "-crane", "C++ (x) AND", "*", "crane\0x"]
)
async def test_no_question_is_taken_for_something_else(qmd, home, query):
    home.write(a="a crane\n")
    running = await qmd()
    assert (await ask(running, query)).info.backend == QMD


async def test_limits_bound_what_comes_back(qmd, home):
    home.write(**{f"n{n}": f"# Note\n\ncrane {'long ' * 60}{n}\n" for n in range(8)})
    running = await qmd(limits={**LIMITS, "maxResults": 3, "maxSnippetChars": 50, "maxInjectedChars": 120})
    answer = await ask(running, "crane", max_results=50)
    assert 1 < len(answer.results) <= 3
    assert all(len(hit.snippet) <= 50 for hit in answer.results)
    assert sum(len(hit.snippet) for hit in answer.results) <= 120


async def test_citations_stand_under_the_snippets(qmd, home):
    home.write(a="a crane\n")
    running = await qmd(citations="on")
    (hit,) = (await ask(running, "crane")).results
    assert hit.snippet.endswith(f"\n\nSource: {hit.citation}")
    assert hit.citation == "memory/a.md#L1"


async def test_old_notes_lose_by_their_age(qmd, home):
    for day in ("2020-01-01", "2026-01-01"):
        home.put(f"memory/{day}.md", "a crane\n")
    home.write(**{f"other{n}": "nothing\n" for n in range(6)})
    decay = {"query": {"hybrid": {"temporalDecay": {"enabled": True, "halfLifeDays": 1000}}}}
    running = await qmd(memory_search=decay)
    answer = await ask(running, "crane", explain=True)
    scores = {hit.path: hit.score for hit in answer.results}
    assert scores["memory/2020-01-01.md"] < scores["memory/2026-01-01.md"]
    assert all(0 < hit.score_detail.decay <= 1 for hit in answer.results)


async def test_transcripts_are_exported_searched_and_read(qmd, home):
    folder = home.state_dir / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    said = '{"type":"message","message":{"role":"user","content":"my flamingo, TOKEN=abcdefghijklmnopqrstuvwxyz"}}\n'
    (folder / "s1.jsonl").write_text(said)
    home.write(a="a flamingo\n")
    running = await qmd(sessions={"enabled": True})
    answer = await ask(running, "flamingo")
    sources = {hit.path: hit.source for hit in answer.results}
    assert sources == {"memory/a.md": memory_pb2.SOURCE_MEMORY, "qmd/sessions/s1.md": memory_pb2.SOURCE_SESSIONS}
    text = (await running.get("qmd/sessions/s1.md")).text
    assert "User: my flamingo" in text
    assert "abcdefghijklmnop" not in text
    assert paths(await ask(running, "flamingo", sources=[memory_pb2.SOURCE_SESSIONS])) == ["qmd/sessions/s1.md"]
    (folder / "s1.jsonl").unlink()
    await running.sync()
    assert paths(await ask(running, "flamingo")) == ["memory/a.md"]
    await check_refused(
        running.stub.MemoryGet(pb.MemoryGetRequest(path="qmd/sessions/s1.md")), "NOT_FOUND", "FILE_NOT_FOUND"
    )


async def test_a_source_that_no_collection_holds_is_reported(qmd, home):
    home.write(a="a crane\n")
    running = await qmd()
    answer = await ask(running, "crane", sources=[memory_pb2.SOURCE_SESSIONS])
    assert (list(answer.results), kinds(answer.info.degradations)) == ([], ["SOURCE_SKIPPED"])


async def test_extra_paths_are_searched_as_the_builtin_engine_would(qmd, home, tmp_path):
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "far.md").write_text("a crane\n")
    running = await qmd(memory_search={"extraPaths": [str(extra)]})
    assert paths(await ask(running, "crane")) == ["../extra/far.md"]
    assert (await running.get("../extra/far.md")).text == "a crane\n"


async def test_patterns_of_extra_paths_hold_with_qmd(qmd, home, tmp_path):
    for name in ("docs/a.md", "docs/b.txt", "src/c.md"):
        (tmp_path / "extra" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "extra" / name).write_text("a crane\n")
    running = await qmd(memory_search={"extraPaths": [{"path": str(tmp_path / "extra"), "pattern": "docs/**"}]})
    assert paths(await ask(running, "crane")) == ["../extra/docs/a.md"]


async def test_only_the_workspaces_memory_is_indexed(qmd, home):
    home.put("README.md", "a crane\n")
    home.put("other/x.md", "a crane\n")
    home.put("MEMORY.md", "a crane\n")
    running = await qmd()
    assert paths(await ask(running, "crane")) == ["MEMORY.md"]


async def test_the_home_bears_the_names_that_users_know(qmd, home):
    await qmd()
    folder = home.state_dir / "agents" / "main" / "qmd"
    assert (folder / "xdg-cache" / "qmd" / "index.sqlite").is_file()
    assert "memory-root:" in (folder / "xdg-config" / "qmd" / "index.yml").read_text()
    assert folder.stat().st_mode & 0o077 == 0


async def test_status_names_who_answers(qmd, home, command):
    running = await qmd()
    status = await running.status(probe=True)
    assert (status.configured_backend, status.active_backend) == (QMD, QMD)
    assert (status.qmd.configured, status.qmd.available, status.qmd.reason) == (True, True, "")
    assert status.qmd.version.startswith("2.")
    assert not status.degradations


async def test_a_configuration_that_vanished_is_repaired(qmd, home):
    home.write(a="a crane\n")
    running = await qmd()
    (home.state_dir / "agents" / "main" / "qmd" / "xdg-config" / "qmd" / "index.yml").unlink()
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (QMD, ["memory/a.md"])


async def test_an_index_that_is_damaged_is_rebuilt(qmd, home, short_trial_pauses):
    home.write(a="a crane\n")
    running = await qmd()
    for file in (home.state_dir / "agents" / "main" / "qmd" / "xdg-cache" / "qmd").glob("index.sqlite*"):
        file.write_bytes(b"this is no database at all, whatever its name says" * 100)
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/a.md"])
    assert fallback_reason(answer)
    await running.sync()
    assert paths(await answered_by(running, QMD)) == ["memory/a.md"]


async def test_qmd_without_fallback_keeps_no_second_index(qmd, home):
    home.write(a="a crane\n", b="a heron\n")
    running = await qmd(fallback="none")
    answer = await ask(running, "crane")
    assert (answer.info.backend, paths(answer)) == (QMD, ["memory/a.md"])
    status = await running.status()
    assert (status.index.files, status.index.chunks, status.index.dirty) == (2, 0, False)
    home.write(c="a second crane\n")
    status = await running.status()
    assert (status.index.dirty, status.index.pending_files) == (True, 1)
    completed = await running.synced()
    assert (completed.indexed_files, completed.unchanged_files, completed.changed) == (1, 2, True)
    assert len(paths(await ask(running, "crane"))) == 2
    await check_refused(
        running.stub.MemorySearch(
            pb.MemorySearchRequest(query="x", session_key=DIRECT, min_revision=1), timeout=TIMEOUT
        ),
        "DEADLINE_EXCEEDED",
        "REVISION_NOT_REACHED",
    )


async def test_a_search_can_wait_for_what_was_just_written(qmd, home):
    running = await qmd()
    appended = await running.append("a new crane")
    answer = await ask(running, "crane", min_revision=appended.index_revision)
    assert (answer.info.backend, len(answer.results)) == (QMD, 1)
    assert answer.info.index_revision >= appended.index_revision


async def test_changes_are_taken_in_by_themselves(home, command):
    home.write(a="a crane\n")
    update = {"onBoot": True, "debounceMs": 10}
    running = await start(
        home,
        qmd_settings(command, limits=LIMITS, update=update, memory_search={"sync": {"watchDebounceMs": 50}}),
        background=True,
    )
    try:
        assert paths(await answered_by(running, QMD)) == ["memory/a.md"]
        home.write(b="a second crane\n")

        async def look():
            return len(paths(await ask(running, "crane"))) == 2

        await eventually(look, seconds=30)
    finally:
        await running.stop()


async def test_the_start_can_wait_for_the_first_update(home, command):
    home.write(a="a crane\n")
    update = {"onBoot": True, "waitForBootSync": True}
    running = await start(home, qmd_settings(command, limits=LIMITS, update=update), background=True)
    try:
        answer = await ask(running, "crane")
        assert (answer.info.backend, paths(answer)) == (QMD, ["memory/a.md"])
    finally:
        await running.stop()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("mode", "served"), [("vsearch", "VECTOR"), ("query", "HYBRID")])
async def test_meaning_is_searched_with_models(serve, home, models, mode, served):
    command, variables = models
    home.environ |= variables
    home.write(a="# Harbour\n\nthe crane lifts containers\n", b="# Garden\n\nroses and tulips\n")
    limits = {"timeoutMs": 60_000}
    running = await serve(qmd_settings(command, searchMode=mode, limits=limits, update={"embedTimeoutMs": 120_000}))
    events = [event async for event in running.stub.Sync(pb.SyncRequest(), timeout=120)]
    assert events[-1].HasField("completed")
    request = pb.MemorySearchRequest(query="crane lifts", session_key=DIRECT)
    answer = await running.stub.MemorySearch(request, timeout=60)
    assert (answer.info.backend, answer.info.served_mode) == (QMD, memory_pb2.SearchMode.Value(f"SEARCH_MODE_{served}"))
    assert "memory/a.md" in paths(answer)
    assert not answer.info.degradations
    # One leg alone, where the caller wants no more.
    request.mode = memory_pb2.SEARCH_MODE_KEYWORD
    answer = await running.stub.MemorySearch(request, timeout=60)
    assert (answer.info.served_mode, paths(answer)) == (memory_pb2.SEARCH_MODE_KEYWORD, ["memory/a.md"])


async def test_vectors_are_refused_where_none_are_made(qmd, home):
    running = await qmd()
    request = pb.MemorySearchRequest(query="x", session_key=DIRECT, mode=memory_pb2.SEARCH_MODE_VECTOR)
    await check_refused(running.stub.MemorySearch(request), "FAILED_PRECONDITION", "EMBEDDING_NOT_CONFIGURED")


OWN_FILTER = {"path_prefixes": ["memory/harbour"]}


async def test_the_builtin_engine_answers_a_search_with_a_filter(qmd, home):
    home.write(harbour="The crane lifts.\n", garden="A crane among roses.\n")
    running = await qmd()
    answer = await ask(running, "crane", filter=OWN_FILTER, explain=True)
    assert (answer.info.backend, paths(answer)) == (BUILTIN, ["memory/harbour.md"])
    assert answer.results[0].score_detail.parts
    assert fallback_reason(answer) == "qmd cannot filter"
    assert (await ask(running, "crane")).info.backend == QMD, "qmd has not failed"


async def test_a_search_with_a_filter_fails_if_there_is_no_builtin_index(serve, home, tmp_path):
    home.write(harbour="The crane lifts.\n")
    running = await serve(qmd_settings(make_fake(tmp_path / "bin").path, fallback="none"))
    await ready(running)
    request = pb.MemorySearchRequest(query="crane", session_key=DIRECT, filter=OWN_FILTER)
    refused = await check_refused(
        running.stub.MemorySearch(request, timeout=TIMEOUT), "UNAVAILABLE", "BACKEND_UNAVAILABLE"
    )
    assert "qmd cannot filter" in refused.message
