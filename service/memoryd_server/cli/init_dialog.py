"""The steps of `memoryd init`: choose the memory and the embedding provider, write, index, and search once."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.prompt import Confirm, Prompt
from rich.table import Table

from memoryd.client import MemorydClient
from memoryd.discovery import Environment
from memoryd_server.cli.approval import approval_command, with_command
from memoryd_server.cli.connection import open_connection
from memoryd_server.cli.daemon_registry import running_daemon
from memoryd_server.cli.index import all_agents, follow_with_bar, sync_events
from memoryd_server.cli.init import InitOptions
from memoryd_server.cli.init_discovery import (
    FolderSurvey,
    SettingsPlaces,
    find_settings,
    indexes_all_files,
    likely_folders,
    named_provider,
    survey_folder,
)
from memoryd_server.cli.init_embedding import (
    EmbeddingChoice,
    ProviderCheck,
    check_provider,
    embedding_choices,
    find_ollama_models,
    local_provider,
    no_provider,
    ollama_provider,
    remote_provider,
)
from memoryd_server.cli.init_settings import InitialSettings, keep_copy, write_settings
from memoryd_server.cli.options import FAILURE, CommonOptions, as_dict, complain, print_json, program_name, reported
from memoryd_server.cli.progress import download_models
from memoryd_server.cli.search import direct_session
from memoryd_server.cli.serve import reload_daemon
from memoryd_server.errors import EmbeddingUnavailable, SettingsError
from memoryd_server.settings import ProviderAccess, ResolvedSettings

_DOCUMENTS = "https://github.com/memoryd/memoryd/blob/main"
_MAX_SNIPPET_LINES = 4
_MAX_RESULTS = 3


@dataclass(slots=True)
class InitReport:
    """What was found and done, for `--json`."""

    settings_file: str
    written: bool = False
    copy_of_previous: str = ""
    openclaw: str = ""
    workspaces: list[str] = field(default_factory=list)
    embedding: dict[str, Any] = field(default_factory=dict)
    syncs: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    next_steps: list[str] = field(default_factory=list)


def run_init(options: InitOptions) -> int:
    """Set up a memory and return the exit code."""
    with reported():
        return _Init(options).run()


class _Init:
    def __init__(self, options: InitOptions) -> None:
        self._options = options
        # Whether the settings are in OpenClaw's older layout.
        self._older = False
        self._console = Console(quiet=options.as_json, highlight=False, soft_wrap=True)
        self._places = find_settings(options.config, options.state_dir)
        self._report = InitReport(str(self._places.own))
        openclaw = self._places.openclaw
        self._report.openclaw = "" if openclaw is None else str(openclaw)

    def run(self) -> int:
        """Run all steps and return the exit code.

        Raises:
            SettingsError: the settings cannot be used or written.
            EmbeddingUnavailable: the provider does not work.
            memoryd.client.MemorydError: a call to the daemon failed.
        """
        settings = self._common(self._options.config).settings(read_secrets=False)
        initial = self._initial_settings(settings)
        if initial is not None:
            self._check_and_write(initial)
        settings = self._common(self._options.config).settings()
        self._report.workspaces = [str(agent.workspace) for agent in settings.agents.values() if agent.enabled]
        if running_daemon(self._places.state_dir) is not None:
            reload_daemon(self._places.state_dir)
        complete = self._index_and_search()
        self._say_next(settings)
        if self._options.as_json:
            print_json({_camel_case(name): value for name, value in asdict(self._report).items()})
        return 0 if complete else FAILURE

    def _common(self, config: Path | None) -> CommonOptions:
        return CommonOptions(config, self._places.state_dir, None, None, None)

    def _initial_settings(self, settings: ResolvedSettings) -> InitialSettings | None:
        """Return the settings to write; None if the existing file is used as it is.

        Raises:
            SettingsError: the folder cannot be used, the file exists, or a choice cannot be used.
        """
        own, options = self._places.own, self._options
        if own.exists() and not options.force:
            if options.changes_settings:
                workspace = settings.agents[settings.default_agent or next(iter(settings.agents))].workspace
                raise SettingsError(
                    f"{own} already sets up the workspace {workspace}; for another memory, add --state-dir DIR; to "
                    "replace these settings, add --force, which keeps a copy"
                )
            self._say(f"Using the settings in {own}.")
            return None
        self._older = self._places.openclaw is not None and settings.layout == "older"
        folder, survey = self._choose_folder(settings)
        all_files = indexes_all_files(settings) or self._all_files(survey)
        provider = named_provider(settings) if self._places.openclaw is not None else ""
        if provider and options.embedding is None:
            self._say(f"Embedding provider: {provider}, as in OpenClaw's settings.")
            self._report.embedding = {"provider": provider}
            chosen = None
        else:
            chosen = self._choose_embedding(survey.tokens(all_files=all_files))
        return InitialSettings(
            folder,
            all_files,
            "" if chosen is None else chosen.provider,
            options.model or ("" if chosen is None or chosen.provider != "ollama" else chosen.model),
            older=self._older,
        )

    def _choose_folder(self, settings: ResolvedSettings) -> tuple[Path | None, FolderSurvey]:
        """Return the workspace to write to the settings, None for that of OpenClaw, and what is in the workspace."""
        folder = self._options.folder
        agent = settings.agents[settings.default_agent or next(iter(settings.agents))]
        if self._places.openclaw is not None:
            if folder is not None and folder.expanduser().resolve() != agent.workspace.resolve():
                raise SettingsError(
                    f"{self._places.openclaw} sets the workspace {agent.workspace}; to search {folder} as well, add it "
                    f"to memory.search.extraPaths in {self._places.own}; for a separate memory, add --state-dir"
                )
            self._say(f"Found OpenClaw: {self._places.openclaw}")
            for each in settings.agents.values():
                self._say(f"  agent {each.agent_id}: {each.workspace}, {survey_folder(each.workspace).text()}")
            return None, survey_folder(agent.workspace)
        if folder is None and self._places.own.exists():
            folder = agent.workspace
        if folder is None and self._options.interactive:
            folder = self._ask_folder(agent.workspace)
        if folder is None:
            return agent.workspace, self._empty_memory(agent.workspace)
        folder = folder.expanduser().absolute()
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            raise SettingsError(f"{folder} {what}; give the folder that contains your Markdown files")
        survey = survey_folder(folder)
        self._say(f"Found {survey.text()} in {folder}.")
        return folder, survey

    def _ask_folder(self, default: Path) -> Path | None:
        found = likely_folders(Path.home())
        for number, folder in enumerate(found, 1):
            self._say(f"  {number}. {folder}: {survey_folder(folder).text()}")
        numbers = f"a number from 1 to {len(found)}, or " if found else ""
        question = f"Where are your notes? Enter {numbers}a folder; empty starts a new memory in {default}"
        while True:
            text = Prompt.ask(question, default="", show_default=False, console=self._console).strip()
            if not text:
                return None
            if text.isdigit() and 1 <= int(text) <= len(found):
                return found[int(text) - 1]
            folder = Path(text).expanduser()
            if folder.is_dir():
                return folder
            self._say(f"{folder} is not a folder.")

    def _empty_memory(self, workspace: Path) -> FolderSurvey:
        try:
            workspace.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"cannot create {workspace}: {error.strerror}") from error
        survey = survey_folder(workspace)
        self._say(f"The memory is in {workspace} ({survey.text()}).")
        return survey

    def _all_files(self, survey: FolderSurvey) -> bool:
        """Return whether to index Markdown files that are not in the usual places of a workspace."""
        if self._options.all_files is not None:
            return self._options.all_files
        if not survey.other_files or self._places.openclaw is not None:
            return False
        if not survey.has_memory:
            return True
        if not self._options.interactive:
            self._say(
                f"Only MEMORY.md, USER.md and memory/ are indexed; --all-files adds the {survey.other_files:,} other "
                "Markdown files."
            )
            return False
        return self._confirm(f"Also index the {survey.other_files:,} Markdown files outside memory/?")

    def _choose_embedding(self, tokens: int) -> EmbeddingChoice:
        """Return the chosen provider.

        Raises:
            SettingsError: the provider of `--embedding` cannot be used.
        """
        wanted = self._options.embedding
        if wanted is None and self._options.interactive:
            return self._ask_embedding(tokens)
        if wanted is None:
            command = f"{program_name()} init --embedding PROVIDER --force"
            self._say(f"Search uses keywords only. To search by meaning later: {command}")
        models = find_ollama_models() if wanted == "ollama" else None
        chosen = self._named_choice(wanted or "none", tokens, models)
        # A model that is named is checked by the call.
        if chosen.problem and not (self._options.model and models is not None):
            raise SettingsError(f"--embedding {chosen.provider}: {chosen.problem}")
        return chosen

    def _named_choice(self, provider: str, tokens: int, ollama_models: list[str] | None) -> EmbeddingChoice:
        if provider == "none":
            return no_provider()
        if provider == "local":
            return local_provider()
        if provider == "ollama":
            return ollama_provider(ollama_models)
        return remote_provider(provider, self._access_of(provider), tokens)

    def _access_of(self, provider: str) -> ProviderAccess:
        """Return the key and the address that a provider would have if the settings selected it."""
        with self._candidate(InitialSettings(provider=provider, older=self._older).text()) as file:
            settings = self._common(file).settings()
        agent = settings.agents[settings.default_agent or next(iter(settings.agents))]
        return agent.provider_access.get(provider, ProviderAccess())

    def _ask_embedding(self, tokens: int) -> EmbeddingChoice:
        choices = embedding_choices(self._access_of, tokens, find_ollama_models())
        table = Table(
            "",
            "search by meaning with",
            "sends",
            "cost, without transcripts",
            "",
            title=None,
            box=None,
            padding=(0, 2, 0, 0),
        )
        for number, each in enumerate(choices, 1):
            name = (
                "nothing: keywords only" if each.provider == "none" else f"{each.provider} ({each.model or 'no model'})"
            )
            table.add_row(f"{number}.", name, each.sends, each.cost, each.problem and f"first: {each.problem}")
        self._console.print(table)
        while True:
            text = Prompt.ask("Which one?", default="1", console=self._console).strip()
            if not (text.isdigit() and 1 <= int(text) <= len(choices)):
                self._say(f"Enter a number from 1 to {len(choices)}.")
                continue
            chosen = choices[int(text) - 1]
            if chosen.problem:
                self._say(f"{chosen.provider}: {chosen.problem}.")
            elif not chosen.is_remote or self._confirm(f"This sends {chosen.sends}. Continue?"):
                return chosen

    def _confirm(self, question: str) -> bool:
        return Confirm.ask(question, default=False, console=self._console)

    def _check_and_write(self, initial: InitialSettings) -> None:
        """Call the provider once with the new settings, then write them.

        Raises:
            SettingsError: the settings cannot be used or written.
            EmbeddingUnavailable: the provider does not work; nothing is written.
        """
        with self._candidate(initial.text()) as file:
            settings = self._common(file).settings()
            if initial.provider:
                self._report.embedding = self._checked(settings, initial.provider)
        own = self._places.own
        if own.exists():
            copy = keep_copy(own, datetime.now().astimezone())
            self._report.copy_of_previous = str(copy)
            self._say(f"The previous settings are in {copy}.")
        write_settings(own, initial.text())
        self._report.written = True
        self._say(f"Wrote {own}.")

    def _checked(self, settings: ResolvedSettings, provider: str) -> dict[str, Any]:
        if provider == "none":
            return {"provider": "none"}
        self._say(f"Calling {provider} once ...")
        check: ProviderCheck = check_provider(settings)
        if check.problem:
            raise EmbeddingUnavailable(f"{provider} does not work: {check.problem}. Nothing was written")
        self._say(f"{provider} works: {check.model}, {check.dimensions} dimensions, {check.seconds:.2f} s.")
        return asdict(check)

    @contextmanager
    def _candidate(self, text: str) -> Iterator[Path]:
        """Write settings to a file next to the real one until the block ends."""
        file = self._places.own.with_name(f".{self._places.own.name}.candidate")
        write_settings(file, text)
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)

    def _index_and_search(self) -> bool:
        """Index every agent, and show a search of the default agent. Return whether no file failed."""
        failed = 0
        with open_connection(self._common(self._options.config)) as connection:
            client = connection.client
            agents = [agent for agent in all_agents(client) if agent.enabled]
            for agent in agents:
                download_models(connection, agent.agent_id)
                with sync_events(client, agent.agent_id) as events:
                    done = follow_with_bar(events, agent.agent_id, transient=True)
                failed += done.failed_files
                self._report.syncs[agent.agent_id] = as_dict(done)
                total = done.indexed_files + done.unchanged_files
                self._say(f"Indexed {total:,} file{'' if total == 1 else 's'} of agent {agent.agent_id}.")
                with_command(done.degradations, approval_command(self._common(self._options.config), agent.agent_id))
                for degradation in done.degradations:
                    complain(f"{agent.agent_id}: {degradation.reason}")
            default = next((agent.agent_id for agent in agents if agent.default), agents[0].agent_id if agents else "")
            if default:
                self._show_search(client, default)
        return not failed

    def _show_search(self, client: MemorydClient, agent: str) -> None:
        query = self._options.query or self._query_from_notes(client, agent)
        if self._options.interactive and self._options.query is None and query:
            query = Prompt.ask("Search for", default=query, console=self._console).strip()
        if not query:
            self._say(f'The memory is empty. Add a note: {program_name()} append "The first thing to remember."')
            return
        answer = client.search(agent_id=agent, query=query, max_results=_MAX_RESULTS, session_key=direct_session(agent))
        self._report.search = {"query": query, **as_dict(answer)}
        self._say(f"\n$ {program_name()} search {shlex.quote(query)}")
        for result in answer.results:
            self._say(f"{result.score:.3f} {result.path}:{result.start_line}-{result.end_line}")
            for line in result.snippet.split("\n")[:_MAX_SNIPPET_LINES]:
                self._say(f"    {line}")
        if not answer.results:
            self._say(f"No matches: {answer.info.empty_explanation}.")

    def _query_from_notes(self, client: MemorydClient, agent: str) -> str:
        """Return the first heading of the last changed note, which is a query with results; empty without notes."""
        files = [file for file in client.list_files(agent_id=agent, page_size=1000).files if file.chunks]
        if not files:
            return ""
        newest = max(files, key=lambda file: file.modified_time.ToNanoseconds())
        text = client.get(agent_id=agent, path=newest.path, line_count=40).text
        headings = (line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#"))
        return next((heading for heading in headings if heading), Path(newest.path).stem)

    def _say_next(self, settings: ResolvedSettings) -> None:
        steps = next_steps(settings, self._places, Environment.of_process())
        self._report.next_steps = steps
        self._say("\nNext:")
        for step in steps:
            self._say(f"  {step}")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


def next_steps(settings: ResolvedSettings, places: SettingsPlaces, environment: Environment) -> list[str]:
    """Return what a user can do next, one line for each step."""
    program, flags = program_name(), _state_flag(places.state_dir, environment)
    running = running_daemon(places.state_dir) is not None
    steps = []
    if not running:
        steps.append(f"daemon:   {program} service install{flags}   (or in this terminal: {program} serve{flags})")
    steps.append(f'search:   {program} search{flags} "your question"')
    if places.openclaw is not None:
        steps.append(f"OpenClaw: install the memory plugin: {_DOCUMENTS}/clients/openclaw/README.md")
    else:
        steps.append(f"OpenClaw: not found; see {_DOCUMENTS}/docs/openclaw.md if you install it")
    steps.append(f'MCP:      this version has no MCP server; a coding agent can run {program} search{flags} "..."')
    address = next((each for each in settings.service.listen if each.startswith("unix:")), "")
    if address:
        request = '\'{"query": "your question"}\''
        method = "memoryd.v1.MemoryService/MemorySearch"
        steps.append(f"gRPC:     grpcurl -plaintext -d {request} {shlex.quote(address)} {method}")
    steps.append(f"clients:  Python, Go, TypeScript, Java and Rust: {_DOCUMENTS}/clients/README.md")
    return steps


def _state_flag(state_dir: Path, environment: Environment) -> str:
    return "" if environment.state_dir == state_dir else f" --state-dir {shlex.quote(str(state_dir))}"


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
