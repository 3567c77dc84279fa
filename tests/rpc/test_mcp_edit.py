"""The tool memory_edit of the MCP server: who has it, what it writes, and its errors."""

import hashlib
import json
import math

import pytest

pytest.importorskip("mcp")

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.errors import InvalidRequest
from memoryd_server.http.mcp_arguments import TOOLS, make_request
from rpc.callers import bearer, new_token
from rpc.mcp_clients import client, mcp_server, owner_with, raw_client
from rpc.wire import TIMEOUT

EDITS = {"memoryd": {"writes": "edit"}}
HARBOUR = "# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n"
PATH = "memory/harbour.md"


@pytest.fixture
async def running(serve, home):
    home.write(harbour=HARBOUR)
    return await serve(EDITS, listen="127.0.0.1:0")


@pytest.fixture
async def server(running):
    async with mcp_server(running) as server:
        yield server


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def texts(result):
    (content,) = result.content
    return content.text


async def listed(server, *owner):
    async with client(server, *owner) as connected:
        return [tool.name for tool in (await connected.list_tools()).tools]


async def test_the_tool_is_listed_for_callers_that_may_edit_the_agent(running, server, home):
    assert list(TOOLS) == await listed(server)
    _, append = new_token(home, scopes=["append"])
    _, edit = new_token(home, "main", scopes=["edit"])
    assert "memory_edit" not in await listed(server, owner_with(append))
    assert "memory_edit" in await listed(server, owner_with(edit))
    assert "memory_edit" in await listed(server, owner_with(edit, " MAIN"))
    assert "memory_edit" not in await listed(server, owner_with(edit, "other"))
    async with client(server, owner_with(append)) as connected:
        refused = await connected.call_tool("memory_edit", {"path": PATH, "expectedSha256": "", "content": "x"})
    assert refused.structured_content["error"]["reason"] == "SCOPE_MISSING"


async def test_the_tool_is_not_listed_if_edits_are_disabled(serve, home):
    home.write(harbour=HARBOUR)
    running = await serve(listen="127.0.0.1:0")
    _, token = new_token(home, scopes=["edit"])
    async with mcp_server(running) as server:
        assert "memory_edit" not in await listed(server)
        async with client(server, owner_with(token)) as connected:
            assert "memory_edit" not in [tool.name for tool in (await connected.list_tools()).tools]
            arguments = {"path": PATH, "expectedSha256": sha256(HARBOUR), "content": "x"}
            refused = await connected.call_tool("memory_edit", arguments)
    assert refused.structured_content["error"]["reason"] == "EDITS_DISABLED"
    assert "memoryd.writes" in texts(refused)
    assert (home.workspace / PATH).read_text() == HARBOUR


async def test_a_reload_that_disables_edits_takes_the_tool_away_from_a_session(running, server):
    async with client(server) as connected:
        assert "memory_edit" in [tool.name for tool in (await connected.list_tools()).tools]
        await running.daemon.reload(lambda: running.home.settings({}, listen="127.0.0.1:0"))
        assert "memory_edit" not in [tool.name for tool in (await connected.list_tools()).tools]


async def test_the_tool_costs_at_most_350_tokens_and_says_that_it_can_destroy(server):
    async with raw_client(server) as raw:
        await raw.initialize()
        tools = (await raw.request("tools/list"))["result"]["tools"]
    cost = {tool["name"]: len(json.dumps(tool, separators=(",", ":"), ensure_ascii=False)) / 3.5 for tool in tools}
    # At the time of writing: 349 of 1,429.
    assert math.ceil(cost["memory_edit"]) <= 350
    assert math.ceil(sum(cost.values())) <= 1_500
    (hints,) = [tool["annotations"] for tool in tools if tool["name"] == "memory_edit"]
    assert hints == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": False,
    }


async def test_each_operation_changes_the_file_that_was_read(server, home):
    """Each edit uses the hash in the text of the result before it, as a model without structured content does."""
    file = home.workspace / PATH
    async with client(server) as connected:
        shown = texts(await connected.call_tool("memory_get", {"path": PATH}))

        async def edit(**arguments):
            nonlocal shown
            digest = shown.partition("(contentSha256 ")[2].partition(")")[0]
            result = await connected.call_tool("memory_edit", {"path": PATH, "expectedSha256": digest, **arguments})
            assert not result.is_error, texts(result)
            shown = texts(result)
            return result.structured_content

        done = await edit(oldText="40 tonnes", newText="50 tonnes")
        after = HARBOUR.replace("40", "50")
        assert file.read_text() == after
        assert (done["path"], done["startLine"], done["endLine"]) == (PATH, 3, 3)
        assert (done["citation"], done["contentSha256"]) == (f"{PATH}#L3-L3", sha256(after))
        assert shown == f"Edited: {PATH}#L3-L3 (contentSha256 {sha256(after)})"
        await edit(afterLine=0, text="---\n---")
        assert file.read_text() == f"---\n---\n{after}"
        await edit(startLine=1, endLine=2)
        assert (file.read_text(), shown.partition(" (")[0]) == (after, f"Edited: {PATH}")
        await edit(oldText="# Harbour\n\n", newText="", deleteFile=False, content=None)
        await edit(content="Empty.\n")
        assert file.read_text() == "Empty.\n"
        done = await edit(deleteFile=True)
        assert (done["deleted"], shown, file.exists()) == (True, f"Deleted: {PATH}", False)
        shown = ""
        await edit(content="New.\n")
        assert file.read_text() == "New.\n"


