"""Run the questions of a golden set against a daemon in this process, one workspace after the other."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memoryd_server.cli.progress import download_models
from memoryd_server.cli.searched_memory import direct_session
from memoryd_server.evaluation import (
    RANKED,
    GoldenQuery,
    GoldenSetError,
    LineSpan,
    QueryOutcome,
    ShownHit,
    judge,
)
from memoryd_server.settings import DatabaseSettings

if TYPE_CHECKING:
    from pydantic import SecretStr

    from memoryd import messages
    from memoryd.client import MemorydClient
    from memoryd_server.settings import ResolvedSettings

# Long enough that no query fails because the machine is busy.
_SEARCH_SECONDS = 60.0
# The folder of a workspace for transcripts, and the first part of their paths in results.
_TRANSCRIPTS = "sessions"


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """The outcomes of a run. `left_out` and `degradations` are messages about what the figures do not cover."""

    outcomes: tuple[QueryOutcome, ...]
    left_out: tuple[str, ...]
    degradations: tuple[str, ...]


def run_evaluation(
    settings: ResolvedSettings,
    queries: Sequence[GoldenQuery],
    *,
    keyword: bool,
    keep: Path | None,
    database: SecretStr | None = None,
    on_done: Callable[[int], None],
) -> EvaluationRun:
    """Run every query against an index of its workspace. `settings` has one agent, whose workspace is replaced.

    `keep` is the folder in which the indexes are kept, or None. `database` is the URL of a PostgreSQL database, into
    which the workspaces are imported, each as an agent of its own; None for files. `on_done` is called with the number
    of completed queries.

    Raises:
        GoldenSetError: no query could be run, or a workspace cannot be imported.
        memoryd.client.MemorydError: a sync or a search failed.
    """
    outcomes: list[QueryOutcome] = []
    left_out: list[str] = []
    degradations: dict[str, None] = {}
    done = 0
    evaluated = _evaluated_settings(settings, keyword=keyword)
    for workspace, group in _by_workspace(queries).items():
        own = evaluated if database is None else _in_database(evaluated, workspace, database)
        with _memory_of(workspace, own, keep) as client:
            _sync(client)
            if reason := _reason_not_covered(client, group):
                left_out.append(reason)
                done += len(group)
                on_done(done)
                continue
            for query in group:
                request = _request(query, own.default_agent, keyword=keyword)
                answer = client.search(request, timeout=_SEARCH_SECONDS)
                degradations |= dict.fromkeys(each.reason for each in answer.info.degradations)
                outcomes.append(judge(query, [_hit(result) for result in answer.results]))
                done += 1
                on_done(done)
    if not outcomes:
        raise GoldenSetError("no query could be run: " + "; ".join(left_out))
    return EvaluationRun(tuple(outcomes), tuple(left_out), tuple(degradations))


def only_agent(settings: ResolvedSettings, agent_id: str) -> ResolvedSettings:
    """Return the settings with this agent only.

    Raises:
        AgentNotFound: no agent with this id is configured.
    """
    agent = settings.agent(agent_id)
    return replace(settings, agents={agent.agent_id: agent}, default_agent=agent.agent_id)


def _by_workspace(queries: Sequence[GoldenQuery]) -> dict[Path, list[GoldenQuery]]:
    groups: dict[Path, list[GoldenQuery]] = {}
    for query in queries:
        groups.setdefault(query.workspace, []).append(query)
    return groups


def _evaluated_settings(settings: ResolvedSettings, *, keyword: bool) -> ResolvedSettings:
    """Return the settings without extra paths and, with `keyword`, without embedding providers."""
    agent = settings.agent(settings.default_agent)
    more = {"provider": "none", "fallback": "none"} if keyword else {}
    # Extra paths belong to the agent and not to the golden set.
    search = agent.memory_search.model_copy(update={"extra_paths": (), **more})
    agents = {agent.agent_id: replace(agent, memory_search=search)}
    store = DatabaseSettings(password_file=settings.service.store.password_file)
    return replace(settings, agents=agents, service=settings.service.model_copy(update={"store": store}))


def _in_database(settings: ResolvedSettings, workspace: Path, url: SecretStr) -> ResolvedSettings:
    """Return the settings with the documents in a database, as those of an agent that is named after the workspace."""
    agent_id = f"eval-{_digest(workspace)}"
    agent = replace(settings.agent(settings.default_agent), agent_id=agent_id)
    store = settings.service.store.model_copy(update={"url": url})
    service = settings.service.model_copy(update={"store": store})
    return replace(settings, agents={agent_id: agent}, default_agent=agent_id, service=service)


def _import(workspace: Path, settings: ResolvedSettings) -> None:
    """Copy the memory files and transcripts of a workspace into the database."""
    from memoryd_server.app import open_copies  # noqa: PLC0415 -- not needed for help
    from memoryd_server.postgres import CopyOptions  # noqa: PLC0415 -- an extra

    transcripts = workspace / _TRANSCRIPTS
    sessions = transcripts if transcripts.is_dir() else None
    with open_copies(settings, settings.default_agent, workspace, sessions) as copies:
        reports = [each.into_database(CopyOptions(replace=True)) for each in (copies.files, copies.transcripts) if each]
    if not all(report.is_complete for report in reports):
        raise GoldenSetError(f"the files of {workspace} cannot be imported completely")


@contextmanager
def _memory_of(workspace: Path, settings: ResolvedSettings, keep: Path | None) -> Iterator[MemorydClient]:
    """Yield a client of a new daemon for this workspace, which has its own index and no tokens."""
    # Help does not need gRPC and the settings.
    from memoryd.client import connect  # noqa: PLC0415
    from memoryd_server.cli.connection import Connection  # noqa: PLC0415
    from memoryd_server.cli.local_daemon import LocalDaemon  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        # The socket is always in the temporary folder, because its path must be short.
        address = f"unix:{directory}/s"
        state = _state_dir(keep, workspace) if keep is not None else Path(directory)
        swapped = _settings_of(workspace, settings, state, address)
        if swapped.service.store.has_documents:
            _import(workspace, swapped)
        local = LocalDaemon(swapped, background=False)
        local.start()
        try:
            with connect(address) as client:
                download_models(Connection(client, local), settings.default_agent)
                yield client
        finally:
            local.stop()


def _settings_of(workspace: Path, settings: ResolvedSettings, state: Path, address: str) -> ResolvedSettings:
    """Return the settings of a daemon for this workspace, with its state in the folder `state`.

    The transcripts of the workspace's folder `sessions` are the agent's; they are indexed if there are any.
    """
    agent = settings.agent(settings.default_agent)
    search = agent.memory_search
    # Models are those of the agent, and not downloaded for each workspace.
    models = search.local.model_cache_dir or str(settings.state_dir / "models")
    changes: dict[str, object] = {"local": search.local.model_copy(update={"model_cache_dir": models})}
    transcripts = workspace / _TRANSCRIPTS
    if any(transcripts.glob("*.jsonl")):
        changes["sources"] = tuple(dict.fromkeys((*search.sources, "sessions")))
    search = search.model_copy(update=changes)
    agent = replace(agent, workspace=workspace, memory_search=search, index_path=state / "memory" / "index.sqlite")
    service = settings.service.model_copy(update={"listen": (address,), "token_file": None})
    # The store replaces that of the agent, whose own sessions do not belong to the golden set.
    store = str(transcripts / "sessions.json")
    return replace(settings, state_dir=state, service=service, agents={agent.agent_id: agent}, session_store=store)


def _state_dir(keep: Path, workspace: Path) -> Path:
    """Return the folder below `keep` for the index of this workspace."""
    return keep / f"{workspace.name}-{_digest(workspace)}"


def _digest(workspace: Path) -> str:
    return hashlib.sha256(bytes(workspace)).hexdigest()[:12]


def _sync(client: MemorydClient) -> None:
    with client.sync() as events:
        for event in events:
            if event.WhichOneof("event") == "file_failed":
                raise GoldenSetError(f"{event.file_failed.path} cannot be indexed: {event.file_failed.error}")


def _reason_not_covered(client: MemorydClient, queries: Sequence[GoldenQuery]) -> str:
    """Return why none of the queries can be answered: none of their gold files is indexed. Empty if any file is."""
    gold_files = {gold.span.path for query in queries for gold in query.gold}
    if not gold_files or gold_files & set(_files(client)):
        return ""
    place = f"{queries[0].dataset}/{queries[0].workspace.name}"
    return f"{len(queries)} queries on {place}: none of the files with the answers is a memory file of the agent"


def _files(client: MemorydClient) -> Iterator[str]:
    token = ""
    while True:
        page = client.list_files(page_token=token)
        yield from (file.path for file in page.files)
        token = page.next_page_token
        if not token:
            return


def _request(query: GoldenQuery, agent: str, *, keyword: bool) -> messages.MemorySearchRequest:
    from memoryd import messages  # noqa: PLC0415 -- not needed for help

    mode = messages.SEARCH_MODE_KEYWORD if keyword else messages.SEARCH_MODE_UNSPECIFIED
    request = messages.MemorySearchRequest(
        query=query.text,
        max_results=RANKED,
        mode=mode,
        citations=messages.CITATION_MODE_OFF,
        session_key=direct_session(agent),
    )
    if query.asked_at is not None:
        request.now.FromDatetime(query.asked_at)
    return request


def _hit(result: messages.SearchResult) -> ShownHit:
    return ShownHit(LineSpan(result.path, result.start_line, result.end_line), result.snippet)
