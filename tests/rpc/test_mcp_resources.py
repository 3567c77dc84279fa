"""Memory files as MCP resources: their URIs, lists and texts, and the prompt."""

import pytest

pytest.importorskip("mcp")

from mcp.shared.exceptions import MCPError

from memoryd_server.http.mcp_resources import MOST_READ_BYTES, PAGE_SIZE
from memoryd_server.http.mcp_uris import make_uri, read_uri
from memoryd_server.recall.fence import OPENING
from rpc.callers import new_token
from rpc.mcp_clients import MODES, client, mcp_server, owner_with

HARBOUR = "# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n"
SECRET = "the otter hides the key under the boathouse"


@pytest.fixture
async def server(serve, home):
    home.write(harbour=HARBOUR)
    home.put("memory/Zürich trip #1? 100%.md", "# Trip\n")
    (home.root / "outside").mkdir()
    (home.root / "outside" / "note.md").write_text(f"{SECRET}\n")
    (home.root / "notes").mkdir()
    (home.root / "notes" / "shared.md").write_text("# Shared\n")
    (home.workspace / "memory" / "link.md").symlink_to(home.root / "outside" / "note.md")
    running = await serve({"agents": {"defaults": {"memorySearch": {"extraPaths": [str(home.root / "notes")]}}}})
    await running.sync()
    async with mcp_server(running) as server:
        yield server


async def read(connected, uri):
    (contents,) = (await connected.read_resource(uri)).contents
    assert (contents.uri, contents.mime_type) == (uri, "text/markdown")
    return contents.text


@pytest.mark.parametrize("mode", MODES)
async def test_listed_files_can_be_read(server, home, mode):
    async with client(server, mode=mode) as connected:
        listed = {each.name: each for each in (await connected.list_resources()).resources}
        texts = {name: await read(connected, each.uri) for name, each in listed.items()}
        (template,) = (await connected.list_resource_templates()).resource_templates
    assert texts == {
        "../notes/shared.md": "# Shared\n",
        "memory/Zürich trip #1? 100%.md": "# Trip\n",
        "memory/harbour.md": HARBOUR,
    }
    assert listed["../notes/shared.md"].uri == "memory://main/..%2Fnotes%2Fshared.md"
    assert listed["memory/harbour.md"].uri == "memory://main/memory/harbour.md"
    assert listed["memory/harbour.md"].size == len(HARBOUR)
    assert listed["memory/harbour.md"].annotations.last_modified.startswith("20")
    assert template.uri_template == "memory://main/{+path}"


