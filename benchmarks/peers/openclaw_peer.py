"""OpenClaw's built-in memory (memory-core): indexed by `openclaw memory index`, asked by a tool call in its gateway."""

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from commands import COMMAND_SECONDS
from peer import Mode, PeerUnavailableError, Setup, Shown

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))

from openclaw_host import NODE, OPENCLAW, OpenClawHome  # noqa: E402 -- needs the path

PACKAGE = OPENCLAW / "node_modules" / "openclaw" / "package.json"
# The package names sqlite-vec as an optional dependency, which is installed only with qmd here.
VECTOR_EXTENSION = REPOSITORY / ".tools" / "qmd" / "node_modules" / "sqlite-vec-linux-x64" / "vec0.so"


class OpenClawPeer:
    """The gateway with the default settings of its memory, except the provider."""

    name = "openclaw"
    modes: tuple[Mode, ...] = ("keywords", "vectors")
    interface = "HTTP call of the tool `memory_search` in the gateway"
    remarks: tuple[str, ...] = (
        "The scores of notes whose names are dates are halved every 30 days, which no setting changes.",
    )

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._gateway: psutil.Process | None = None

    @property
    def version(self) -> str:
        return json.loads(PACKAGE.read_text("utf-8"))["version"]

    def set_up(self, setup: Setup) -> None:
        if not (OPENCLAW / ".ready").exists() or not NODE.exists():
            raise PeerUnavailableError("OpenClaw is not installed: run `make openclaw`")
        search: dict[str, Any] = {"provider": "none"}
        if setup.mode == "vectors":
            if not VECTOR_EXTENSION.exists():
                raise PeerUnavailableError("sqlite-vec is not installed: run `make qmd`, which brings it")
            search = {
                "provider": "openai-compatible",
                "model": setup.embedding_model,
                "remote": {"baseUrl": setup.embeddings_url, "apiKey": "none"},
                "store": {"vector": {"extensionPath": str(VECTOR_EXTENSION)}},
            }
        settings = {"defaults": {"workspace": str(setup.notes)}, "memory": {"search": self._changed(search)}}
        self._home = OpenClawHome(setup.folder / "home", settings)

    def _changed(self, search: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of memory search with those of a variant."""
        return search

    def index(self) -> None:
        self._home.run("memory", "index", "--force", seconds=COMMAND_SECONDS)

    def start(self) -> None:
        self._gateway = psutil.Process(self._stack.enter_context(self._home.gateway()).pid)

    def search(self, text: str, limit: int) -> list[Shown]:
        details = self._home.invoke("memory_search", query=text, maxResults=limit)
        if problem := details.get("error") or details.get("warning"):
            raise RuntimeError(problem)
        return [_shown(each) for each in details["results"]]

    def processes(self) -> list[psutil.Process]:
        return [] if self._gateway is None else [self._gateway]

    def stop(self) -> None:
        self._stack.close()
        self._gateway = None

    def search_cold(self, text: str) -> list[Shown]:
        return [_shown(each) for each in self._home.json("memory", "search", "--json", "--query", text)["results"]]


class OpenClawTrigramPeer(OpenClawPeer):
    """The same with the tokenizer that OpenClaw has for Chinese and Japanese."""

    name = "openclaw-trigram"
    modes: tuple[Mode, ...] = ("keywords",)
    remarks = (*OpenClawPeer.remarks, 'Set instead of the default: `memory.search.store.fts.tokenizer: "trigram"`.')

    def _changed(self, search: dict[str, Any]) -> dict[str, Any]:
        return {**search, "store": {"fts": {"tokenizer": "trigram"}}}


def _shown(hit: Mapping[str, Any]) -> Shown:
    return Shown(hit["path"], hit["startLine"], hit["endLine"], hit["snippet"])
