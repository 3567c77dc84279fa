"""`memoryd health`: whether a daemon serves, for whoever supervises it."""

import sys

import click

from memoryd._channel import open_channel
from memoryd_server.cli.options import Common, common_options
from memoryd_server.cli.output import FAILURE, UNAVAILABLE, reported
from memoryd_server.cli.session import endpoints
from memoryd_server.rpc.probe import Health, ask_health


@click.command()
@click.option("--service", default="", help="Of this service alone, for example memoryd.v1.EntryService.")
@click.option("--timeout", default=3.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds to wait.")
@common_options
def health(common: Common, service: str, timeout: float) -> None:
    """Asks the running daemon for its health, and starts none.

    Prints SERVING and ends with 0; with 1 when the daemon answers and does not serve; with 5 when none answers.
    """
    with reported():
        found = _asked(common, service, timeout)
    if found.state:
        click.echo(found.state)
        sys.exit(0 if found.serving else FAILURE)
    click.echo(f"memoryd: {found.problem}", err=True)
    sys.exit(UNAVAILABLE)


def _asked(common: Common, service: str, timeout: float) -> Health:
    found = Health("", "no daemon runs here; name one with --address, or start it: memoryd serve")
    for endpoint in endpoints(common):
        with open_channel(endpoint, retries=False) as channel:
            found = ask_health(channel, endpoint.token, service, timeout)
        if found.state:
            break
    return found
