"""The last steps of `memoryd init`: index the notes, search once, and say what a user can do next."""

import shlex
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memoryd.client import MemorydClient, MemorydError
from memoryd.discovery import Environment
from memoryd.messages import SOURCE_MEMORY, File
from memoryd_server.cli.approval import approval_command, with_command
from memoryd_server.cli.connection import open_connection
from memoryd_server.cli.daemon_registry import running_daemon
from memoryd_server.cli.index import all_agents, follow_with_bar, sync_events
from memoryd_server.cli.init_discovery import SettingsPlaces
from memoryd_server.cli.init_questions import Questions
from memoryd_server.cli.options import CommonOptions, as_dict, complain, program_name
from memoryd_server.cli.progress import download_models
from memoryd_server.cli.searched_memory import direct_session
from memoryd_server.errors import SettingsError
from memoryd_server.settings import ResolvedSettings

_DOCUMENTS = "https://github.com/memoryd/memoryd/blob/main"
_MAX_SNIPPET_LINES = 4
_MAX_RESULTS = 3
_MAX_QUERY_CHARS = 100


@dataclass(slots=True)
class FirstSearch:
    """What was indexed, by agent, and the first search with its results, as JSON values."""

    syncs: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    failed_files: int = 0


def index_and_search(
    common: CommonOptions, settings: ResolvedSettings, questions: Questions, query: str | None
) -> FirstSearch:
    """Index every agent, and search the memory of the default agent for `query`, or else for a heading of a note.

    Raises:
        SettingsError: the running daemon serves another workspace than the settings say.
        memoryd.client.MemorydError: a sync failed.
    """
    done = FirstSearch()
    with open_connection(common) as connection:
        client = connection.client
        agents = [agent for agent in all_agents(client) if agent.enabled]
        for agent in agents:
            _check_workspace(agent.agent_id, agent.workspace, settings)
            download_models(connection, agent.agent_id)
            with sync_events(client, agent.agent_id) as events:
                run = follow_with_bar(events, agent.agent_id, transient=True)
            done.failed_files += run.failed_files
            done.syncs[agent.agent_id] = as_dict(run)
            total = run.indexed_files + run.unchanged_files
            questions.say(f"Indexed {total:,} file{'' if total == 1 else 's'} of agent {agent.agent_id}.")
            with_command(run.degradations, approval_command(common, agent.agent_id))
            for degradation in run.degradations:
                complain(f"{agent.agent_id}: {degradation.reason}")
        default = next((agent.agent_id for agent in agents if agent.default), agents[0].agent_id if agents else "")
        if default:
            try:
                done.search = _search(client, default, questions, query)
            except MemorydError as error:
                # The memory is set up.
                complain(f"the first search failed: {error.message}", error.reason)
    return done


def _check_workspace(agent_id: str, served: str, settings: ResolvedSettings) -> None:
    if settings.service.store.has_documents:
        return
    expected = settings.agents.get(agent_id)
    if expected is None or Path(served).resolve() != expected.workspace.resolve():
        raise SettingsError(
            f"the settings are written, but the running daemon serves {served} for agent {agent_id}, because it was "
            "started with other options; stop it, then run memoryd init again"
        )


def _search(client: MemorydClient, agent: str, questions: Questions, query: str | None) -> dict[str, Any]:
    text = query or _query_from_notes(client, agent)
    if questions.interactive and query is None and text:
        text = questions.ask("Search for", text)
    if not text:
        questions.say(f'The memory is empty. Add a note: {program_name()} append "The first thing to remember."')
        return {}
    answer = client.search(agent_id=agent, query=text, max_results=_MAX_RESULTS, session_key=direct_session(agent))
    separator = "-- " if text.startswith("-") else ""
    questions.say(f"\n$ {program_name()} search {separator}{shlex.quote(text)}")
    for result in answer.results:
        questions.say(f"{result.score:.3f} {result.path}:{result.start_line}-{result.end_line}")
        for line in result.snippet.split("\n")[:_MAX_SNIPPET_LINES]:
            questions.say(f"    {line}")
    if not answer.results:
        questions.say(f"No matches: {answer.info.empty_explanation}.")
    return {"query": text, **as_dict(answer)}


def _query_from_notes(client: MemorydClient, agent: str) -> str:
    """Return the first heading of the last changed note, which is a query with results; empty without notes."""
    listed = client.list_files(agent_id=agent, page_size=1000).files
    files = [file for file in listed if file.chunks and file.source == SOURCE_MEMORY]
    if not files:
        return ""

    def changed(file: File) -> int:
        return file.modified_time.ToNanoseconds()

    newest = max(files, key=changed)
    text = client.get(agent_id=agent, path=newest.path, line_count=40).text
    headings = (line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#"))
    heading = next((heading for heading in headings if heading), Path(newest.path).stem)
    return heading[:_MAX_QUERY_CHARS].strip()


def next_steps(settings: ResolvedSettings, places: SettingsPlaces, config: Path | None) -> list[str]:
    """Return what a user can do next, one line for each step. `config` is the option `--config`."""
    environment, program = Environment.of_process(), program_name()
    flags = "" if config is None else f" --config {shlex.quote(str(config.absolute()))}"
    if environment.state_dir != places.state_dir:
        flags += f" --state-dir {shlex.quote(str(places.state_dir))}"
    steps = []
    if running_daemon(places.state_dir) is None:
        steps.append(f"daemon:   {program} service install{flags}   (or in this terminal: {program} serve{flags})")
    steps.append(f'search:   {program} search{flags} "your question"')
    if places.openclaw is not None:
        steps.append(f"OpenClaw: install the memory plugin: {_DOCUMENTS}/clients/openclaw/README.md")
    else:
        steps.append(f"OpenClaw: not found; see {_DOCUMENTS}/docs/openclaw.md if you install it")
    steps.append(_mcp_step(program, flags))
    address = next((each for each in settings.service.listen if each.startswith("unix:")), "")
    if address:
        request = shlex.quote('{"query": "your question"}')
        method = "memoryd.v1.MemoryService/MemorySearch"
        steps.append(f"gRPC:     grpcurl -plaintext -d {request} {shlex.quote(address)} {method}")
    steps.append(f"clients:  Python, Go, TypeScript, Java and Rust: {_DOCUMENTS}/clients/README.md")
    return steps


def _mcp_step(program: str, flags: str) -> str:
    """Return how a coding agent is connected; how to install the extra first, if it is not installed here."""
    if find_spec("mcp") is None:
        return f"MCP:      install memoryd[http], then see {_DOCUMENTS}/docs/mcp.md to connect a coding agent"
    others = f"other agents: {_DOCUMENTS}/docs/mcp.md"
    return f"MCP:      claude mcp add --scope user memoryd -- {program} mcp{flags}   ({others})"
