"""Doctor: gathers and prints checks.

`memoryd doctor`: what could keep memoryd from working, what that means, and what to do about it.

The part of `memoryd doctor` that looks at entries.

The part of `memoryd doctor` that looks at qmd.

The part of `memoryd doctor` that explains what Status tells of an agent.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from memoryd import messages
from memoryd.client import MemorydClient
from memoryd.client import MemorydError as ClientError
from memoryd.discovery import noted_addresses
from memoryd_server.access import CertificateFiles, TokenFiles
from memoryd_server.app import agent_config, metrics_address
from memoryd_server.cli.connection import session
from memoryd_server.cli.index import all_agents
from memoryd_server.cli.options import FAILURE, CommonOptions, common_options, json_option, print_json
from memoryd_server.doctor import (
    Check,
    CheckResult,
    check_certificates,
    check_clock,
    check_descriptors,
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
from memoryd_server.errors import MemorydError
from memoryd_server.qmd import INSTALL_QMD, MIN_NODE_VERSION, QmdConfig, QmdInspection, QmdSearchMode, inspect_qmd
from memoryd_server.settings import ResolvedSettings
from memoryd_server.sqlite import probe_keyword_engine, probe_vector_extension, sqlite_options, sqlite_version

_MARKS: Mapping[CheckResult, str] = {CheckResult.OK: "ok  ", CheckResult.WARNING: "WARN", CheckResult.FAILED: "FAIL"}


@click.command()
@common_options
@json_option
def doctor(common: CommonOptions, as_json: bool) -> None:
    """Checks the machine, the settings and every agent's memory. Ends with 1 when something has failed.

    Warnings leave it at 0: the memory works, and something about it is less than it could be.
    """
    checks = list(_checks(common))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            _print(check)
    sys.exit(FAILURE if any(check.verdict is CheckResult.FAILED for check in checks) else 0)


def _print(check: Check) -> None:
    click.echo(f"{_MARKS[check.verdict]} {check.name}: {check.detail}")
    if check.meaning:
        click.echo(f"       means: {check.meaning}")
    if check.advice:
        click.echo(f"       → {check.advice}")


def _checks(common: CommonOptions) -> Iterator[Check]:
    try:
        settings = common.settings()
    except MemorydError as error:
        means = "the daemon does not start; one that runs keeps the settings that it has"
        yield failure("settings", error.message, means, "mend the file; docs/configuration.md names every key")
        return
    yield well("settings", f"{len(settings.agents)} agents")
    yield from (_settings_warning("settings", told) for told in settings.warnings)
    yield from check_state_dir(settings.state_dir)
    yield from check_set_aside(settings.state_dir)
    yield from check_inotify()
    yield check_descriptors(sum(agent.enabled for agent in settings.agents.values()))
    yield check_keyword_engine(sqlite_version(), sqlite_options(), probe_keyword_engine)
    yield from _vector_checks(settings)
    for agent in settings.agents.values():
        yield from check_workspace(agent.agent_id, agent.workspace)
    yield from check_qmd(settings)
    yield from _access_checks(settings)
    yield from _daemon_checks(common, settings)


def _settings_warning(name: str, told: str) -> Check:
    means = "the key is not used as it stands, or not at all"
    return warning(name, told, means, "change or remove it; docs/configuration.md names every key")


def _vector_checks(settings: ResolvedSettings) -> Iterator[Check]:
    vectors = [agent.memory_search.store.vector for agent in settings.agents.values() if agent.enabled]
    for path in dict.fromkeys(vector.extension_path for vector in vectors if vector.enabled):
        found = probe_vector_extension(path)
        yield check_vector_engine(found.version, found.load_error)


def _access_checks(settings: ResolvedSettings) -> Iterator[Check]:
    now = datetime.now(UTC)
    listened = dict.fromkeys((*settings.service.listen, *noted_addresses(settings.state_dir)))
    for address in listened:
        if address.startswith("unix:"):
            yield from check_socket(Path(address.removeprefix("unix:")))
    if not all(address.startswith("unix:") for address in listened):
        yield from check_tokens(TokenFiles.in_state_dir(settings.state_dir, settings.service.token_file), now)
    tls = settings.service.tls
    certificates = CertificateFiles.from_settings(tls.cert_file, tls.key_file, tls.client_ca_file)
    if certificates is not None:
        yield check_certificates(certificates, now)


def _daemon_checks(common: CommonOptions, settings: ResolvedSettings) -> Iterator[Check]:
    try:
        with session(common) as found:
            where = "answers" if found.remote else "is not running; checked in this process"
            yield well("daemon", where)
            yield _metrics_check(settings, running=found.remote)
            told, newest = set(settings.warnings), None
            for agent in [agent for agent in all_agents(found.client) if agent.enabled]:
                answer = found.client.status(agent_id=agent.agent_id, probe=True)
                yield from _service_checks(answer.service, told)
                newest = max(filter(None, (newest, last_sync_of(answer))), default=None)
                yield from check_agent(answer)
            yield check_clock(datetime.now(UTC), newest)
            yield from check_entries(settings, found.client)
    except (ClientError, MemorydError) as error:
        means = "agents have no memory while it does not answer"
        yield failure("daemon", error.message, means, "look at the daemon's log, or start it: memoryd serve")


def _metrics_check(settings: ResolvedSettings, *, running: bool) -> Check:
    try:
        address = metrics_address(settings)
    except MemorydError as error:
        return failure("metrics", error.message, "the daemon does not start", "do what the message says")
    if address is None:
        return well("metrics", "off: memoryd.metrics.listen names no address")
    return check_metrics(address.host, address.port, running=running)


def _service_checks(service: messages.ServiceStatus, told: set[str]) -> Iterator[Check]:
    """What the daemon says of itself; `told` grows by what has been."""
    for each in service.settings_warnings:
        if each not in told:
            yield _settings_warning("daemon", each)
    told.update(service.settings_warnings)
    if service.settings_error and service.settings_error not in told:
        means = "the last reload was refused, or not all of it came into force; the settings before it hold"
        yield warning("daemon", service.settings_error, means, "mend the settings, then: memoryd reload")
        told.add(service.settings_error)
    waiting = ", ".join(service.settings_awaiting_restart)
    if waiting and waiting not in told:
        yield warning("daemon", f"{waiting} were changed", "they do not hold before a restart", "restart the daemon")
        told.add(waiting)


def check_entries(settings: ResolvedSettings, client: MemorydClient) -> Iterator[Check]:
    """Each agent that keeps entries: whether they can be read, and how many there are."""
    for agent in settings.agents.values():
        if agent.enabled and agent.entries_enabled:
            yield _check(f"entries of {agent.agent_id}", agent.agent_id, client)


def _check(name: str, agent_id: str, client: MemorydClient) -> Check:
    try:
        page = client.entries.list(agent_id=agent_id, page_size=1)
    except ClientError as error:
        means = "nothing is remembered or recalled; searches of the Markdown go on"
        return failure(name, error.message, means, "docs/entries.md says what entries need")
    return well(name, f"{page.total} entries")


def check_qmd(settings: ResolvedSettings) -> Iterator[Check]:
    """Each agent whose backend is qmd: the command, the Node below it, and the models that its searches need."""
    for agent in settings.agents.values():
        config = QmdConfig.of(agent_config(agent, settings).plugins) if agent.enabled else None
        if config is not None:
            yield from checks_of(f"qmd of {agent.agent_id}", config, inspect_qmd(config))


def checks_of(name: str, config: QmdConfig, found: QmdInspection) -> Iterator[Check]:
    """What an inspection means, and what to do about it."""
    old = f"Node {found.node} is on the PATH, and qmd needs {MIN_NODE_VERSION} or newer"
    if found.problem:
        # Where the builtin engine stands in, the memory works without it.
        bad, means = (
            (warning, "memoryd's own index answers in its place")
            if config.fallback
            else (failure, "nothing is found, as memoryd.qmdFallback is none")
        )
        install = INSTALL_QMD if INSTALL_QMD not in found.problem else ""
        advice = f"{old}; {install}".strip("; ") if found.node_is_old else install
        yield bad(name, found.problem, means, advice or "do what the message says")
    else:
        note = f" ({old}; this qmd brings its own)" if found.node_is_old else ""
        yield well(name, f"{found.path}, version {found.version}{note}")
    yield from _model_checks(f"{name}, models", config, found)


def _model_checks(name: str, config: QmdConfig, found: QmdInspection) -> Iterator[Check]:
    if config.search_mode is QmdSearchMode.SEARCH:
        yield well(name, "memory.qmd.searchMode is search, which needs none")
        return
    for path in found.missing_model_files:
        advice = f"mend `models` in {config.folder}/xdg-config/qmd"
        yield failure(name, f"there is no file {path}", "qmd does not answer without it", advice)
    for model in found.missing_models:
        fetch = f"XDG_CONFIG_HOME={config.folder}/xdg-config XDG_CACHE_HOME={config.folder}/xdg-cache qmd pull"
        means = "qmd fetches it when it is first used, and answers nothing until then"
        yield warning(name, f"{model} is not on disk", means, f"fetch the models beforehand: {fetch}")
    if not found.missing_model_files and not found.missing_models:
        yield well(name, f"those that {config.search_mode} needs are on disk")


# Of each kind of degradation: what it means, and what to do.
_EXPLAINED: Mapping[str, tuple[str, str]] = {
    "VECTOR_LEG_SKIPPED": (
        "keywords alone answer",
        "mend what the reason names; where no vectors are wanted, set memorySearch.provider: none",
    ),
    "EMBEDDING_FALLBACK": (
        "the provider of memorySearch.fallback makes the vectors and embeds questions",
        "mend the configured provider; then restart, or memoryd index --force",
    ),
    "BACKEND_FALLBACK": (
        "memoryd's own index answers in the place of qmd, or nobody does where memoryd.qmdFallback is none",
        "mend qmd; docs/qmd.md says how",
    ),
    "VECTOR_EXTENSION_MISSING": (
        "sqlite-vec did not load; the same results are found without it",
        "nothing, or memorySearch.store.vector.enabled: false to be told no more",
    ),
    "FULLTEXT_MISSING": ("words cannot be searched", "run memoryd index --force, and look at the daemon's log"),
    "IDENTITY_MISMATCH": (
        "the index was built otherwise than the settings say now, and answers as it is, its vectors aside",
        "run memoryd index; where it waits for a yes to the price: memoryd index --force",
    ),
    "INDEX_IMPAIRED": (
        "something stands in for a whole index of the newest state",
        "do what the reason says; memoryd index --force builds it anew",
    ),
    "SOURCE_SKIPPED": (
        "a source is not searched; what is indexed of a folder that is away is kept and not shown",
        "mount or create the folder; where it is gone for good, take it out of the settings",
    ),
    "DEADLINE_CUT": ("a search ended before it had seen everything", "allow calls more time"),
    "WATCHER_IMPAIRED": (
        "changes are found by comparing the files, within a minute",
        "docs/operations.md, Disk and watches, says what each reason needs",
    ),
    "VECTORS_PENDING": (
        "some chunks are found by keywords alone",
        "wait for the sync, or do what the reason says",
    ),
}
_UNKNOWN = ("this version of the command does not know it", "use the command of the daemon's version")

# What a search asks of each watched root.
_UNWATCHED = frozenset({messages.WatcherMode.WATCHER_MODE_DEAD})


def check_agent(answer: messages.StatusResponse) -> Iterator[Check]:
    """Everything that an agent's status tells."""
    name = f"memory of {answer.agent_id}"
    yield from _index(name, answer)
    yield from _embedding(name, answer)
    yield from _watching(name, answer)
    for each in answer.degradations:
        kind = messages.DegradationKind.Name(each.kind).removeprefix("DEGRADATION_KIND_")
        yield warning(name, f"{kind}: {each.reason or 'no reason is told'}", *_EXPLAINED.get(kind, _UNKNOWN))
    for issue in answer.source_issues:
        means, advice = _EXPLAINED["SOURCE_SKIPPED"]
        yield warning(name, issue, means, advice)
    for failed in answer.failed_files:
        means = "this file is not found by searches; the others are"
        yield warning(name, f"{failed.path}: {failed.error}", means, "mend the file; the next sync takes it up")
    if answer.qmd.configured:
        yield _qmd(name, answer.qmd)


