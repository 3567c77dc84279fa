"""Inspects the installation of qmd for `memoryd doctor`: the command, its Node, and the models that it would download.

The command runs in a temporary home, so that the agent's files do not change. Blocks for some seconds.
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

MIN_NODE_VERSION = 22
_NODE_SECONDS = 10.0
# The models that each search mode needs, by their keys in qmd's configuration, and the files of qmd's default models.
_NEEDED_MODELS: Mapping[QmdSearchMode, tuple[str, ...]] = {
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
    """The result of an inspection.

    `problem` is empty if the command works. `node` is the version of Node on the PATH, empty if there is none.
    `missing_models` are the models that the search mode needs and that are not on disk. `missing_model_files` are the
    configured paths of models that do not exist.
    """

    path: str = ""
    version: str = ""
    problem: str = ""
    node: str = ""
    missing_models: tuple[str, ...] = ()
    missing_model_files: tuple[str, ...] = ()

    @property
    def node_is_old(self) -> bool:
        """Whether the Node on the PATH is older than qmd needs. qmd may have another one."""
        number = self.node.removeprefix("v").partition(".")[0]
        return number.isdigit() and int(number) < MIN_NODE_VERSION


def inspect_qmd(config: QmdConfig) -> QmdInspection:
    """Inspect the command and the models of one agent."""
    guard = ProcessGuard()
    try:
        with tempfile.TemporaryDirectory(prefix="memoryd-doctor-") as folder:
            inspection = _inspect_command(config, QmdHome(Path(folder), (), config.environment), guard)
    finally:
        guard.close()
    models, files = _missing_models(config)
    return replace(inspection, missing_models=models, missing_model_files=files)


def _inspect_command(config: QmdConfig, home: QmdHome, guard: ProcessGuard) -> QmdInspection:
    inspection = QmdInspection()
    command = client.QmdClient(config.command, home, guard)
    seconds = config.update.command_timeout_seconds
    try:
        home.prepare()
        inspection = replace(inspection, node=_node_version(home, guard))
        inspection = replace(inspection, path=command.locate())
        inspection = replace(inspection, version=client.read_version(command.make_run(client.VERSION, seconds).run()))
        # With an old Node, `--version` works, but qmd crashes when it opens an index.
        client.check(command.make_run(client.STATUS, seconds).run())
    except QmdFailure as failure:
        return replace(inspection, problem=failure.message)
    except OSError as error:
        return replace(inspection, problem=f"the process cannot be started: {error}")
    return inspection


def _node_version(home: QmdHome, guard: ProcessGuard) -> str:
    command = Command(("node", "--version"), home.environment, str(home.folder), _NODE_SECONDS)
    result = CommandRun(command, guard).run()
    return result.stdout.strip()[:20] if result.ending is ExitKind.EXITED and result.code == 0 else ""


def _missing_models(config: QmdConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the needed models that qmd would download, and the configured paths of models that do not exist."""
    home = QmdHome(config.folder, config.collections, config.environment)
    configured, folders = home.models(), home.model_folders()
    models: list[str] = []
    files: list[str] = []
    for use in _NEEDED_MODELS[config.search_mode]:
        model = configured.get(use, "")
        if model.startswith("/"):
            files += [] if Path(model).is_file() else [model]
        elif not any((folder / name).is_file() for folder in folders for name in _file_names(use, model)):
            models.append(model or _DEFAULT_FILES[use])
    return tuple(models), tuple(files)


def _file_names(use: str, model: str) -> tuple[str, ...]:
    """Return the file names that qmd gives to a downloaded model."""
    if not model.startswith("hf:"):
        return (_DEFAULT_FILES[use],) if not model else (model.rpartition("/")[2],)
    user, _, file = model.removeprefix("hf:").partition("/")
    return (f"hf_{user}_{file.rpartition('/')[2]}", _DEFAULT_FILES[use])
