"""Secrets that OpenClaw's settings refer to: references, the sources that they name, and rows of OpenClaw's databases.

Everything here only reads. No message contains a secret.
"""

from memoryd_server.credentials.openclaw_database import (
    AGENT_PROFILES,
    SHARED_PROFILES,
    OpenClawDatabaseError,
    OpenClawValue,
    agent_database,
    read_openclaw_value,
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
    "MalformedReference",
    "OpenClawDatabaseError",
    "OpenClawValue",
    "ResolvedSecret",
    "SecretLookup",
    "SecretReference",
    "SecretSources",
    "UnresolvedSecret",
    "agent_database",
    "denied_variable",
    "environment_reference",
    "parse_reference",
    "read_openclaw_value",
    "resolve_secrets",
    "shared_database",
]
