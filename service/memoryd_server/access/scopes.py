"""The scopes of a token: what its caller may do with the agents that the token allows."""

from collections.abc import Iterable, Mapping
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
