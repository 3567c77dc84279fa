"""`memoryd doctor`: check the settings, the machine and every agent's memory, and print the results."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.options import FAILURE, CommonOptions, common_options, json_option, print_json

if TYPE_CHECKING:
    from memoryd_server.doctor import Check

# The printed form of each verdict.
_MARKS: Mapping[str, str] = {"ok": "ok  ", "warning": "WARN", "failed": "FAIL"}


@click.command()
@common_options
@json_option
def doctor(common: CommonOptions, as_json: bool) -> None:
    """Check the settings, the machine and every agent's memory.

    Exits with 1 if a check failed. Warnings do not change the exit status, because the memory still works, with
    limitations.
    """
    # Help does not need SQLite and the modules of the daemon.
    from memoryd_server.cli.doctor_checks import all_checks  # noqa: PLC0415
    from memoryd_server.doctor import CheckResult  # noqa: PLC0415

    checks = list(all_checks(common))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for check in checks:
            _print(check)
    sys.exit(FAILURE if any(check.verdict is CheckResult.FAILED for check in checks) else 0)


def _print(check: Check) -> None:
    click.echo(f"{_MARKS[check.verdict]} {check.name}: {check.detail}")
    if check.meaning:
        click.echo(f"       meaning: {check.meaning}")
    if check.advice:
        click.echo(f"       → {check.advice}")
