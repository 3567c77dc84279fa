"""What can go wrong with one answer."""

from dataclasses import dataclass, field


@dataclass
class Fault:
    """One answer out of the ordinary: a status with a body, or what is done to the reply or the connection.

    `vectors` changes the vectors before they are put into the reply, `change` the whole reply. With
    `seconds_per_byte`, the reply is sent one byte at a time, with this pause after each.
    """

    status: int = 200
    body: object = None
    headers: dict = field(default_factory=dict)
    delay_seconds: float = 0.0
    seconds_per_byte: float = 0.0
    truncated: bool = False
    reset: bool = False
    change: object = None
    vectors: object = None


class Refused(Exception):
    """A request that the provider would refuse, with its own kind of error."""

    def __init__(self, fault):
        super().__init__(fault.status)
        self.fault = fault


class FaultsOfEveryProvider:
    """Faults by their names; a server adds those that its provider words in its own way."""

    def failing(self, status=500):
        return Fault(status=status, body=self.error(status, "The server had an error while processing your request."))

    def slow(self, seconds=1.0):
        return Fault(delay_seconds=seconds)

    def truncated(self):
        return Fault(truncated=True)

    def reset(self):
        return Fault(reset=True)

    def short(self):
        return Fault(vectors=lambda vectors: vectors[:-1])

    def narrow(self):
        return Fault(vectors=lambda vectors: [*vectors[:-1], vectors[-1][: len(vectors[-1]) // 2]])


KINDS = ("limited", "quota", "denied", "failing", "slow", "truncated", "reset", "short", "narrow")
"""The names: rate limit, quota used up, key refused, HTTP 500, late, JSON cut short, connection reset amid the body,
one vector too few, one vector too short."""
