"""What a caller may do: Grant, the agents and the scopes of a token.

The edges compare the scope of each method with the grant of its caller; see `rpc/method_scopes.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Scope(StrEnum):
    """A set of methods that a token allows. Every scope includes READ."""

    READ = "read"
    APPEND = "append"
    EDIT = "edit"
    ADMIN = "admin"


_INCLUDED: Mapping[Scope, frozenset[Scope]] = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.APPEND: frozenset({Scope.READ, Scope.APPEND}),
    Scope.EDIT: frozenset({Scope.READ, Scope.APPEND, Scope.EDIT}),
    # Tokens that were created before scopes existed have ADMIN. They could not edit a memory file.
    Scope.ADMIN: frozenset({Scope.READ, Scope.APPEND, Scope.ADMIN}),
}

DEFAULT_SCOPES = (Scope.ADMIN,)
"""The scopes of a token without scopes: of the token file, or created without `--scope`."""

ALL_SCOPES = frozenset(Scope)


def expand_scopes(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """Return the scopes with those that they include."""
    return frozenset().union(*(_INCLUDED[scope] for scope in scopes))


# The agent that an empty agent id means for a caller who is limited to some agents. It is a constant, because a value
# that depends on the configuration would reveal which other agents exist.
DEFAULT_AGENT = "main"


@dataclass(frozen=True, slots=True)
class Grant:
    """The ids of the agents that a caller may use; None means every agent, including those configured later.

    `scopes` are what the caller may do with them, with the scopes that others include. `token_id` is the id for the
    log, empty for a token of the plain file and for the Unix socket. `share` identifies the token whose share of the
    limits a call counts against, empty for the Unix socket. `caller` is the name of the caller in the history of
    writes.
    """

    agents: frozenset[str] | None = None
    scopes: frozenset[Scope] = expand_scopes(DEFAULT_SCOPES)
    token_id: str = field(default="", compare=False)
    share: str = field(default="", compare=False)
    caller: str = field(default="", compare=False)

    @property
    def limited(self) -> bool:
        """Whether the caller is limited to some agents and must not learn anything about the others."""
        return self.agents is not None

    def allows(self, agent_id: str) -> bool:
        """Return whether the caller may use the agent with exactly this id."""
        return self.agents is None or agent_id in self.agents

    def may(self, scope: Scope) -> bool:
        """Return whether the caller has a scope."""
        return scope in self.scopes


LOCAL_CALLER = "local"

ALL_AGENTS_GRANT = Grant(scopes=ALL_SCOPES, caller=LOCAL_CALLER)
"""The grant of a caller on the Unix socket: every agent and every scope."""
