"""Arbitrary URIs, arguments and messages: each request is answered, and nothing outside is read or written."""

import asyncio
import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("mcp")

from memoryd_server.http.mcp_uris import make_uri, read_uri
from properties import examples
from rpc.mcp_clients import mcp_server, raw_client

SECRET = "the otter hides the key under the boathouse"
HARBOUR = "# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n"
ARGUMENTS = ("query", "maxResults", "sources", "since", "until", "pathPrefixes", "path", "startLine", "lineCount")
ARGUMENTS += ("text", "idempotencyKey", "maxTokens", "agentId", "filter", "")
ARGUMENTS += ("expectedSha256", "content", "oldText", "newText", "afterLine", "endLine", "deleteFile")

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
parts = st.one_of(
    st.sampled_from(("memory", "harbour.md", "link.md", "linked", "..", ".", "", "outside", "note.md", "MEMORY.md")),
    st.sampled_from(("%2e%2e", "..%2F..", "%00", "%", "%zz", "%ff", "\0", "~", "OUT", "sessions", "qmd")),
    texts,
)
paths = st.builds(lambda steps, separator: separator.join(steps), st.lists(parts, max_size=6), st.sampled_from("/\\"))
agents = st.one_of(st.sampled_from(("main", "", "MAIN", "..", "other", "main/..")), texts)
uris = st.one_of(
    st.builds("memory://{}/{}".format, agents, paths),
    st.builds(lambda agent, path: f"memory://{agent}/{quote(path, safe='')}", agents, paths),
    texts,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts | paths,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(ARGUMENTS) | texts, values, max_size=5)
tools = st.sampled_from(
    ("memory_search", "memory_get", "memory_append", "memory_edit", "memory_recall", "memory_status")
)
new_files = st.fixed_dictionaries({"path": paths, "expectedSha256": st.just(""), "content": texts})
tool_calls = st.tuples(tools, arguments) | st.tuples(st.just("memory_edit"), new_files)
with_fixtures = {"suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture], "deadline": None}

# Threads of the daemon, which runs in this process, use the `random` module while Hypothesis draws examples.
RANDOM_OF_THREADS = "ignore:Do not use the .random. module inside strategies"
pytestmark = [pytest.mark.attacks, pytest.mark.filterwarnings(RANDOM_OF_THREADS)]


@pytest.fixture
async def running(serve, home):
    home.write(harbour=HARBOUR)
    outside = home.root / "outside"
    outside.mkdir()
    (outside / "note.md").write_text(f"{SECRET}\n")
    (home.workspace / "memory" / "link.md").symlink_to(outside / "note.md")
    (home.workspace / "memory" / "linked").symlink_to(outside)
    running = await serve({"memoryd": {"writes": "edit"}})
    await running.sync()
    return running


@pytest.fixture
async def server(running):
    async with mcp_server(running) as server:
        yield server


def check_answer(message):
    assert ("result" in message) != ("error" in message)
    assert SECRET not in json.dumps(message)
    if "error" in message:
        assert message["error"]["code"] in {-32602, -32603}


def check_daemon(running, home):
    assert "fail-" not in running.log.getvalue()
    (note,) = (home.root / "outside").iterdir()
    assert (note.name, note.read_text()) == ("note.md", f"{SECRET}\n")


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=examples(100), **with_fixtures)
@given(uris=st.lists(uris, min_size=1, max_size=10))
async def test_any_uri_is_answered_and_leads_nowhere_outside(running, server, home, uris):
    async with raw_client(server) as raw:
        await raw.initialize()
        for uri in uris:
            for method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
                answer = await raw.request(method, {"uri": uri.replace("OUT", str(home.root / "outside"))})
                check_answer(answer)
                if method == "resources/read" and "result" in answer:
                    assert answer["result"]["contents"][0]["text"] == HARBOUR
    check_daemon(running, home)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=examples(100), **with_fixtures)
@given(calls=st.lists(tool_calls, min_size=1, max_size=8))
async def test_any_arguments_of_a_tool_are_answered(running, server, home, calls):
    async with raw_client(server) as raw:
        await raw.initialize()
        for tool, given_arguments in calls:
            answer = await raw.call(tool, **given_arguments)
            check_answer(answer)
            assert answer["result"]["content"][0]["text"]
    check_daemon(running, home)


async def until_answered(raw, request_id):
    """Read as long as a client does that writes at the same time."""
    while (await raw.receive()).get("id") != request_id:
        pass


@settings(max_examples=examples(100), **with_fixtures)
@given(
    messages=st.lists(
        values | st.dictionaries(st.sampled_from(("id", "method", "params", "jsonrpc")), values), max_size=5
    )
)
async def test_any_message_leaves_the_session_usable(running, server, home, messages):
    async with raw_client(server) as raw:
        await raw.initialize()
        answered = asyncio.ensure_future(until_answered(raw, "last"))
        for message in messages:
            await raw.send_bytes(json.dumps(message).encode())
            if isinstance(message, dict):
                await raw.send_bytes(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", **message}).encode())
        await raw.send({"id": "last", "method": "ping"})
        await answered
    check_daemon(running, home)


@given(path=st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(lambda path: path not in {".", ".."}))
def test_uri_of_any_path_names_that_path_and_has_no_part_that_programs_remove(path):
    uri = make_uri("main", path)
    assert read_uri(uri).path == path
    assert uri.isascii()
    assert not {"", ".", ".."} & set(uri.removeprefix("memory://").split("/"))
