"""The checks of `memoryd doctor`, gathered from the settings, the machine and the status of every agent.

The package `doctor` checks the machine. This module runs its checks and that of the database, and adds those of the
agents' status, of qmd and of entries.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from memoryd import messages
from memoryd.client import MemorydClient
from memoryd.client import MemorydError as ClientError
from memoryd.discovery import recorded_addresses
from memoryd_server.access import CertificateFiles, TokenFiles
from memoryd_server.app import agent_config, check_backends, http_address, metrics_address, require_http_extra
from memoryd_server.cli.connection import open_connection
from memoryd_server.cli.database_checks import check_database
from memoryd_server.cli.index import all_agents
from memoryd_server.cli.options import CommonOptions
from memoryd_server.doctor import (
    Check,
    check_certificates,
    check_clock,
    check_descriptors,
    check_http,
    check_inotify,
    check_keyword_engine,
    check_metrics,
    check_set_aside,
    check_socket,
    check_state_dir,
    check_tokens,
    check_vector_engine,
    check_workspace,
    failure,
    warning,
    well,
)
from memoryd_server.errors import MemorydError, SettingsError
from memoryd_server.qmd import INSTALL_QMD, MIN_NODE_VERSION, QmdConfig, QmdInspection, QmdSearchMode, inspect_qmd
from memoryd_server.settings import AgentSettings, ResolvedSettings
from memoryd_server.sqlite import probe_keyword_engine, probe_vector_extension, sqlite_options, sqlite_version


def all_checks(common: CommonOptions) -> Iterator[Check]:
    """Yield every check; if the settings are invalid, only that one."""
    try:
        settings = common.settings()
    except MemorydError as error:
        meaning = "a daemon does not start with these settings; a running one keeps its previous settings"
        yield failure("settings", error.message, meaning, "fix the file; docs/configuration.md lists all keys")
        return
    yield well("settings", f"{len(settings.agents)} agents")
    yield from (_settings_warning("settings", text) for text in settings.warnings)
    yield from check_state_dir(settings.state_dir)
    yield from check_set_aside(settings.state_dir)
    reads_folders = not settings.service.store.has_documents
    if reads_folders:
        yield from check_inotify()
    yield check_descriptors(sum(agent.enabled for agent in settings.agents.values()))
    yield check_keyword_engine(sqlite_version(), sqlite_options(), probe_keyword_engine)
    yield from _vector_checks(settings)
    yield from check_database(settings.service.store)
    yield from _backend_checks(settings)
    for agent in settings.agents.values():
        if reads_folders:
            yield from check_workspace(agent.agent_id, agent.workspace)
        yield from check_least_score(agent)
    yield from check_qmd(settings)
    yield from _access_checks(settings)
    yield from _daemon_checks(common, settings)


def _backend_checks(settings: ResolvedSettings) -> Iterator[Check]:
    try:
        check_backends(settings)
    except SettingsError as error:
        yield failure(
            "search backend", error.message, "a daemon does not start with these settings", "change one of them"
        )


def _settings_warning(name: str, text: str) -> Check:
    meaning = "the setting has no effect, or only in part"
    advice = "correct the setting or what it refers to, then run memoryd reload; docs/configuration.md lists all keys"
    return warning(name, text, meaning, advice)


def check_least_score(agent: AgentSettings) -> Iterator[Check]:
    """Warn if a least score in the settings removes exact words that the vectors do not match."""
    query = agent.memory_search.query
    if "min_score" not in query.model_fields_set or query.min_score <= query.hybrid.text_weight:
        return
    yield warning(
        f"search of {agent.agent_id}",
        f"query.minScore is {query.min_score:g}, more than hybrid.textWeight ({query.hybrid.text_weight:g})",
        "results that only keyword search finds, such as exact identifiers, are removed even if they match best",
        "remove query.minScore, or lower it; docs/tuning.md has measurements",
    )


def _vector_checks(settings: ResolvedSettings) -> Iterator[Check]:
    vectors = [agent.memory_search.store.vector for agent in settings.agents.values() if agent.enabled]
    for path in dict.fromkeys(vector.extension_path for vector in vectors if vector.enabled):
        probe = probe_vector_extension(path)
        yield check_vector_engine(probe.version, probe.load_error)


def _access_checks(settings: ResolvedSettings) -> Iterator[Check]:
    now = datetime.now(UTC)
    addresses = dict.fromkeys((*settings.service.listen, *recorded_addresses(settings.state_dir)))
    for address in addresses:
        if address.startswith("unix:"):
            yield from check_socket(Path(address.removeprefix("unix:")))
    if settings.service.http.listen or not all(address.startswith("unix:") for address in addresses):
        yield from check_tokens(TokenFiles.in_state_dir(settings.state_dir, settings.service.token_file), now)
    tls = settings.service.tls
    certificates = CertificateFiles.from_settings(tls.cert_file, tls.key_file, tls.client_ca_file)
    if certificates is not None:
        yield check_certificates(certificates, now)


def _daemon_checks(common: CommonOptions, settings: ResolvedSettings) -> Iterator[Check]:
    try:
        with open_connection(common) as daemon:
            yield well("daemon", "answers" if daemon.remote else "not running; the agents are checked in this process")
            yield _metrics_check(settings, running=daemon.remote)
            yield from _http_checks(settings, running=daemon.remote)
            reported, newest = set(settings.warnings), None
            for agent in [agent for agent in all_agents(daemon.client) if agent.enabled]:
                answer = daemon.client.status(agent_id=agent.agent_id, probe=True)
                yield from _service_checks(answer.service, reported)
                newest = max(filter(None, (newest, last_sync_time(answer))), default=None)
                yield from check_agent(answer)
                if answer.HasField("reranker") and _RERANKER not in reported:
                    reported.add(_RERANKER)
                    yield check_reranker(answer.reranker)
            yield check_clock(datetime.now(UTC), newest)
            yield from check_entries(settings, daemon.client)
    except (ClientError, MemorydError) as error:
        meaning = "agents have no memory until the daemon answers"
        yield failure("daemon", error.message, meaning, "see the daemon's log, or start it: memoryd serve")


def _http_checks(settings: ResolvedSettings, *, running: bool) -> Iterator[Check]:
    try:
        address = http_address(settings)
        if address is None:
            return
        require_http_extra()
    except MemorydError as error:
        yield failure("HTTP", error.message, "the daemon does not start", "change the setting as the message says")
        return
    tls = settings.service.tls
    if tls.client_ca_file is not None:
        yield well("HTTP", f"at {address.text}; not checked, because clients need a certificate")
        return
    yield check_http(address.host, address.port, tls=tls.cert_file is not None, running=running)


def _metrics_check(settings: ResolvedSettings, *, running: bool) -> Check:
    try:
        address = metrics_address(settings)
    except MemorydError as error:
        return failure("metrics", error.message, "the daemon does not start", "change the setting as the message says")
    if address is None:
        return well("metrics", "disabled: memoryd.metrics.listen is not set")
    return check_metrics(address.host, address.port, running=running)


def _service_checks(service: messages.ServiceStatus, reported: set[str]) -> Iterator[Check]:
    """Yield the problems with the daemon's settings that are not in `reported`, and add them to it."""
    for text in service.settings_warnings:
        if text not in reported:
            yield _settings_warning("daemon", text)
    reported.update(service.settings_warnings)
    if service.settings_error and service.settings_error not in reported:
        meaning = "the last reload failed, completely or for some agents; the previous settings are in effect"
        yield warning("daemon", service.settings_error, meaning, "fix the settings, then run memoryd reload")
        reported.add(service.settings_error)
    changed = ", ".join(service.settings_awaiting_restart)
    if changed and changed not in reported:
        yield warning("daemon", f"changed: {changed}", "the changes take effect after a restart", "restart the daemon")
        reported.add(changed)


