"""The memory that `memoryd search` and `memoryd recall` search: that of a running daemon, or one that they index."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.approval import approval_command, needs_approval, with_command
from memoryd_server.cli.index import follow_quietly, used_agent
from memoryd_server.cli.options import CommonOptions, complain, program_name, reported
from memoryd_server.cli.progress import download_models

if TYPE_CHECKING:
    from memoryd import messages
    from memoryd.client import MemorydClient
    from memoryd_server.cli.connection import Connection


_UNITS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3_600}
_MOST_DIGITS = 6

session_key_option = click.option(
    "--session-key",
    help="Key of the calling session; agent:<id>:... also selects the agent. Default: "
    "agent:<agent>:cli:direct:memory-search, the key of a direct chat.",
)


class _Age(click.ParamType[dict[str, int]]):
    """A time with a unit, such as `10s` or `2m`, as the fields of a Duration."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int]:
        if isinstance(value, dict):
            return value
        number, unit = str(value)[:-1], _UNITS.get(str(value)[-1:])
        if unit is None or not (number.isascii() and number.isdigit()) or len(number) > _MOST_DIGITS:
            self.fail(f"{value!r} is not a time; write 10s, 2m or 1h", param, ctx)
        return {"seconds": int(number) * unit}


max_staleness_option = click.option(
    "--max-staleness",
    type=_Age(),
    help="Let a standby of the database answer, which may lack the changes of this time before the call, for example "
    "10s. Default: the primary answers.",
)
"""The verb receives the fields of a Duration as `max_staleness: dict`, None without the option."""


@dataclass(frozen=True, slots=True)
class SearchedMemory:
    """A memory that is ready to be searched. `remote` is whether its daemon runs in another process.

    `session_key` is the key of the calls. `agent` is the option `--agent`, empty if the key selects the agent.
    """

    client: MemorydClient
    remote: bool
    common: CommonOptions
    agent: str
    session_key: str

    def name_approval(self, degradations: Iterable[messages.Degradation]) -> None:
        """Write the command that approves the cost of embeddings into the reasons, if the cost needs approval."""
        if needs_approval(degradations):
            with_command(degradations, approval_command(self.common, self.agent or _agent_of(self.session_key)))


@contextmanager
def searched_memory(
    common: CommonOptions, agent: str, session_key: str | None, *, needs_models: bool = True
) -> Iterator[SearchedMemory]:
    """Yield the memory of the options; report errors as `reported` does.

    If no daemon is running, update the index first, and with `needs_models` download a missing local model. After the
    block, say how to set up a folder that is not a memory.
    """
    workspace = common.workspace and _existing_workspace(common.workspace)
    common = replace(common, workspace=workspace)
    with reported(), _open(common) as daemon:
        key = session_key
        if key is None:
            searched = agent or _default_agent(daemon.client)
            key = direct_session(searched) if searched else ""
        if not daemon.remote:
            if needs_models:
                download_models(daemon, agent)
            follow_quietly(daemon.client, agent or _agent_of(key))
        yield SearchedMemory(daemon.client, daemon.remote, common, agent, key)
        if not daemon.remote and common.workspace is not None:
            complain(_permanent_text(common.workspace))


def nothing_indexed() -> str:
    """Return what to do if a search finds an empty index."""
    name = program_name()
    return f"no memory file is indexed; `{name} status` shows why. To set up a memory: {name} init FOLDER"


def complain_about(info: messages.SearchInfo, *, explain: bool = False) -> None:
    """Print on standard error in which ways a search was degraded; with `explain`, also the reranking."""
    for degradation in info.degradations:
        complain(f"degraded: {degradation.reason}")
    if explain and info.HasField("reranking"):
        complain(_reranking_text(info.reranking))
    if info.stale:
        complain("the index is stale: files have changed since the last sync")


def _reranking_text(info: messages.RerankInfo) -> str:
    model = f"{info.provider} {info.model}".strip()
    milliseconds = info.elapsed.ToMilliseconds()
    return f"{info.candidates} results reranked by {model} in {milliseconds} ms, {info.cached} of them from the cache"


def direct_session(agent: str) -> str:
    """Return the session key of a search at the command line: like a direct chat with the owner of the memory."""
    return f"agent:{agent}:cli:direct:memory-search"


@contextmanager
def _open(common: CommonOptions) -> Iterator[Connection]:
    """Yield a connection to a daemon: to one of its own for a folder of notes that is not set up as a memory."""
    from memoryd_server.cli.connection import open_connection  # noqa: PLC0415 -- not needed for help

    if common.workspace is not None:
        from memoryd_server.cli.plain_folder import is_plain_folder, open_plain_folder  # noqa: PLC0415

        if is_plain_folder(common):
            with open_plain_folder(common) as connection:
                yield connection
            return
    with open_connection(common) as connection:
        yield connection


def _existing_workspace(workspace: Path) -> Path:
    """Return a folder, with the home directory in place of `~`.

    Raises:
        click.UsageError: it is not a folder.
    """
    with suppress(OSError, RuntimeError):
        # Shells do not replace the `~` in `--workspace=~/notes`.
        folder = workspace.expanduser()
        if folder.is_dir():
            return folder
    raise click.UsageError(f"--workspace: {workspace} is not a folder; give the folder of your notes")


def _permanent_text(workspace: Path) -> str:
    """Return how to keep a memory that was indexed by a single command."""
    from memoryd.discovery import Environment  # noqa: PLC0415 -- not needed for help
    from memoryd_server.cli.daemon_registry import has_memory  # noqa: PLC0415

    folder, environment = workspace.expanduser().absolute(), Environment.of_process()
    command = f"{program_name()} init {shlex.quote(str(workspace))}"
    if has_memory(environment.state_dir):
        # The settings there belong to another memory.
        command += f" --state-dir {shlex.quote(str(environment.home / '.memoryd' / folder.name))}"
    return f"no daemon serves {workspace}, so this command indexed it. To set up a memory for it: {command}"


def _default_agent(client: MemorydClient) -> str:
    """Return the id of the agent that an empty id means: `main`, or the default agent if there is no `main`.

    Empty if no agent is the default.
    """
    agent = used_agent(client, "")
    return "" if agent is None else agent.agent_id


def _agent_of(session_key: str) -> str:
    from memoryd_server.agent import agent_of_session  # noqa: PLC0415 -- help and remote calls do not need it

    return agent_of_session(session_key)
