"""The steps of `memoryd init`: choose the memory and the embedding provider, check, write, index, and search once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from memoryd.discovery import Environment
from memoryd_server.cli.daemon_registry import running_daemon
from memoryd_server.cli.init import InitOptions
from memoryd_server.cli.init_discovery import (
    FolderSurvey,
    default_agent,
    extra_paths,
    find_settings,
    named_provider,
    survey_folder,
)
from memoryd_server.cli.init_embedding import (
    OLLAMA,
    ConfiguredProvider,
    EmbeddingChoice,
    check_provider,
    embedding_choices,
    find_ollama_models,
    local_provider,
    no_provider,
    ollama_provider,
    remote_provider,
)
from memoryd_server.cli.init_first_search import index_and_search, next_steps
from memoryd_server.cli.init_questions import Questions, existing_folder
from memoryd_server.cli.init_settings import (
    ALL_FILES,
    InitialSettings,
    includes_untrusted,
    keep_copy,
    read_settings,
    uses_older_layout,
    write_settings,
)
from memoryd_server.cli.options import FAILURE, CommonOptions, print_json, program_name, reported
from memoryd_server.cli.serve import reload_daemon
from memoryd_server.errors import EmbeddingUnavailable, SettingsError
from memoryd_server.settings import ProviderAccess, ResolvedSettings

# They take precedence over the settings that are written, or select another daemon.
_CONFLICTING_VARIABLES = ("MEMORYD_WORKSPACE", "MEMORYD_ADDRESS")


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
        self._questions = Questions(interactive=options.interactive, quiet=options.as_json)
        self._places = find_settings(options.config, options.state_dir)
        self._exists = self._places.own.exists()
        self._report = InitReport(str(self._places.own))
        openclaw = self._places.openclaw
        self._report.openclaw = "" if openclaw is None else str(openclaw)
        # Whether the settings are in OpenClaw's older layout.
        self._older = False

    def run(self) -> int:
        """Run all steps and return the exit code.

        Raises:
            SettingsError: the settings cannot be used or written, or a variable overrides them.
            EmbeddingUnavailable: the provider does not work.
            memoryd.client.MemorydError: a call to the daemon failed.
        """
        for name in _CONFLICTING_VARIABLES:
            if Environment.of_process().text(name) is not None:
                raise SettingsError(f"{name} is set and overrides what init sets up; unset it, then run init again")
        initial = self._initial_settings()
        if initial is not None:
            self._check_and_write(initial)
        settings = self._settings(self._options.config)
        self._report.workspaces = [str(agent.workspace) for agent in settings.agents.values() if agent.enabled]
        if running_daemon(self._places.state_dir) is not None:
            reloaded = reload_daemon(self._options.state_dir)
            if reloaded.error:
                raise SettingsError(f"the running daemon cannot use the settings: {reloaded.error}")
        done = index_and_search(self._common(self._options.config), settings, self._questions, self._options.query)
        self._report.syncs, self._report.search = done.syncs, done.search
        self._report.next_steps = next_steps(settings, self._places, self._options.config)
        self._questions.say("\nNext:")
        for step in self._report.next_steps:
            self._questions.say(f"  {step}")
        if self._options.as_json:
            print_json({_camel_case(name): value for name, value in asdict(self._report).items()})
        return FAILURE if done.failed_files else 0

    def _common(self, config: Path | None) -> CommonOptions:
        return CommonOptions(config, self._options.state_dir, None, None, None)

    def _settings(self, config: Path | None, *, read_secrets: bool = True) -> ResolvedSettings:
        return self._common(config).settings(read_secrets=read_secrets)

    def _initial_settings(self) -> InitialSettings | None:
        """Return the settings to write; None if the existing file is used as it is.

        Raises:
            SettingsError: the folder cannot be used, the file exists, or a choice cannot be used.
        """
        own, options = self._places.own, self._options
        if self._exists and not options.force:
            settings = self._settings(options.config, read_secrets=False)
            if options.changes_settings:
                raise SettingsError(
                    f"{own} already sets up the workspace {default_agent(settings).workspace}; for another memory, add "
                    "--state-dir DIR; to change these settings, add --force, which keeps a copy"
                )
            self._questions.say(f"Using the settings in {own}.")
            return None
        previous = read_settings(own)
        with self._candidate(InitialSettings().text(previous)) as file:
            settings = self._settings(file, read_secrets=False)
        may_be_older = self._places.openclaw is not None or uses_older_layout(previous)
        self._older = may_be_older and settings.layout == "older"
        folder, survey = self._choose_folder(settings)
        workspace, paths = folder or default_agent(settings).workspace, extra_paths(settings)
        new_paths = self._all_files(survey, workspace, paths)
        all_files = _covers(workspace, [*paths, *new_paths])
        include_untrusted = all_files and self._recalls_all_files(workspace, survey, previous)
        chosen = self._choose_embedding(settings, self._tokens(settings, survey, all_files=bool(new_paths)))
        model = options.model or ""
        if chosen is not None and chosen.provider == "ollama":
            model = model or chosen.model
        if chosen is not None and chosen.provider == "local" and model and not model.startswith(("hf:", "https:")):
            model = str(Path(model).expanduser().absolute())
        provider = "" if chosen is None else chosen.provider
        return InitialSettings(
            folder, [*paths, *new_paths] if new_paths else (), provider, model, self._older, include_untrusted
        )

    def _choose_folder(self, settings: ResolvedSettings) -> tuple[Path | None, FolderSurvey]:
        """Return the workspace to write to the settings, None for that of OpenClaw, and what is in the workspace."""
        folder, workspace = self._options.folder, default_agent(settings).workspace
        if self._places.openclaw is not None:
            if folder is not None and folder.expanduser().resolve() != workspace.resolve():
                raise SettingsError(
                    f"{self._places.openclaw} sets the workspace {workspace}; to search {folder} as well, add it to "
                    f"memory.search.extraPaths in {self._places.own}; for a separate memory, add --state-dir DIR"
                )
            self._questions.say(f"Found OpenClaw: {self._places.openclaw}")
            surveys = {each.workspace: survey_folder(each.workspace) for each in settings.agents.values()}
            for each in settings.agents.values():
                self._questions.say(f"  agent {each.agent_id}: {each.workspace}, {surveys[each.workspace].text()}")
            return None, surveys[workspace]
        if folder is None and self._exists:
            folder = workspace
        elif folder is None and self._options.interactive:
            folder = self._questions.ask_folder(Path.home(), workspace)
        if folder is None:
            survey = survey_folder(workspace)
            self._questions.say(f"The memory is in {workspace} ({survey.text()}).")
            return workspace, survey
        found = existing_folder(str(folder))
        if found is None:
            what = "is not a folder" if folder.exists() else "does not exist"
            raise SettingsError(f"{folder.absolute()} {what}; give the folder that contains your Markdown files")
        survey = survey_folder(found)
        self._questions.say(f"Found {survey.text()} in {found}.")
        return found, survey

    def _all_files(self, survey: FolderSurvey, workspace: Path, paths: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the extra path to add, so that Markdown files outside the usual places of a workspace are indexed."""
        whole = (".", ALL_FILES)
        if _covers(workspace, paths) or self._options.all_files is False:
            return []
        if self._options.all_files:
            return [whole]
        # Other extra paths are a decision about what is indexed.
        if not survey.other_files or self._places.openclaw is not None or paths:
            return []
        if not survey.has_memory:
            return [whole]
        if self._options.interactive:
            question = f"Also index the {survey.other_files:,} Markdown files outside memory/?"
            return [whole] if self._questions.confirm(question) else []
        self._questions.say(
            f"Only MEMORY.md, USER.md and memory/ are indexed; --all-files adds the {survey.other_files:,} other "
            "Markdown files."
        )
        return []

    def _recalls_all_files(self, workspace: Path, survey: FolderSurvey, previous: dict[str, Any] | None) -> bool:
        """Return whether to set that recall returns text of all files of the workspace, and say what recall returns.

        A user who names a folder of notes trusts its files. The files in the workspace of an agent can be of anyone.
        """
        if includes_untrusted(previous) is not None:
            return False
        key = "memoryd.recall.includeUntrusted"
        is_agents = survey.has_memory or workspace.resolve().is_relative_to(self._places.state_dir.resolve())
        if self._places.openclaw is not None or is_agents:
            self._questions.say(
                "Recall returns only text of MEMORY.md, USER.md and memory/. To include the other files, set "
                f"{key} to true in {self._places.own}."
            )
            return False
        self._questions.say(
            f"Recall returns text of all these files, because {key} is set to true; this also includes messages of "
            "other people in session transcripts that are indexed. If other people or programs write to the files, set "
            f"it to false in {self._places.own}."
        )
        return True

    def _tokens(self, settings: ResolvedSettings, survey: FolderSurvey, *, all_files: bool) -> int:
        """Return about how many tokens the notes of all agents have."""
        default = default_agent(settings).agent_id
        others = [each for each in settings.agents.values() if each.enabled and each.agent_id != default]
        surveys = [survey_folder(each.workspace) for each in others]
        return survey.tokens(all_files=all_files) + sum(each.tokens(all_files=False) for each in surveys)

    def _choose_embedding(self, settings: ResolvedSettings, tokens: int) -> EmbeddingChoice | None:
        """Return the chosen provider; None to keep the one that the settings name.

        Raises:
            SettingsError: the provider of `--embedding` cannot be used.
        """
        wanted, named = self._options.embedding, named_provider(settings)
        if wanted is None and named:
            self._questions.say(f"Embedding provider: {named}, as in the settings.")
            self._report.embedding = {"provider": named}
            return None
        if wanted is None and self._options.interactive:
            return self._questions.ask_provider(embedding_choices(self._configured, tokens))
        if wanted is None:
            command = f"{program_name()} init --embedding PROVIDER --force"
            self._questions.say(f"Search uses keywords only. To search by meaning later: {command}")
        chosen = self._named_choice(wanted or "none", tokens)
        # A model that is named is checked by the call.
        missing_model = chosen.provider == "ollama" and not chosen.model and self._options.model
        if chosen.problem and not missing_model:
            raise SettingsError(f"--embedding {chosen.provider}: {chosen.problem}")
        return chosen

    def _named_choice(self, provider: str, tokens: int) -> EmbeddingChoice:
        if provider == "none":
            return no_provider()
        if provider == "local":
            return local_provider()
        configured = self._configured(provider)
        if provider == "ollama":
            return ollama_provider(find_ollama_models(configured.base_url or OLLAMA), configured.base_url)
        return remote_provider(provider, configured, tokens)

    def _configured(self, provider: str) -> ConfiguredProvider:
        """Return the key, the address and the model that a provider would have if the settings selected it."""
        text = InitialSettings(provider=provider, older=self._older).text(read_settings(self._places.own))
        with self._candidate(text) as file:
            agent = default_agent(self._settings(file))
        access = agent.provider_access.get(provider, ProviderAccess())
        return ConfiguredProvider(access, agent.memory_search.model or "")

    def _check_and_write(self, initial: InitialSettings) -> None:
        """Call the provider once with the new settings, then write them.

        Raises:
            SettingsError: the settings cannot be used or written.
            EmbeddingUnavailable: the provider does not work; nothing is written.
        """
        own = self._places.own
        text = initial.text(read_settings(own))
        with self._candidate(text) as file:
            settings = self._settings(file)
            if initial.provider:
                self._report.embedding = self._checked(settings, initial.provider)
        workspace = default_agent(settings).workspace
        try:
            workspace.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"cannot create {workspace}: {error.strerror}") from error
        if self._exists:
            copy = keep_copy(own, datetime.now().astimezone())
            self._report.copy_of_previous = str(copy)
            self._questions.say(f"The previous settings are in {copy}.")
        write_settings(own, text)
        self._report.written = True
        self._questions.say(f"Wrote {own}.")

    def _checked(self, settings: ResolvedSettings, provider: str) -> dict[str, Any]:
        if provider == "none":
            return {"provider": "none"}
        self._questions.say(f"Calling {provider} once ...")
        check = check_provider(settings)
        if check.problem:
            raise EmbeddingUnavailable(f"{provider} does not work: {check.problem}. Nothing was written")
        self._questions.say(f"{provider} works: {check.model}, {check.dimensions} dimensions, {check.seconds:.2f} s.")
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


def _covers(workspace: Path, paths: list[tuple[str, str]]) -> bool:
    """Return whether extra paths, with their patterns, contain all Markdown files of a workspace."""
    return any(
        pattern in {"", ALL_FILES} and workspace.is_relative_to((workspace / path).resolve()) for path, pattern in paths
    )


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