def check_entries(settings: ResolvedSettings, client: MemorydClient) -> Iterator[Check]:
    """Yield a check for each agent with entries: whether they can be read, and their number."""
    for agent in settings.agents.values():
        if agent.memory_enabled and agent.entries_enabled:
            yield _check_entries_of(f"entries of {agent.agent_id}", agent.agent_id, client)


def _check_entries_of(name: str, agent_id: str, client: MemorydClient) -> Check:
    try:
        page = client.entries.list(agent_id=agent_id, page_size=1)
    except ClientError as error:
        meaning = "no entry can be stored or recalled; searches of the Markdown files work"
        return failure(name, error.message, meaning, "see docs/entries.md for the requirements of entries")
    return well(name, f"{page.total} entries")


def check_qmd(settings: ResolvedSettings) -> Iterator[Check]:
    """Yield the checks for each agent with qmd: the command, its version of Node, and the models for its searches."""
    for agent in settings.agents.values():
        config = QmdConfig.of(agent_config(agent, settings).plugins) if agent.enabled else None
        if config is not None:
            yield from _qmd_checks(f"qmd of {agent.agent_id}", config, inspect_qmd(config))


def _qmd_checks(name: str, config: QmdConfig, inspection: QmdInspection) -> Iterator[Check]:
    old = f"Node {inspection.node} is on the PATH, but qmd needs {MIN_NODE_VERSION} or newer"
    if inspection.problem:
        # With the fallback, the memory works without qmd.
        make_check, meaning = (
            (warning, "the builtin engine answers instead")
            if config.fallback
            else (failure, "searches return no results, because memoryd.qmdFallback is none")
        )
        install = INSTALL_QMD if INSTALL_QMD not in inspection.problem else ""
        advice = f"{old}; {install}".strip("; ") if inspection.node_is_old else install
        yield make_check(name, inspection.problem, meaning, advice or "do what the message says")
    else:
        note = f" ({old}; this qmd includes its own)" if inspection.node_is_old else ""
        yield well(name, f"{inspection.path}, version {inspection.version}{note}")
    yield from _model_checks(f"{name}, models", config, inspection)


