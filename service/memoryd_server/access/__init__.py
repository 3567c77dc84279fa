"""Authentication, authorization, call limits, TLS certificates and listening addresses."""

from memoryd_server.access.addresses import MOST_SOCKET_PATH_BYTES, Address, parse_address, refuse_exposed
from memoryd_server.access.admission import CallLimits, Credentials, RateLimiter, confine
from memoryd_server.access.certificates import (
    CertificateFiles,
    Certificates,
    PemFiles,
    certificate_validity,
    read_certificates,
)
from memoryd_server.access.grants import ALL_AGENTS_GRANT, DEFAULT_AGENT, Grant, Scope
from memoryd_server.access.private_files import read_private
from memoryd_server.access.token_store import TokenRecord, TokenStore
from memoryd_server.access.tokens import TokenFiles, TokenVerifier, first_token, read_tokens

__all__ = [
    "ALL_AGENTS_GRANT",
    "DEFAULT_AGENT",
    "MOST_SOCKET_PATH_BYTES",
    "Address",
    "CallLimits",
    "CertificateFiles",
    "Certificates",
    "Credentials",
    "Grant",
    "PemFiles",
    "RateLimiter",
    "Scope",
    "TokenFiles",
    "TokenRecord",
    "TokenStore",
    "TokenVerifier",
    "certificate_validity",
    "confine",
    "first_token",
    "parse_address",
    "read_certificates",
    "read_private",
    "read_tokens",
    "refuse_exposed",
]
