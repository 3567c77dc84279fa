"""SessionContext gives a session its files and its agent the words and tools to recall with."""

import json

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memoryd.v1 import memory_pb2
from memoryd.v1 import memory_service_pb2 as pb
from properties import examples
from rpc.wire import TIMEOUT, check_refused, quiet, refused, trigger
from waiting import eventually

NOON = {"seconds": 1_770_552_000}  # 2026-02-08 12:00 UTC
MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"
YESTERDAYS, TODAYS = "memory/2026-02-07.md", "memory/2026-02-08.md"


async def ask(running, **request):
    request = {"now": NOON, "time_zone": "UTC", "session_key": MAIN, **request}
    return await running.stub.SessionContext(pb.SessionContextRequest(**request), timeout=TIMEOUT)


@pytest.fixture
def notes(home):
    home.put("MEMORY.md", "private")
    home.put(YESTERDAYS, "of yesterday")
    home.put(TODAYS, "of today")


async def test_the_private_main_session_loads_everything(serve, notes):
    reply = await ask(await serve())
    assert [(file.path, file.text) for file in reply.files] == [
        ("MEMORY.md", "private"),
        (YESTERDAYS, "of yesterday"),
        (TODAYS, "of today"),
    ]
    assert reply.main_session
    assert not reply.recall_prompt
    assert not reply.tool_schemas


@pytest.mark.parametrize(
    "key", ["", GROUP, "agent:main:work", "agent:main:telegram:direct:42", "agent:main:subagent:1"]
)
async def test_no_other_session_sees_the_long_term_memory(serve, notes, key):
    reply = await ask(await serve(), session_key=key, include_recall_prompt=True)
    assert [file.path for file in reply.files] == [YESTERDAYS, TODAYS]
    assert not reply.main_session
    assert b"MEMORY.md" not in reply.recall_prompt.encode()
    assert b"private" not in reply.SerializeToString()


@pytest.mark.parametrize(
    ("setting", "time_zone", "seconds", "logs"),
    [
        ("UTC", "", NOON["seconds"], (YESTERDAYS, TODAYS)),
        ("UTC", "Pacific/Kiritimati", NOON["seconds"], (TODAYS, "memory/2026-02-09.md")),
        ("America/Los_Angeles", "", NOON["seconds"] - 6 * 3600, ("memory/2026-02-06.md", YESTERDAYS)),
        # Clocks went forward on the day before, which had 23 hours.
        ("Europe/Berlin", "", 1_774_824_300, ("memory/2026-03-29.md", "memory/2026-03-30.md")),
        ("UTC", "", 1_835_481_600, ("memory/2028-02-29.md", "memory/2028-03-01.md")),
    ],
)
async def test_the_logs_are_those_of_the_session_s_days(serve, setting, time_zone, seconds, logs):
    running = await serve({"agents": {"defaults": {"userTimezone": setting}}})
    reply = await ask(running, session_key=GROUP, time_zone=time_zone, now={"seconds": seconds})
    assert tuple(file.path for file in reply.files) == logs
    assert not any(file.exists for file in reply.files)


async def test_the_budget_holds_and_what_was_cut_can_be_read(serve, home):
    home.put("MEMORY.md", "".join(f"fact {n}\n" for n in range(100)))
    home.put(TODAYS, "".join(f"event {n}\n" for n in range(100)))
    running = await serve()
    long_term, _, today = (await ask(running, max_total_chars=200)).files
    assert len(long_term.text) + len(today.text) <= 200
    assert (long_term.truncated, today.truncated) == (True, True)
    assert long_term.text.startswith("fact 0\nfact 1\n")
    assert today.text.endswith("event 98\nevent 99\n")
    rest = await running.get("MEMORY.md", start_line=long_term.end_line + 1)
    assert rest.text.startswith(f"fact {long_term.end_line}\n")
    before = await running.get(TODAYS, line_count=today.start_line - 1)
    assert before.text.endswith(f"event {today.start_line - 2}")


async def test_appended_text_is_in_the_context_immediately(serve):
    running = await serve()
    await running.append("just now", path=TODAYS)
    assert (await ask(running)).files[-1].text == "just now\n"


