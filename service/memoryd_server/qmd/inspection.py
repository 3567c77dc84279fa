"""A look at the installation for `memoryd doctor`: what is there, what it runs on, and what it would have to fetch.

Nothing of the agent's is touched: the command is tried in a home of its own that is removed afterwards. Blocks for some
seconds.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from memoryd_server.qmd import client
from memoryd_server.qmd.client import QmdFailure, QmdSearchMode
from memoryd_server.qmd.config import QmdConfig
from memoryd_server.qmd.home import QmdHome
from memoryd_server.qmd.process import Command, CommandRun, ExitKind, ProcessGuard

LEAST_NODE = 22
_NODE_SECONDS = 10.0
# What each way to search needs, by the keys of qmd's configuration, and what qmd fetches where nothing else is named.
_NEEDED: Mapping[QmdSearchMode, tuple[str, ...]] = {
    QmdSearchMode.SEARCH: (),
    QmdSearchMode.VSEARCH: ("embed", "generate"),
    QmdSearchMode.QUERY: ("embed", "generate", "rerank"),
}
_DEFAULT_FILES: Mapping[str, str] = {
    "embed": "hf_ggml-org_embeddinggemma-300M-Q8_0.gguf",
    "generate": "hf_tobil_qmd-query-expansion-1.7B-q4_k_m.gguf",
    "rerank": "hf_ggml-org_qwen3-reranker-0.6b-q8_0.gguf",
}


@dataclass(frozen=True, slots=True)
class QmdInspection:
    """What was found. `problem` is empty where the command works. `node` is the version on the PATH, empty for none.

    `missing_models` are those that the way to search needs and that are not on disk, `bad_models` those that are named
    by a path where no file is.
    """

    path: str = ""
    version: str = ""
    problem: str = ""
    node: str = ""
    missing_models: tuple[str, ...] = ()
    bad_models: tuple[str, ...] = ()

    @property
    def node_is_old(self) -> bool:
        """Whether the Node on the PATH is older than qmd needs. qmd may bring one of its own."""
        number = self.node.removeprefix("v").partition(".")[0]
        return number.isdigit() and int(number) < LEAST_NODE


def inspect_qmd(config: QmdConfig) -> QmdInspection:
    """Looks at the command and the models of one agent."""
    guard = ProcessGuard()
    try:
        with tempfile.TemporaryDirectory(prefix="memoryd-doctor-") as folder:
            found = _inspect_command(config, QmdHome(Path(folder), (), config.environment), guard)
    finally:
        guard.close()
    missing, bad = _models(config)
    return replace(found, missing_models=missing, bad_models=bad)


def _inspect_command(config: QmdConfig, home: QmdHome, guard: ProcessGuard) -> QmdInspection:
    found = QmdInspection()
    command = client.QmdClient(config.command, home, guard)
    seconds = config.update.command_seconds
    try:
        home.prepare()
        found = replace(found, node=_node(home, guard))
        found = replace(found, path=command.locate())
        found = replace(found, version=client.read_version(command.start(client.VERSION, seconds).run()))
        # An old Node tells the version all the same, and dies as soon as it opens an index.
        client.check(command.start(client.STATUS, seconds).run())
    except QmdFailure as failure:
        return replace(found, problem=failure.message)
    except OSError as error:
        return replace(found, problem=f"no process can be started: {error}")
    return found


def _node(home: QmdHome, guard: ProcessGuard) -> str:
    done = CommandRun(Command(("node", "--version"), home.environment, str(home.folder), _NODE_SECONDS), guard).run()
    return done.stdout.strip()[:20] if done.ending is ExitKind.EXITED and done.code == 0 else ""


def _models(config: QmdConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The needed models that are not there: those that would be fetched, and those whose path leads nowhere."""
    home = QmdHome(config.folder, config.collections, config.environment)
    named, places = home.models(), home.model_folders()
    missing: list[str] = []
    bad: list[str] = []
    for use in _NEEDED[config.verb]:
        model = named.get(use, "")
        if model.startswith("/"):
            bad += [] if Path(model).is_file() else [model]
        elif not any((place / file).is_file() for place in places for file in _files_of(use, model)):
            missing.append(model or _DEFAULT_FILES[use])
    return tuple(missing), tuple(bad)


def _files_of(use: str, model: str) -> tuple[str, ...]:
    """The names under which qmd keeps a fetched model."""
    if not model.startswith("hf:"):
        return (_DEFAULT_FILES[use],) if not model else (model.rpartition("/")[2],)
    user, _, file = model.removeprefix("hf:").partition("/")
    return (f"hf_{user}_{file.rpartition('/')[2]}", _DEFAULT_FILES[use])
