"""Asks the questions of a golden set, one daemon in this process after the other: one for each workspace."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from memoryd import messages
from memoryd.client import MemorydClient, connect
from memoryd_server.cli.local import LocalDaemon
from memoryd_server.cli.search import direct_session
from memoryd_server.evaluation import RANKED, GoldenSetError, Hit, Outcome, Query, Span, judge
from memoryd_server.settings import ResolvedSettings

# A busy machine is no reason to count a question as missed.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a run. `left_out` and `degradations` say in words what the figures do not cover."""

    outcomes: tuple[Outcome, ...]
    left_out: tuple[str, ...]
    degradations: tuple[str, ...]


def run_trial(
    settings: ResolvedSettings,
    queries: Sequence[Query],
    *,
    keyword: bool,
    keep: Path | None,
    on_done: Callable[[int], None],
) -> Trial:
    """Asks every question of an index of its workspace. `settings` have one agent, whose workspace is replaced.

    `keep` is where indexes stay for another run, None for nowhere; `on_done` gets the number of questions done.

    Raises:
        GoldenSetError: nothing could be asked.
        memoryd.client.MemorydError: a sync or a search failed.
    """
    outcomes: list[Outcome] = []
    left_out: list[str] = []
    degradations: dict[str, None] = {}
    for workspace, asked in _by_workspace(queries).items():
        with _memory_of(workspace, _searched_so(settings, keyword=keyword), keep) as client:
            _sync(client)
            if reason := _not_covered(client, asked):
                left_out.append(reason)
                on_done(len(asked))
                continue
            for query in asked:
                answer = client.search(_request(query, keyword=keyword), timeout=_PATIENCE_SECONDS)
                degradations |= dict.fromkeys(each.reason for each in answer.info.degradations)
                outcomes.append(judge(query, [_hit(result) for result in answer.results]))
                on_done(1)
    if not outcomes:
        raise GoldenSetError("no question could be asked: " + "; ".join(left_out))
    return Trial(tuple(outcomes), tuple(left_out), tuple(degradations))


def only_agent(settings: ResolvedSettings, agent_id: str) -> ResolvedSettings:
    """Settings without any agent but the named one.

    Raises:
        AgentNotFound: none of that id is configured.
    """
    agent = settings.agent(agent_id)
    return replace(settings, agents={agent.agent_id: agent}, default_agent=agent.agent_id)


def _by_workspace(queries: Sequence[Query]) -> dict[Path, list[Query]]:
    found: dict[Path, list[Query]] = {}
    for query in queries:
        found.setdefault(query.workspace, []).append(query)
    return found


def _searched_so(settings: ResolvedSettings, *, keyword: bool) -> ResolvedSettings:
    """The settings as they are, or without any provider of embeddings."""
    agent = settings.agent(settings.default_agent)
    more = {"provider": "none", "fallback": "none"} if keyword else {}
    # What lies outside the workspace belongs to the agent and not to the golden set.
    search = agent.memory_search.model_copy(update={"extra_paths": (), **more})
    return replace(settings, agents={agent.agent_id: replace(agent, memory_search=search)})


@contextmanager
def _memory_of(workspace: Path, settings: ResolvedSettings, keep: Path | None) -> Iterator[MemorydClient]:
    """A client of a daemon that has this workspace, and neither the agent's index nor its tokens."""
    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        # The socket stays in the temporary folder whatever `keep` is: its path must be short.
        address = f"unix:{directory}/s"
        state = _kept(keep, workspace) if keep is not None else Path(directory)
        agent = settings.agent(settings.default_agent)
        agent = replace(agent, workspace=workspace, index_path=state / "memory" / "index.sqlite")
        service = settings.service.model_copy(update={"listen": (address,), "token_file": None})
        swapped = replace(settings, state_dir=state, service=service, agents={agent.agent_id: agent})
        local = LocalDaemon(swapped, background=False)
        local.start()
        try:
            with connect(address) as client:
                yield client
        finally:
            local.stop()


def _kept(keep: Path, workspace: Path) -> Path:
    """A folder for the indexes of a workspace, that no other workspace has."""
    digest = hashlib.sha256(bytes(workspace)).hexdigest()[:12]
    return keep / f"{workspace.name}-{digest}"


def _sync(client: MemorydClient) -> None:
    with client.sync() as events:
        for event in events:
            if event.WhichOneof("event") == "file_failed":
                raise GoldenSetError(f"{event.file_failed.path} cannot be indexed: {event.file_failed.error}")


def _not_covered(client: MemorydClient, queries: Sequence[Query]) -> str:
    """Why none of the questions can be answered: no file of their gold is memory. Empty when any is."""
    wanted = {gold.span.path for query in queries for gold in query.gold}
    if not wanted or wanted & set(_files(client)):
        return ""
    where = f"{queries[0].dataset}/{queries[0].workspace.name}"
    return f"{len(queries)} questions on {where}: none of the files that answer them is memory of the agent"


def _files(client: MemorydClient) -> Iterator[str]:
    token = ""
    while True:
        page = client.list_files(page_token=token)
        yield from (file.path for file in page.files)
        token = page.next_page_token
        if not token:
            return


def _request(query: Query, *, keyword: bool) -> messages.MemorySearchRequest:
    mode = messages.SEARCH_MODE_KEYWORD if keyword else messages.SEARCH_MODE_UNSPECIFIED
    request = messages.MemorySearchRequest(
        query=query.text,
        max_results=RANKED,
        mode=mode,
        citations=messages.CITATION_MODE_OFF,
        session_key=direct_session(""),
    )
    if query.asked_at is not None:
        request.now.FromDatetime(query.asked_at)
    return request


def _hit(result: messages.SearchResult) -> Hit:
    return Hit(Span(result.path, result.start_line, result.end_line), result.snippet)
