"""`memoryd doctor`: what could keep memoryd from working, and what to do about it."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import click

from memoryd import messages
from memoryd.client import MemorydError as ClientError
from memoryd.discovery import noted_addresses
from memoryd_server.access import CertificateFiles, TokenFiles
from memoryd_server.cli.doctor_entries import check_entries
from memoryd_server.cli.doctor_qmd import check_qmd
from memoryd_server.cli.index import all_agents
from memoryd_server.cli.options import Common, common_options, json_option
from memoryd_server.cli.output import FAILURE, print_json
from memoryd_server.cli.session import session
from memoryd_server.errors import MemorydError
from memoryd_server.index.probe import probe_keyword_engine, sqlite_version
from memoryd_server.observe.doctor import (
    Check,
    Verdict,
    check_inotify,
    check_keyword_engine,
    check_set_aside,
    check_state_dir,
    check_workspace,
)
from memoryd_server.observe.doctor_access import check_certificates, check_tokens
from memoryd_server.settings import ResolvedSettings

_MARKS: Mapping[Verdict, str] = {Verdict.OK: "ok  ", Verdict.WARNING: "WARN", Verdict.FAILED: "FAIL"}


@click.command()
@common_options
@json_option
def doctor(common: Common, as_json: bool) -> None:
    """Checks the ground and every agent's memory. Exits with 1 when something has failed."""
    checks = list(_checks(common))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            click.echo(f"{_MARKS[check.verdict]} {check.name}: {check.detail}")
            if check.advice:
                click.echo(f"       → {check.advice}")
    sys.exit(FAILURE if any(check.verdict is Verdict.FAILED for check in checks) else 0)


def _checks(common: Common) -> Iterator[Check]:
    try:
        settings = common.settings()
    except MemorydError as error:
        yield Check("settings", Verdict.FAILED, error.message, "mend the file; docs/configuration.md names every key")
        return
    yield Check("settings", Verdict.OK, f"{len(settings.agents)} agents")
    yield from (Check("settings", Verdict.WARNING, warning) for warning in settings.warnings)
    yield from check_state_dir(settings.state_dir)
    yield from check_set_aside(settings.state_dir)
    yield check_inotify()
    yield check_keyword_engine(sqlite_version(), probe_keyword_engine)
    yield from (check_workspace(agent.agent_id, agent.workspace) for agent in settings.agents.values())
    yield from check_qmd(settings)
    yield from _access_checks(settings)
    yield from _daemon_checks(common, settings)


def _access_checks(settings: ResolvedSettings) -> Iterator[Check]:
    now = datetime.now(UTC)
    if not all(
        address.startswith("unix:") for address in (*settings.service.listen, *noted_addresses(settings.state_dir))
    ):
        yield from check_tokens(TokenFiles.beneath(settings.state_dir, settings.service.token_file), now)
    tls = settings.service.tls
    certificates = CertificateFiles.named(tls.cert_file, tls.key_file, tls.client_ca_file)
    if certificates is not None:
        yield check_certificates(certificates, now)


def _daemon_checks(common: Common, settings: ResolvedSettings) -> Iterator[Check]:
    try:
        with session(common) as found:
            where = "answers" if found.remote else "is not running; checked in this process"
            yield Check("daemon", Verdict.OK, where)
            told = set(settings.warnings)
            for agent in [agent for agent in all_agents(found.client) if agent.enabled]:
                answer = found.client.status(agent_id=agent.agent_id, probe=True)
                news = [warning for warning in answer.service.settings_warnings if warning not in told]
                yield from (Check("daemon", Verdict.WARNING, warning) for warning in news)
                told.update(news)
                yield from _agent_checks(answer)
            yield from check_entries(settings, found.client)
    except (ClientError, MemorydError) as error:
        yield Check("daemon", Verdict.FAILED, error.message, "look at the daemon's log, or start it: memoryd serve")


def _agent_checks(answer: messages.StatusResponse) -> Iterator[Check]:
    name = f"memory of {answer.agent_id}"
    index = answer.index
    if answer.fulltext.available:
        detail = f"{index.files} files, {index.chunks} chunks, revision {index.revision}"
        yield Check(name, Verdict.OK, detail)
    else:
        yield Check(name, Verdict.FAILED, answer.fulltext.error, "run memoryd index --force")
    if index.dirty:
        yield Check(name, Verdict.WARNING, f"{index.pending_files} files are not indexed yet", "run memoryd index")
    yield from (Check(name, Verdict.WARNING, each.reason) for each in answer.degradations)
    yield from (Check(name, Verdict.WARNING, issue) for issue in answer.source_issues)
    yield from (Check(name, Verdict.WARNING, f"{each.path}: {each.error}") for each in answer.failed_files)
