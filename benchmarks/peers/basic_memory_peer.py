"""basic-memory: indexed by `basic-memory reindex`, asked over MCP."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import psutil
from commands import private_environment, run
from mcp_stdio import McpError, McpStdio
from peer import Mode, Setup, Shown
from python_tools import BASIC_MEMORY

PROJECT = "notes"
# Of 36 questions, the default of 0.55 finds what keywords alone find (recall@6 .611), 0.3 finds .854 and 0 finds .826.
LEAST_SIMILARITY = 0.3
REMARKS = (
    "A result is a whole note, so that it counts for all lines of the note.",
    "Asked for JSON, with up to 4,000 characters of each note and the matching passages.",
    "By default, the tool returns a list of the notes with up to 200 characters of the matching passages.",
    "It writes a title, a type and a permalink into the front matter of each note that it indexes.",
    "`semantic_min_similarity` is 0.3: its default of 0.55 removes nearly all results of this model's vectors.",
    'Keywords: `default_search_type: "text"`, and an index without embeddings.',
    "Checks for updates and events about its promotions are turned off.",
)
OTHER_SQLITE = "The sqlite3 of this Python cannot load extensions, and is replaced with that of pysqlite3."


class BasicMemoryPeer:
    """The MCP server with the default settings, except the provider and the least similarity of vectors."""

    name = "basic-memory"
    modes: tuple[Mode, ...] = ("keywords", "vectors")
    interface = "MCP over stdio (`basic-memory mcp`, the tool `search_notes`)"

    def __init__(self) -> None:
        self._server: McpStdio | None = None

    @property
    def version(self) -> str:
        return BASIC_MEMORY.version

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*REMARKS, OTHER_SQLITE) if BASIC_MEMORY.has_other_sqlite else REMARKS

    def set_up(self, setup: Setup) -> None:
        BASIC_MEMORY.require()
        self._folder, self._notes, self._vectors = setup.folder, setup.notes, setup.mode == "vectors"
        config = setup.folder / "config"
        self._environment = private_environment(
            setup.folder,
            BASIC_MEMORY_CONFIG_DIR=str(config),
            BASIC_MEMORY_NO_PROMOS="1",
            FASTMCP_CHECK_FOR_UPDATES="off",
        )
        settings = {
            "projects": {PROJECT: {"path": str(setup.notes)}},
            "default_project": PROJECT,
            "auto_update": False,
            "default_search_type": None if self._vectors else "text",
            "semantic_embedding_provider": "openai",
            "semantic_embedding_model": setup.embedding_model,
            "semantic_embedding_dimensions": 384,
            "semantic_embedding_api_base": setup.embeddings_url or None,
            "semantic_embedding_api_key": "none",
            "semantic_min_similarity": LEAST_SIMILARITY,
        }
        config.mkdir()
        (config / "config.json").write_text(json.dumps(settings), "utf-8")

    def index(self) -> None:
        output = " ".join(self._run("reindex", *([] if self._vectors else ["--search"])).split())
        # The command also succeeds if some embeddings fail, or if it skips them because it cannot load sqlite-vec.
        if self._vectors and " 0 errors" not in output:
            raise RuntimeError(f"the embeddings are not complete: {output[-1_000:]}")

    def start(self) -> None:
        command = (BASIC_MEMORY.command, "mcp")
        self._server = McpStdio(command, self._environment, self._folder, self._folder / "mcp.log")

    def search(self, text: str, limit: int) -> list[Shown]:
        result = self._server.call("search_notes", {"query": text, "page_size": limit, "output_format": "json"})
        found = result["structuredContent"]["result"]
        # A failed search is a text for the agent, without a mark of an error.
        if not isinstance(found, dict):
            raise McpError(found)
        return self._shown(found["results"])

    def processes(self) -> list[psutil.Process]:
        return [] if self._server is None else [psutil.Process(self._server.process.pid)]

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None

    def search_cold(self, text: str) -> list[Shown]:
        output = self._run(
            "tool", "search-notes", "--json", "--page-size", "6", *(["--hybrid"] if self._vectors else []), "--", text
        )
        return self._shown(json.loads(output)["results"])

    def _run(self, *arguments: str) -> str:
        return run((BASIC_MEMORY.command, *arguments), self._environment, self._folder)

    def _shown(self, results: Iterable[Mapping[str, Any]]) -> list[Shown]:
        return [self._note(each["file_path"], each) for each in results]

    def _note(self, path: str, hit: Mapping[str, Any]) -> Shown:
        lines = (self._notes / path).read_text("utf-8").count("\n") + 1
        texts = filter(None, (hit.get("matched_chunk"), hit.get("content")))
        return Shown(path, 1, lines, "\n".join(texts))