def _model_checks(name: str, config: QmdConfig, inspection: QmdInspection) -> Iterator[Check]:
    if config.search_mode is QmdSearchMode.SEARCH:
        yield well(name, "not needed with memory.qmd.searchMode: search")
        return
    for path in inspection.missing_model_files:
        advice = f"correct `models` in {config.folder}/xdg-config/qmd"
        yield failure(name, f"the file {path} does not exist", "qmd cannot answer without this model", advice)
    for model in inspection.missing_models:
        pull = f"XDG_CONFIG_HOME={config.folder}/xdg-config XDG_CACHE_HOME={config.folder}/xdg-cache qmd pull"
        meaning = "qmd downloads it at the first use, and cannot answer until then"
        yield warning(name, f"{model} is not on disk", meaning, f"download the models in advance: {pull}")
    if not inspection.missing_model_files and not inspection.missing_models:
        yield well(name, f"the models that {config.search_mode} needs are on disk")


# The meaning of each kind of degradation, and what to do.
_EXPLAINED: Mapping[str, tuple[str, str]] = {
    "VECTOR_LEG_SKIPPED": (
        "searches use keywords only",
        "fix the problem that the reason names; to search without vectors, set memory.search.provider to none",
    ),
    "EMBEDDING_FALLBACK": (
        "the provider of memory.search.fallback makes the vectors and embeds the queries",
        "fix the configured provider; then restart the daemon, or run memoryd index --force",
    ),
    "BACKEND_FALLBACK": (
        "the builtin engine answers instead of qmd, or no engine if memoryd.qmdFallback is none",
        "fix qmd; see docs/qmd.md",
    ),
    "VECTOR_EXTENSION_MISSING": (
        "sqlite-vec did not load; the search results are the same without it",
        "nothing, or set memory.search.store.vector.enabled: false to remove this message",
    ),
    "FULLTEXT_MISSING": ("keyword search does not work", "run memoryd index --force, and see the daemon's log"),
    "IDENTITY_MISMATCH": (
        "the index was built with other settings than the current ones; searches use it without its outdated vectors",
        "run memoryd index; if it waits for approval of the cost, run memoryd index --force",
    ),
    "INDEX_IMPAIRED": (
        "a sync failed, or the index is damaged, read-only or replaced by a substitute",
        "do what the reason says; memoryd index --force rebuilds the index",
    ),
    "SOURCE_SKIPPED": (
        "a source is not searched; files of an unavailable folder stay in the index, but are not in search results",
        "do what the reason says; mount or create a missing folder, or remove it from the settings",
    ),
    "DEADLINE_CUT": ("a search reached its deadline before it was complete", "allow calls more time"),
    "WATCHER_IMPAIRED": (
        "changes are found by comparing the files, within a minute",
        "see the section Disk and watches of docs/operations.md",
    ),
    "RERANKING_SKIPPED": (
        "searches are answered in the order without reranking",
        "check the reranker's address, key, model and timeout; see docs/reranking.md",
    ),
    "VECTORS_PENDING": (
        "some chunks are found by keywords only",
        "wait for the sync, or do what the reason says",
    ),
}
_RERANKER = "reranker"
_UNKNOWN = ("unknown to this version of the command", "use the command with the same version as the daemon")

_UNWATCHED = frozenset({messages.WatcherMode.WATCHER_MODE_DEAD})


