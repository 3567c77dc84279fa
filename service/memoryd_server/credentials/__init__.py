"""Secrets that OpenClaw's settings refer to: references, the sources that they name, and rows of OpenClaw's databases.

Everything here only reads. No message contains a secret.
"""

from memoryd_server.credentials.host_rows import (
    AGENT_PROFILES,
    SHARED_PROFILES,
    HostRowError,
    HostValue,
    agent_database,
    read_host_row,
    shared_database,
)
from memoryd_server.credentials.references import (
    MalformedReference,
    SecretReference,
    environment_reference,
    parse_reference,
)
from memoryd_server.credentials.resolver import (
    ResolvedSecret,
    SecretLookup,
    SecretSources,
    UnresolvedSecret,
    denied_variable,
    resolve_secrets,
)

__all__ = [
    "AGENT_PROFILES",
    "SHARED_PROFILES",
    "HostRowError",
    "HostValue",
    "MalformedReference",
    "ResolvedSecret",
    "SecretLookup",
    "SecretReference",
    "SecretSources",
    "UnresolvedSecret",
    "agent_database",
    "denied_variable",
    "environment_reference",
    "parse_reference",
    "read_host_row",
    "resolve_secrets",
    "shared_database",
]