async def test_list_has_pages(serve, home):
    home.many(2 * PAGE_SIZE + 1)
    running = await serve()
    names, cursor = [], None
    async with mcp_server(running) as server, client(server) as connected:
        while True:
            page = await connected.list_resources(cursor=cursor)
            assert len(page.resources) <= PAGE_SIZE
            names += [each.name for each in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(set(names)) == len(names) == 2 * PAGE_SIZE + 1
        with pytest.raises(MCPError, match="cursor: is not a next_page_token"):
            await connected.list_resources(cursor="nonsense")


@pytest.mark.attacks
async def test_uri_that_leads_outside_is_refused(server, home):
    outside = home.root / "outside" / "note.md"
    uris = [
        f"memory://main/{outside}",
        f"memory://main/%2F{str(outside)[1:]}",
        "memory://main/../outside/note.md",
        "memory://main/..%2Foutside%2Fnote.md",
        "memory://main/%2e%2e/outside/note.md",
        "memory://main/memory/..%2F..%2F..%2Foutside/note.md",
        "memory://main/memory/link.md",
        "memory://main/memory%2Flink.md",
        "memory://main/memory/harbour.md%00",
        "memory://main/%00",
        "memory://..%2F..%2Foutside/note.md",
        "memory://missing/memory/harbour.md",
        "memory://main/memory/none.md",
    ]
    async with client(server) as connected:
        for uri in uris:
            with pytest.raises(MCPError) as refused:
                await read(connected, uri)
            assert refused.value.code == -32602, uri
            assert SECRET not in refused.value.message


async def test_uri_of_another_form_is_refused(server):
    uris = ["", "memory/harbour.md", "file:///etc/passwd", "memory:main/memory/harbour.md", "memory://main", "memory://main/",
            "memory://main/memory/harbour.md?a=b", "memory://main/memory/harbour.md#L1", "memory://main/%zz",
            "memory://main/%ff.md", "memory://main/" + "a" * 20_000]  # fmt: skip
    async with client(server) as connected:
        for uri in uris:
            with pytest.raises(MCPError, match=r"^uri: ") as refused:
                await read(connected, uri)
            assert refused.value.code == -32602, uri


async def test_equivalent_uris_name_the_same_file(server):
    async with client(server) as connected:
        for uri in (
            "memory:///memory/harbour.md",
            "MEMORY://main/memory/harbour.md",
            "memory://main/memory%2fharbour%2Emd",
        ):
            assert await read(connected, uri) == HARBOUR


def test_uri_of_a_path_names_that_path():
    paths = [
        "a.md",
        "../a.md",
        "memory/../a.md",
        "./a",
        "/etc/a.md",
        "a//b.md",
        "ü ß%2F#?&=+.md",
        "a/",
        "\\..\\a",
    ]
    for path in paths:
        uri = make_uri("office", path)
        assert (read_uri(uri).agent_id, read_uri(uri).path) == ("office", path)
        # Programs that handle URIs change none of these parts.
        assert not {"", ".", ".."} & set(uri.removeprefix("memory://").split("/"))


async def test_token_decides_which_agents_files_are_read(serve, home):
    (home.root / "office" / "memory").mkdir(parents=True)
    (home.root / "office" / "memory" / "plan.md").write_text("# Plan\n")
    home.write(harbour=HARBOUR)
    agents = [{"id": "main"}, {"id": "office", "workspace": str(home.root / "office")}]
    running = await serve({"agents": {"list": agents}}, listen="127.0.0.1:0")
    _, limited = new_token(home, "main")
    _, full = new_token(home)
    async with mcp_server(running) as server:
        async with client(server, owner_with(full)) as connected:
            assert await read(connected, "memory://office/memory/plan.md") == "# Plan\n"
        async with client(server, owner_with(full, "office")) as connected:
            (listed,) = (await connected.list_resources()).resources
            assert listed.uri == "memory://office/memory/plan.md"
        async with client(server, owner_with(limited)) as connected:
            assert [each.uri for each in (await connected.list_resources()).resources] == [
                "memory://main/memory/harbour.md"
            ]
            for agent in ("office", "none", "OFFICE"):
                with pytest.raises(MCPError, match="this token does not allow the agent"):
                    await read(connected, f"memory://{agent}/memory/plan.md")
        async with client(server, owner_with(limited, "office")) as connected:
            with pytest.raises(MCPError, match="this token does not allow the agent"):
                await connected.list_resources()


async def test_long_file_is_read_in_pieces_and_cut_at_the_limit(serve, home):
    lines = "".join(f"line {number}\n" for number in range(9_000))
    home.write(lines=lines, wide=("x" * 99_999 + "\n") * 12, one="y" * 200_000, empty="", blank="\n\n\n")
    running = await serve()
    async with mcp_server(running) as server, client(server) as connected:
        assert await read(connected, "memory://main/memory/lines.md") == lines
        assert await read(connected, "memory://main/memory/one.md") == "y" * 200_000
        assert await read(connected, "memory://main/memory/empty.md") == ""
        assert await read(connected, "memory://main/memory/blank.md") == "\n\n\n"
        wide = await read(connected, "memory://main/memory/wide.md")
    text, _, note = wide.rpartition("\n")
    assert note == "[memoryd: cut before line 11 of 13; memory_get reads the other lines]"
    assert text == "\n".join(["x" * 99_999] * 10)
    assert len(text) <= MOST_READ_BYTES


@pytest.mark.parametrize("mode", MODES)
async def test_prompt_recall_returns_the_block_as_a_message_of_the_user(server, mode):
    async with client(server, mode=mode) as connected:
        (prompt,) = (await connected.list_prompts()).prompts
        assert (prompt.name, [argument.name for argument in prompt.arguments]) == ("recall", ["text"])
        (message,) = (await connected.get_prompt("recall", {"text": "What lifts the crane at pier seven?"})).messages
        assert message.role == "user"
        assert message.content.text.startswith(OPENING)
        assert "memory/harbour.md" in message.content.text
        (silent,) = (await connected.get_prompt("recall", {"text": "/reset"})).messages
        assert silent.content.text.startswith("Nothing to recall: ")
        for name, arguments, mentions in (
            ("recall", {}, "text: must not be blank"),
            ("recall", {"text": " "}, "text: must not be blank"),
            ("remember", {"text": "a"}, "unknown prompt 'remember'"),
        ):
            with pytest.raises(MCPError, match=mentions):
                await connected.get_prompt(name, arguments)


async def test_agent_without_memory_search_says_so(serve, home):
    running = await serve({"agents": {"defaults": {"memorySearch": {"enabled": False}}}})
    async with mcp_server(running) as server, client(server) as connected:
        with pytest.raises(MCPError, match="memory search is disabled") as refused:
            await connected.list_resources()
        assert refused.value.data["reason"] == "MEMORY_DISABLED"
