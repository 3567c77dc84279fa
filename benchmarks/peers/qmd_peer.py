"""QMD: indexed by `qmd update` and `qmd embed`, asked over MCP."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psutil
import yaml
from commands import private_environment, run
from mcp_stdio import McpStdio
from peer import Mode, PeerUnavailableError, Setup, Shown

QMD = Path(__file__).parents[2] / ".tools" / "qmd"
PACKAGE = QMD / "node_modules" / "@tobilu" / "qmd" / "package.json"
COLLECTION = "notes"
# A snippet begins with the lines that it shows of the note: "@@ -12,4 @@ (11 before, 30 after)".
HEADER = re.compile(r"@@ -(\d+),(\d+) @@[^\n]*\n?")
# Each line has a number before it over MCP, the header included.
NUMBER = re.compile(r"^\d+: ", re.MULTILINE)
MOST_SEARCHES = 10

SubSearch = Mapping[str, str]


class QmdPeer:
    """The MCP server with typed searches, which need no model except the one of embeddings."""

    name = "qmd"
    modes: tuple[Mode, ...] = ("keywords", "vectors")
    interface = "MCP over stdio (`qmd mcp`, the tool `query`)"

    def __init__(self) -> None:
        self._server: McpStdio | None = None
        self._vectors = False

    @property
    def version(self) -> str:
        return json.loads(PACKAGE.read_text("utf-8"))["version"]

    @property
    def remarks(self) -> tuple[str, ...]:
        if not self._vectors:
            return ("One `lex` search with the question, all words of which have to be in a note.",)
        return (
            "A `lex` and a `vec` search, which the description of the tool recommends for the best recall.",
            "The models that expand queries and rerank results are not used; they are downloaded separately.",
            "It embeds by itself, in chunks of 900 tokens, of which this model reads 500. Default: EmbeddingGemma.",
        )

    def set_up(self, setup: Setup) -> None:
        if not (QMD / ".ready").exists():
            raise PeerUnavailableError("qmd is not installed: run `make qmd`")
        self._folder, self._vectors = setup.folder, setup.mode == "vectors"
        config, cache = setup.folder / "config", setup.folder / "cache"
        self._environment = private_environment(
            setup.folder,
            XDG_CONFIG_HOME=str(config),
            XDG_CACHE_HOME=str(cache),
            QMD_FORCE_CPU="1",
            # A chunk of 511 or 512 tokens is not cut, gets two more, and ends the process: the model has 512 positions.
            QMD_EMBED_CONTEXT_SIZE="500",
        )
        # qmd deletes a model file that it cannot read, so that it gets a copy.
        model = setup.folder / setup.model_file.name
        if self._vectors:
            shutil.copyfile(setup.model_file, model)
        (config / "qmd").mkdir(parents=True)
        collections = {COLLECTION: {"path": str(setup.notes), "pattern": "**/*.md"}}
        # Absent models make a search that would need them fail, instead of downloading them.
        models = {"embed": str(model), "generate": "/absent.gguf", "rerank": "/absent.gguf"}
        settings = yaml.safe_dump({"collections": collections, "models": models})
        (config / "qmd" / "index.yml").write_text(settings, "utf-8")

    def index(self) -> None:
        self._run("update")
        if self._vectors:
            self._run("embed", "--timeout", "0")

    def start(self) -> None:
        command = (QMD / "qmd", "--index", "index", "mcp")
        self._server = McpStdio(command, self._environment, self._folder, self._folder / "mcp.log")

    def search(self, text: str, limit: int) -> list[Shown]:
        searches = self._searches(text)
        result = self._server.call("query", {"searches": searches, "limit": limit, "rerank": False})
        return [shown_result(unquote(each["file"]), each) for each in result["structuredContent"]["results"]]

    def processes(self) -> list[psutil.Process]:
        return [] if self._server is None else [psutil.Process(self._server.process.pid)]

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None

    def search_cold(self, text: str) -> list[Shown]:
        query = "\n".join(f"{each['type']}: {each['query']}" for each in self._searches(text))
        output = self._run("query", "--json", "--no-rerank", "-n", "6", "-c", COLLECTION, "--", query)
        return [shown_result(each["file"].removeprefix("qmd://"), each) for each in json.loads(output)]

    def _run(self, *arguments: str) -> str:
        return run((QMD / "qmd", "--index", "index", *arguments), self._environment, self._folder)

    def _searches(self, text: str) -> Sequence[SubSearch]:
        # An unmatched quotation mark is an error of the syntax of `lex` searches.
        question = " ".join(text.replace('"', " ").split())
        lex, vec = {"type": "lex", "query": question}, {"type": "vec", "query": question}
        return [lex, vec] if self._vectors else [lex]


class QmdAnyWordPeer(QmdPeer):
    """The same with a search for each word, as an agent could ask when a search for all words finds nothing."""

    name = "qmd-any-word"
    modes: tuple[Mode, ...] = ("keywords",)

    @property
    def remarks(self) -> tuple[str, ...]:
        return (f"One `lex` search for each of the {MOST_SEARCHES} longest words of the question, the longest first.",)

    def _searches(self, text: str) -> Sequence[SubSearch]:
        words = dict.fromkeys(re.findall(r"[\w-]*\w", text))
        longest = sorted(words, key=len, reverse=True)[:MOST_SEARCHES]
        return [{"type": "lex", "query": word} for word in longest]


def shown_result(file: str, hit: Mapping[str, Any]) -> Shown:
    """Return a result of `file`, which begins with the collection, without the numbers that it has before lines."""
    snippet = NUMBER.sub("", hit["snippet"])
    path = file.removeprefix(f"{COLLECTION}/")
    header = HEADER.match(snippet)
    if header is None:
        return Shown(path, hit.get("line"), hit.get("line"), snippet)
    start, count = map(int, header.groups())
    return Shown(path, start, start + max(count, 1) - 1, snippet[header.end() :])
