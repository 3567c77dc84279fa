"""What a peer has to do: one tool with a memory of Markdown files, as `python benchmarks/peers` measures it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import psutil

Mode = Literal["keywords", "vectors"]


class PeerUnavailableError(Exception):
    """A tool cannot be measured here. The text says why and what to do; it becomes part of the results."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One result of a search: `path` is relative to the folder of notes, lines start at 1 and are inclusive.

    The lines are None if the tool reports none. `text` is all the text that the agent receives for this result.
    """

    path: str
    start_line: int | None
    end_line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Setup:
    """The surroundings of one peer in one mode.

    `folder` exists and is empty: settings, index and home of the tool belong there, and nowhere else. `notes` is a
    folder with the Markdown files at `memory/**/*.md`, a copy for this peer only, beside `folder`.
    """

    folder: Path
    notes: Path
    mode: Mode
    embeddings_url: str
    """Base URL of an OpenAI-compatible server on loopback, `http://127.0.0.1:PORT/v1`. Any API key is accepted."""
    embedding_model: str
    """The name of its only model, which has 384 dimensions and a window of 512 tokens; it truncates longer texts."""
    model_file: Path
    """The same model as a GGUF file, for a tool that embeds by itself."""


class Peer(Protocol):
    """One tool. The harness creates one instance for each mode and calls, in this order:

    `set_up`, `index`, `start`, `search` many times, `stop`, `search_cold` several times.

    Processes have to be descendants of the harness, so that it can measure them. A failure of a tool raises any
    exception; the harness reports it and goes on with the other peers. `stop` may be called at any time.
    """

    name: str
    """As in the results and in `--only`: lower case, words with hyphens."""
    modes: tuple[Mode, ...]
    """`keywords`: without embeddings. `vectors`: what the tool does by default with an embedding model, e.g. hybrid."""
    interface: str
    """How an agent calls it, in one line, e.g. "MCP over stdio"."""

    @property
    def version(self) -> str:
        """Return the version of the installed tool."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return sentences about deviations from the defaults or from the other peers, for the results."""

    def set_up(self, setup: Setup) -> None:
        """Write settings. Index nothing.

        Raises:
            PeerUnavailableError: if the tool is not installed or cannot run here.
        """

    def index(self) -> None:
        """Create the complete index from nothing. Return when it is complete.

        The harness measures the time, and the CPU and memory of all descendants. A process that has to run for this,
        e.g. a daemon, may continue to run until `stop`.
        """

    def start(self) -> None:
        """Start the process that answers searches, and return when it does. Nothing to do if `index` started it."""

    def search(self, text: str, limit: int) -> list[Shown]:
        """Return the results, best first, at most `limit`, as the agent would receive them."""

    def processes(self) -> list[psutil.Process]:
        """Return the running processes that answer searches, or none. The harness adds their descendants."""

    def stop(self) -> None:
        """End all processes of this peer. Keep the index."""

    def search_cold(self, text: str) -> list[Shown]:
        """Search with one command, with no other process of the tool running, and return the results.

        Raises:
            PeerUnavailableError: if the tool has no command for it.
        """


PeerFactory = Callable[[], Peer]
"""A peer class without arguments. The constructor does not look for the tool; `set_up` does."""
