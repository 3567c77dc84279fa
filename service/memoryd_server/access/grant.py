"""What a caller may use, by the credential that it showed."""

from dataclasses import dataclass, field

# What an empty agent id means to a caller who may not use every agent. It depends on nothing that is configured:
# otherwise the answer would tell whether other agents exist.
DEFAULT_AGENT = "main"


@dataclass(frozen=True, slots=True)
class Grant:
    """The agents that a caller may use, by id; None means every agent, also those configured later.

    `token_id` is for the log: the id of the token that was shown, empty for one of the plain file and on the socket.
    `share` names the token whose share of the limits a call counts against, empty on the socket.
    """

    agents: frozenset[str] | None = None
    token_id: str = field(default="", compare=False)
    share: str = field(default="", compare=False)

    @property
    def limited(self) -> bool:
        """Whether there are agents that the caller may not use, and may learn nothing of."""
        return self.agents is not None

    def allows(self, agent_id: str) -> bool:
        """Whether the caller may use the agent of this exact id."""
        return self.agents is None or agent_id in self.agents


EVERYTHING = Grant()