@pytest.mark.folder_only("a document is not a link")
async def test_a_link_is_reported_and_not_followed(serve, home):
    (home.root / "outside").write_text("outside")
    (home.workspace / "MEMORY.md").symlink_to(home.root / "outside")
    file, *_ = (await ask(await serve())).files
    assert (file.text, file.exists) == ("", True)
    assert "link" in file.problem


@pytest.mark.parametrize(
    ("request_", "section", "tools"),
    [
        ({}, True, ["memory_search", "memory_get"]),
        ({"prompt_mode": pb.PROMPT_MODE_FULL}, True, ["memory_search", "memory_get"]),
        ({"prompt_mode": pb.PROMPT_MODE_MINIMAL}, False, ["memory_search", "memory_get"]),
        ({"prompt_mode": pb.PROMPT_MODE_NONE}, False, ["memory_search", "memory_get"]),
        ({"tools": ["exec", "memory_get", "memory_search", "read"]}, True, ["memory_search", "memory_get"]),
        ({"tools": ["memory_search", "read"]}, True, ["memory_search"]),
        ({"tools": ["memory_get"]}, True, ["memory_get"]),
        ({"tools": ["exec", "read"]}, False, []),
        ({"include_recall_prompt": False}, False, []),
    ],
)
async def test_the_section_is_for_full_prompts_and_for_tools_that_are_there(serve, request_, section, tools):
    reply = await ask(await serve(), **{"include_recall_prompt": True, **request_})
    assert bool(reply.recall_prompt) is section
    assert [tool.name for tool in reply.tool_schemas] == tools
    assert all(tool.name in reply.recall_prompt for tool in reply.tool_schemas) or not section


@pytest.mark.parametrize(
    ("setting", "asked", "key", "cites"),
    [
        ("auto", memory_pb2.CITATION_MODE_UNSPECIFIED, MAIN, True),
        ("auto", memory_pb2.CITATION_MODE_UNSPECIFIED, GROUP, False),
        ("off", memory_pb2.CITATION_MODE_UNSPECIFIED, MAIN, False),
        ("on", memory_pb2.CITATION_MODE_UNSPECIFIED, GROUP, True),
        ("off", memory_pb2.CITATION_MODE_ON, GROUP, True),
        ("on", memory_pb2.CITATION_MODE_OFF, MAIN, False),
    ],
)
async def test_paths_are_cited_where_searches_cite_them(serve, setting, asked, key, cites):
    running = await serve({"memory": {"citations": setting}})
    reply = await ask(running, include_recall_prompt=True, session_key=key, citations=asked)
    assert ("path#line" in reply.recall_prompt) is cites
    assert ("do not name files" in reply.recall_prompt) is not cites


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def strategy(value):
    if value["type"] == "string":
        return TEXTS.filter(lambda text: text.strip()).map(lambda text: text[: value["maxLength"]])
    if value["type"] == "integer":
        return st.integers(value["minimum"], value["maximum"])
    return st.floats(value["minimum"], value["maximum"])


def fitting(tool):
    """Arguments that fit a tool's schema."""
    schema = json.loads(tool.parameters_json)
    arguments = {key: strategy(value) for key, value in schema["properties"].items()}
    required = {key: arguments.pop(key) for key in schema["required"]}
    found = []

    @settings(
        max_examples=examples(40),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.fixed_dictionaries(required, optional=arguments))
    def collect(given_):
        found.append(given_)

    collect()
    return found


async def test_the_service_accepts_any_arguments_that_fit_a_tool_schema(serve, home):
    home.put("MEMORY.md", "the harbour")
    running = await serve()
    await running.synced()
    search, get = (await ask(running, include_recall_prompt=True)).tool_schemas
    for arguments in fitting(search):
        await running.stub.MemorySearch(ParseDict(arguments, pb.MemorySearchRequest()), timeout=TIMEOUT)
    for arguments in fitting(get):
        call = running.stub.MemoryGet(ParseDict(arguments, pb.MemoryGetRequest()), timeout=TIMEOUT)
        # Whatever the path: it is one that cannot be read, not one that cannot be asked for.
        assert (await refused(call)).reason in {"PATH_NOT_ALLOWED", "FILE_NOT_FOUND"}
        readable = {**arguments, "path": "MEMORY.md"}
        await running.stub.MemoryGet(ParseDict(readable, pb.MemoryGetRequest()), timeout=TIMEOUT)


