"""Search of a folder of notes that is not set up as a memory: `memoryd search --workspace FOLDER` without a daemon.

A workspace contains MEMORY.md, USER.md or a folder `memory`; only these are indexed. In a folder without any of them,
all Markdown files are searched by keywords, and recalled: the user has named the folder. Nothing is sent to an
embedding provider or a reranker. The index is kept in a state directory of its own for each folder, so that it does not
replace the index of the user's memory.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from memoryd.client import connect
from memoryd.discovery import Environment
from memoryd_server.cli.connection import Connection
from memoryd_server.cli.daemon_registry import own_state_dir, running_daemon, selects_memory
from memoryd_server.cli.local_daemon import local_daemon
from memoryd_server.cli.options import WORKSPACE_FILES, CommonOptions
from memoryd_server.settings import DatabaseSettings, ExtraPathSettings, ResolvedSettings

_FOLDERS = Path(".local", "state", "memoryd", "folders")
# Wildcards do not match hidden folders.
_ALL_FILES = ExtraPathSettings(path=".", pattern="**/*.md")


def is_plain_folder(common: CommonOptions) -> bool:
    """Return whether the options name a folder of notes that is not set up as a memory, and no daemon serves it.

    Raises:
        SettingsError: the settings are invalid.
    """
    environment = Environment.of_process()
    named = common.address or common.config or environment.text("MEMORYD_ADDRESS") or environment.text("MEMORYD_CONFIG")
    if common.workspace is None or named or any((common.workspace / name).exists() for name in WORKSPACE_FILES):
        return False
    # A daemon that is selected by its state directory may have been started for this folder.
    is_selected = common.state_dir is not None or selects_memory(environment)
    if is_selected and running_daemon(own_state_dir(environment, common.state_dir)) is not None:
        return False
    settings = replace(common, workspace=None).settings(read_secrets=False)
    folder = common.workspace.resolve()
    return not any(agent.workspace.resolve() == folder for agent in settings.agents.values())


@contextmanager
def open_plain_folder(common: CommonOptions) -> Iterator[Connection]:
    """Yield a connection to a daemon in this process that indexes all Markdown files of the workspace.

    Raises:
        SettingsError: the environment has invalid settings.
    """
    with (
        local_daemon(_settings(common), background=False) as (daemon, address),
        connect(address) as client,
    ):
        yield Connection(client, daemon)


def _settings(common: CommonOptions) -> ResolvedSettings:
    folder = (common.workspace or Path()).resolve()
    folders = Environment.of_process().home / _FOLDERS
    state_dir = folders / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    for each in (folders.parent, folders, state_dir):
        each.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = replace(common, state_dir=state_dir, workspace=folder).settings(read_secrets=False)
    agents = {}
    for agent in settings.agents.values():
        changes = {"extra_paths": (_ALL_FILES,), "provider": "none", "fallback": "none", "sources": ("memory",)}
        memory = agent.memory.model_copy(update={"backend": "builtin"})
        search = agent.memory_search.model_copy(update=changes)
        agents[agent.agent_id] = replace(agent, memory_search=search, memory=memory)
    rerank = settings.service.rerank.model_copy(update={"provider": "none"})
    # Files of extra paths count as untrusted.
    recall = settings.service.recall.model_copy(update={"include_untrusted": True})
    # The index of the folder is not that of an agent in a database.
    service = settings.service.model_copy(update={"rerank": rerank, "recall": recall, "store": DatabaseSettings()})
    return replace(settings, agents=agents, service=service)