def _index(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    index = answer.index
    if answer.fulltext.available:
        detail = f"{index.files} files, {index.chunks} chunks, revision {index.revision}, {index.size_bytes:,} bytes"
        yield well(name, detail)
    else:
        means = "searches of this agent fail"
        yield failure(
            name, answer.fulltext.error or "the keyword leg does not answer", means, "run memoryd index --force"
        )
    if index.dirty:
        means = "they are not found, or as they were before"
        advice = "wait for the sync, or run memoryd index; memoryd status tells why one failed"
        yield warning(name, f"{index.pending_files} files are not indexed yet", means, advice)


def _embedding(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    embedding = answer.embedding
    if not embedding.provider:
        asked = embedding.requested_provider or "auto"
        if asked in {"auto", "none"}:
            yield well(name, f"no embedding provider ({asked}): keywords alone answer, and nothing leaves the machine")
        return
    who = f"{embedding.provider} {embedding.model}".strip()
    if not embedding.HasField("probe"):
        yield well(name, f"{who}; not asked")
    elif embedding.probe.ok:
        yield well(name, f"{who} answers in {embedding.probe.elapsed.ToMilliseconds()} ms")
    else:
        means = "questions are answered by keywords, and new chunks wait for their vectors"
        advice = "look at its address, its key and its quota; docs/embedding.md says where each comes from"
        yield failure(name, f"{who} does not answer: {embedding.probe.error or 'no reason is told'}", means, advice)
    if answer.batch.enabled and answer.batch.last_error:
        means = "chunks are sent to the provider directly instead, which costs more"
        yield warning(name, f"batch jobs: {answer.batch.last_error}", means, "look at the provider's console")


def _watching(name: str, answer: messages.StatusResponse) -> Iterator[Check]:
    for each in answer.watchers:
        mode = messages.WatcherMode.Name(each.mode).removeprefix("WATCHER_MODE_").lower()
        if each.mode in _UNWATCHED:
            means = "changes are found by the reconcile pass alone, within a minute"
            advice = "create the folder, or restart the daemon if it is there"
            yield warning(name, f"nothing watches {each.root}: {each.reason or mode}", means, advice)
        else:
            yield well(name, f"{each.root} is watched: {mode}{f', {each.reason}' if each.reason else ''}")


def _qmd(name: str, qmd: messages.QmdStatus) -> Check:
    if qmd.available:
        return well(name, f"qmd {qmd.version} answers")
    means = "memoryd's own index answers in its place, unless memoryd.qmdFallback is none"
    return warning(
        name, f"qmd does not answer: {qmd.reason or 'no reason is told'}", means, "docs/qmd.md says what it needs"
    )


def last_sync_of(answer: messages.StatusResponse) -> datetime | None:
    """When the agent's last sync completed, by the clock of that day."""
    if not answer.index.HasField("last_sync_time"):
        return None
    return answer.index.last_sync_time.ToDatetime(tzinfo=UTC)
