"""`memoryd health`: ask a running daemon whether it serves, for a supervisor or a container's health check.

It calls `grpc.health.v1` itself and imports nothing of the daemon, so that frequent checks cost little.
"""

import sys
from dataclasses import dataclass

import click
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from memoryd._channel import open_channel
from memoryd_server.cli.connection import endpoints
from memoryd_server.cli.options import FAILURE, UNAVAILABLE, CommonOptions, common_options, reported


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """What a daemon says of itself. Without an answer `state` is empty, and `problem` says why."""

    state: str
    problem: str = ""

    @property
    def serving(self) -> bool:
        """Whether it answers searches."""
        return self.state == "SERVING"


def ask_health(channel: grpc.Channel, token: str | None, service: str, seconds: float) -> HealthAnswer:
    """The health of `service`, or of the whole daemon where that is empty, within so many seconds."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=service)
    try:
        answer = stub.Check(request, timeout=seconds, metadata=metadata)
    except grpc.RpcError as error:
        return HealthAnswer("", f"{error.code().name}: {error.details()}")
    return HealthAnswer(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@click.command()
@click.option("--service", default="", help="Of this service alone, for example memoryd.v1.EntryService.")
@click.option("--timeout", default=3.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds to wait.")
@common_options
def health(common: CommonOptions, service: str, timeout: float) -> None:
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


def _asked(common: CommonOptions, service: str, timeout: float) -> HealthAnswer:
    found = HealthAnswer("", "no daemon runs here; name one with --address, or start it: memoryd serve")
    for endpoint in endpoints(common):
        with open_channel(endpoint, retries=False) as channel:
            found = ask_health(channel, endpoint.token, service, timeout)
        if found.state:
            break
    return found
