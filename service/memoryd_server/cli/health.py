"""`memoryd health`: check a running daemon, for a supervisor or the health check of a container.

The command calls `grpc.health.v1` itself and imports no module of the daemon, so that frequent checks cost little.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from memoryd_server.cli.options import FAILURE, UNAVAILABLE, CommonOptions, common_options, fail, reported

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """The status that a daemon reports. If no daemon answers, `state` is empty and `problem` is the reason."""

    state: str
    problem: str = ""

    @property
    def serving(self) -> bool:
        """Whether the service is healthy."""
        return self.state == "SERVING"


def check_health(channel: grpc.Channel, token: str | None, service: str, seconds: float) -> HealthAnswer:
    """Return the health of `service`, or of the whole daemon if `service` is empty; give up after `seconds`."""
    # Help does not need gRPC.
    import grpc  # noqa: PLC0415
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=service)
    try:
        answer = stub.Check(request, timeout=seconds, metadata=metadata)
    except grpc.RpcError as error:
        return HealthAnswer("", f"{error.code().name}: {error.details()}")
    return HealthAnswer(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@click.command()
@click.option("--service", default="", help="Check only this service, for example memoryd.v1.EntryService.")
@click.option(
    "--timeout",
    default=3.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Time to wait for an answer, in seconds.",
)
@common_options
def health(common: CommonOptions, service: str, timeout: float) -> None:
    """Check the health of the running daemon.

    Never starts a daemon. Prints SERVING and exits with 0 if the daemon is healthy. Exits with 1 if the daemon answers
    but is not serving, and with 5 if no daemon answers.
    """
    with reported():
        answer = _check_endpoints(common, service, timeout)
    if not answer.state:
        fail(answer.problem, UNAVAILABLE)
    click.echo(answer.state)
    sys.exit(0 if answer.serving else FAILURE)


def _check_endpoints(common: CommonOptions, service: str, timeout: float) -> HealthAnswer:
    """Return the first answer of an endpoint, or the last problem."""
    from memoryd._channel import open_channel  # noqa: PLC0415 -- not needed for help
    from memoryd_server.cli.connection import endpoints  # noqa: PLC0415

    answer = HealthAnswer("", "no daemon is running; start one with `memoryd serve`, or give its --address")
    for endpoint in endpoints(common):
        with open_channel(endpoint, retries=False) as channel:
            answer = check_health(channel, endpoint.token, service, timeout)
        if answer.state:
            break
    return answer