async def test_a_session_s_start_brings_the_index_up_to_date_once(serve, home):
    settings_ = quiet(onSessionStart=True)
    running = await serve(settings_, background=True)
    await eventually(lambda: running.logged("complete-sync"))
    before = len(running.logged("complete-sync"))
    home.write(late="walrus")
    await ask(running, session_key=MAIN)
    await eventually(lambda: len(running.logged("complete-sync")) > before)
    assert running.logged("complete-sync")[-1]["trigger"] == "SESSION_START"
    assert [r.path for r in (await running.search("walrus", session_key=MAIN)).results] == ["memory/late.md"]
    assert len(running.logged("complete-sync")) == before + 1


async def test_a_sync_at_a_session_s_start_says_so(serve, home):
    home.write(note="walrus")
    running = await serve()
    started, *_, ended = await running.sync(trigger=2, session_key=MAIN)
    assert trigger(started.started.trigger) == "SESSION_START"
    assert ended.completed.indexed_files == 1


async def test_a_start_that_was_synced_is_not_synced_again_by_the_first_search(serve, home):
    home.write(note="walrus")
    running = await serve(quiet(onSessionStart=True), background=True)
    await eventually(lambda: running.logged("complete-sync"))
    await running.sync(trigger=2, session_key=MAIN)
    await running.search("walrus", session_key=MAIN)
    await ask(running, session_key=MAIN)
    await running.search("walrus", session_key=GROUP)
    await eventually(lambda: len(running.logged("complete-sync")) == 3)
    assert [run["trigger"] for run in running.logged("complete-sync")[1:]] == ["SESSION_START"] * 2


@pytest.mark.parametrize(
    ("request_", "violations"),
    [
        ({"session_key": "x" * 1_025}, {"session_key"}),
        ({"time_zone": "Mars/Olympus"}, {"time_zone"}),
        ({"now": {"seconds": 10**15}}, {"now"}),
        ({"max_total_chars": 0}, {"max_total_chars"}),
        ({"max_total_chars": -1, "prompt_mode": 9, "citations": 9}, {"max_total_chars", "prompt_mode", "citations"}),
        ({"tools": ["x"] * 1_025}, {"tools"}),
    ],
)
async def test_bad_fields_are_all_named(serve, request_, violations):
    await check_refused(ask(await serve(), **request_), "INVALID_ARGUMENT", "INVALID_REQUEST", violations=violations)


async def test_the_user_file_and_the_notes_of_both_days_are_loaded(serve, home, notes):
    home.put("USER.md", "born in Oslo")
    home.put("memory/2026-02-07-garden.md", "roses")
    running = await serve()
    assert [(file.path, file.text) for file in (await ask(running)).files] == [
        ("MEMORY.md", "private"),
        ("USER.md", "born in Oslo"),
        (YESTERDAYS, "of yesterday"),
        ("memory/2026-02-07-garden.md", "roses"),
        (TODAYS, "of today"),
    ]
    in_group = await ask(running, session_key=GROUP)
    assert b"Oslo" not in in_group.SerializeToString()
    assert [file.path for file in in_group.files] == [YESTERDAYS, "memory/2026-02-07-garden.md", TODAYS]


async def test_the_startup_context_selects_and_limits_the_notes(serve, home, notes):
    startup = {"dailyMemoryDays": 1, "maxFileChars": 4}
    running = await serve({"agents": {"defaults": {"startupContext": startup}}})
    assert [(file.path, file.text) for file in (await ask(running)).files] == [
        ("MEMORY.md", "private"),
        (TODAYS, "of t"),
    ]
    await running.daemon.reload(lambda: home.settings({"agents": {"defaults": {"startupContext": {"enabled": False}}}}))
    assert [file.path for file in (await ask(running)).files] == ["MEMORY.md"]
