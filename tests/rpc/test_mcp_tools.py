"""The tools of the MCP server: their definitions, results and errors, in both eras of the protocol."""

import pytest

pytest.importorskip("mcp")

from rpc.mcp_clients import MODES, client, mcp_server

NAMES = ["memory_search", "memory_get", "memory_append", "memory_recall", "memory_status"]


@pytest.fixture
async def server(serve, home):
    home.write(harbour="# Harbour\n\nThe crane at pier seven lifts 40 tonnes.\n")
    running = await serve()
    await running.sync()
    async with mcp_server(running) as server:
        yield server


@pytest.mark.parametrize("mode", MODES)
async def test_search_result_has_text_with_citation_and_structure(server, mode):
    async with client(server, mode=mode) as connected:
        result = await connected.call_tool("memory_search", {"query": "crane"})
    assert not result.is_error
    (found,) = result.structured_content["results"]
    assert found["citation"] == "memory/harbour.md#L1-L4"
    (content,) = result.content
    assert "memory/harbour.md#L1-L4" in content.text
    assert "  The crane at pier seven lifts 40 tonnes." in content.text
