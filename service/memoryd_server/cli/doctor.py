"""`memoryd doctor`: what could keep memoryd from working, what that means, and what to do about it."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from memoryd import messages
from memoryd.client import MemorydError as ClientError
from memoryd.discovery import noted_addresses
from memoryd_server.access import CertificateFiles, TokenFiles
from memoryd_server.cli.doctor_agents import check_agent, last_sync_of
from memoryd_server.cli.doctor_entries import check_entries
from memoryd_server.cli.doctor_qmd import check_qmd
from memoryd_server.cli.index import all_agents
from memoryd_server.cli.options import Common, common_options, json_option
from memoryd_server.cli.output import FAILURE, print_json
from memoryd_server.cli.session import session
from memoryd_server.errors import MemorydError
from memoryd_server.index.probe import probe_keyword_engine, sqlite_options, sqlite_version
from memoryd_server.index.vectors.extension import probe
from memoryd_server.observe.doctor import Check, Verdict, failure, warning, well
from memoryd_server.observe.doctor_access import check_certificates, check_tokens
from memoryd_server.observe.doctor_engines import check_keyword_engine, check_vector_engine
from memoryd_server.observe.doctor_host import (
    check_clock,
    check_descriptors,
    check_inotify,
    check_set_aside,
    check_state_dir,
    check_workspace,
)
from memoryd_server.observe.doctor_metrics import check_metrics
from memoryd_server.observe.doctor_socket import check_socket
from memoryd_server.settings import ResolvedSettings
from memoryd_server.wiring_metrics import metrics_address

_MARKS: Mapping[Verdict, str] = {Verdict.OK: "ok  ", Verdict.WARNING: "WARN", Verdict.FAILED: "FAIL"}


@click.command()
@common_options
@json_option
def doctor(common: Common, as_json: bool) -> None:
    """Checks the machine, the settings and every agent's memory. Ends with 1 when something has failed.

    Warnings leave it at 0: the memory works, and something about it is less than it could be.
    """
    checks = list(_checks(common))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            _print(check)
    sys.exit(FAILURE if any(check.verdict is Verdict.FAILED for check in checks) else 0)


def _print(check: Check) -> None:
    click.echo(f"{_MARKS[check.verdict]} {check.name}: {check.detail}")
    if check.meaning:
        click.echo(f"       means: {check.meaning}")
    if check.advice:
        click.echo(f"       → {check.advice}")


def _checks(common: Common) -> Iterator[Check]:
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
        found = probe(path)
        yield check_vector_engine(found.version, found.load_error)


def _access_checks(settings: ResolvedSettings) -> Iterator[Check]:
    now = datetime.now(UTC)
    listened = dict.fromkeys((*settings.service.listen, *noted_addresses(settings.state_dir)))
    for address in listened:
        if address.startswith("unix:"):
            yield from check_socket(Path(address.removeprefix("unix:")))
    if not all(address.startswith("unix:") for address in listened):
        yield from check_tokens(TokenFiles.beneath(settings.state_dir, settings.service.token_file), now)
    tls = settings.service.tls
    certificates = CertificateFiles.named(tls.cert_file, tls.key_file, tls.client_ca_file)
    if certificates is not None:
        yield check_certificates(certificates, now)


def _daemon_checks(common: Common, settings: ResolvedSettings) -> Iterator[Check]:
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