def check_agent(answer: messages.StatusResponse) -> Iterator[Check]:
    """Yield the checks of an agent's status."""
    name = f"memory of {answer.agent_id}"
    yield from _index(name, answer)
    yield from _embedding(name, answer)
    yield from _watching(name, answer)
    for each in answer.degradations:
        kind = messages.DegradationKind.Name(each.kind).removeprefix("DEGRADATION_KIND_")
        yield warning(name, f"{kind}: {each.reason or 'no reason is given'}", *_EXPLAINED.get(kind, _UNKNOWN))
    for issue in answer.source_issues:
        yield warning(name, issue, *_EXPLAINED["SOURCE_SKIPPED"])
    for failed in answer.failed_files:
        meaning = "searches do not find this file"
        yield warning(name, f"{failed.path}: {failed.error}", meaning, "fix the file; the next sync indexes it")
    if answer.qmd.configured:
        yield _qmd(name, answer.qmd)


def _index(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    index = answer.index
    if answer.fulltext.available:
        detail = f"{index.files} files, {index.chunks} chunks, revision {index.revision}, {index.size_bytes:,} bytes"
        yield well(name, detail)
    else:
        detail = answer.fulltext.error or "keyword search does not work"
        yield failure(name, detail, "searches of this agent fail", "run memoryd index --force")
    if index.dirty:
        meaning = "searches do not find these files, or find their previous contents"
        advice = "wait for the sync, or run memoryd index; memoryd status shows why a sync failed"
        yield warning(name, f"{index.pending_files} files are not indexed yet", meaning, advice)


def _embedding(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    embedding = answer.embedding
    if not embedding.provider:
        requested = embedding.requested_provider or "auto"
        if requested in {"auto", "none"}:
            why = embedding.reason or f"no embedding provider (provider: {requested})"
            detail = f"{why}; searches use keywords only, and no text leaves the machine"
            yield well(name, detail)
        return
    provider = f"{embedding.provider} {embedding.model}".strip()
    if not embedding.HasField("probe"):
        yield well(name, f"{provider}; not called")
    elif embedding.probe.ok:
        yield well(name, f"{provider} answers in {embedding.probe.elapsed.ToMilliseconds()} ms")
    else:
        detail = f"{provider} does not answer: {embedding.probe.error or 'no reason is given'}"
        meaning = "searches use keywords only, and new chunks get no vectors until the provider answers"
        advice = "check its address, key and quota; see docs/embedding.md"
        yield failure(name, detail, meaning, advice)
    if answer.batch.enabled and answer.batch.last_error:
        meaning = "chunks are sent in normal requests instead, which cost more"
        yield warning(name, f"batch jobs: {answer.batch.last_error}", meaning, "see the provider's console")


def check_reranker(reranker: messages.RerankerStatus) -> Check:
    """Return whether the reranker, which all agents share, answers, and what a search costs."""
    provider = f"{reranker.provider} {reranker.model}".strip()
    if not reranker.reason or reranker.reason.startswith("the model is "):
        cost = f"{reranker.candidates} candidates and about {reranker.tokens_per_search} tokens per search"
        return well(_RERANKER, f"{provider}: {reranker.reason or cost}")
    detail = f"{provider} does not answer: {reranker.reason}"
    advice = "check its address, key, model and timeout; see docs/reranking.md"
    return warning(_RERANKER, detail, "searches are answered in the order without reranking", advice)


def _watching(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    for each in answer.watchers:
        mode = messages.WatcherMode.Name(each.mode).removeprefix("WATCHER_MODE_").lower()
        if each.mode in _UNWATCHED:
            meaning = "changes are found only by the reconcile pass, within a minute"
            advice = "create the folder, or restart the daemon if the folder exists"
            yield warning(name, f"{each.root} is not watched: {each.reason or mode}", meaning, advice)
        else:
            yield well(name, f"{each.root} is watched: {mode}{f', {each.reason}' if each.reason else ''}")


def _qmd(name: str, qmd: messages.QmdStatus) -> Check:
    if qmd.available:
        return well(name, f"qmd {qmd.version} answers")
    detail = f"qmd does not answer: {qmd.reason or 'no reason is given'}"
    meaning = "the builtin engine answers instead, unless memoryd.qmdFallback is none"
    return warning(name, detail, meaning, "see docs/qmd.md for the requirements of qmd")


def last_sync_time(answer: messages.StatusResponse) -> datetime | None:
    """Return when the agent's last sync completed, by the machine's clock at that time; None if none has."""
    if not answer.index.HasField("last_sync_time"):
        return None
    return answer.index.last_sync_time.ToDatetime(tzinfo=UTC)