async def test_an_edit_is_searchable_and_in_the_history_with_the_name_of_the_token(running, server, home):
    _, token = new_token(home, scopes=["edit"], name="laptop")
    async with client(server, owner_with(token)) as connected:
        arguments = {"path": PATH, "expectedSha256": sha256(HARBOUR), "oldText": "crane", "newText": "zeppelin"}
        done = await connected.call_tool("memory_edit", arguments)
        found = await connected.call_tool("memory_search", {"query": "zeppelin"})
    assert [each["path"] for each in found.structured_content["results"]] == [PATH]
    request = pb.MemoryHistoryRequest(path=PATH)
    (version,) = (await running.stub.MemoryHistory(request, timeout=TIMEOUT, **bearer(token))).versions
    assert (version.version_id, version.caller) == (done.structured_content["versionId"], "laptop")


async def test_a_changed_file_is_an_error_with_its_current_hash(server, home):
    async with client(server) as connected:
        arguments = {"path": PATH, "expectedSha256": sha256("another text"), "content": "lost?"}
        changed = await connected.call_tool("memory_edit", arguments)
        absent = await connected.call_tool("memory_edit", {**arguments, "path": "memory/absent.md"})
        exists = await connected.call_tool("memory_edit", {**arguments, "expectedSha256": ""})
    for error in (changed, exists):
        assert error.is_error
        assert error.structured_content["error"]["reason"] == "CONTENT_CHANGED"
        assert error.structured_content["error"]["contentSha256"] == sha256(HARBOUR)
        assert f"Its contentSha256 is now {sha256(HARBOUR)}." in texts(error)
    assert "read the file again" in texts(changed)
    assert "exists already" in texts(exists)
    assert absent.structured_content["error"]["contentSha256"] == ""
    assert "does not exist" in texts(absent)
    assert (home.workspace / PATH).read_text() == HARBOUR


GROUPS = "give exactly one of content, oldText with newText, afterLine with text, startLine with endLine or deleteFile"
INVALID = [
    ({"content": "x"}, "expectedSha256: is required"),
    ({"expectedSha256": "x"}, f"arguments: {GROUPS}; given: none"),
    ({"deleteFile": False, "content": None}, f"{GROUPS}; given: none"),
    ({"content": "x", "oldText": "a", "newText": "b"}, f"{GROUPS}; given: content and oldText and newText"),
    ({"content": "x", "deleteFile": True}, f"{GROUPS}; given: content and deleteFile"),
    ({"oldText": "a"}, "newText: is required with oldText"),
    ({"text": "a"}, "afterLine: is required with text"),
    ({"startLine": 1}, "endLine: is required with startLine"),
    ({"deleteFile": "yes"}, "deleteFile: must be true or false"),
    ({"deleteFile": 1}, "deleteFile: must be true or false"),
    ({"content": ["x"]}, "content: must be a string"),
    ({"afterLine": "one", "text": "a"}, "afterLine: must be an integer"),
]


def test_arguments_of_no_operation_or_of_several_are_refused():
    for arguments, mentions in INVALID:
        given = {"path": PATH, **({} if "content" in arguments and len(arguments) == 1 else {"expectedSha256": ""})}
        with pytest.raises(InvalidRequest) as refused:
            make_request(TOOLS["memory_edit"], {**given, **arguments})
        assert mentions in str(refused.value), arguments


REFUSED = [
    ({"expectedSha256": "abc", "content": "x"}, "expectedSha256: "),
    ({"oldText": "nowhere", "newText": ""}, "oldText: "),
    ({"oldText": "", "newText": "x"}, "oldText: "),
    ({"oldText": "e", "newText": "x"}, "oldText: "),
    ({"afterLine": 99, "text": "x"}, "afterLine: "),
    ({"afterLine": -1, "text": "x"}, "afterLine: "),
    ({"afterLine": 1, "text": ""}, "text: "),
    ({"startLine": 1, "endLine": 99}, "endLine: "),
    ({"startLine": 0, "endLine": 1}, "startLine: "),
    ({"path": "/etc/passwd", "content": "x"}, "is not allowed"),
    ({"path": "notes.txt", "content": "x"}, "is not allowed"),
]


async def test_edits_that_the_daemon_refuses_name_the_arguments_and_change_nothing(server, home):
    async with client(server) as connected:
        for arguments, mentions in REFUSED:
            given = {"path": PATH, "expectedSha256": sha256(HARBOUR), **arguments}
            result = await connected.call_tool("memory_edit", given)
            assert result.is_error, arguments
            assert mentions in texts(result), (arguments, texts(result))
    assert (home.workspace / PATH).read_text() == HARBOUR


async def test_an_empty_file_shows_the_hash_for_an_edit(server, home):
    home.put("memory/empty.md", "")
    async with client(server) as connected:
        result = await connected.call_tool("memory_get", {"path": "memory/empty.md"})
    assert f"(contentSha256 {sha256('')})" in texts(result)
    assert result.structured_content["contentSha256"] == sha256("")
