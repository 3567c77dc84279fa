"""Authentication, authorization, call limits, TLS certificates and listening addresses."""

from memoryd_server.access.addresses import Address, parse, refuse_exposed
from memoryd_server.access.admission import CallLimits, Credentials, RateLimiter, confine
from memoryd_server.access.certificates import CertificateFiles, Certificates, PemFiles, read_certificates, validity
from memoryd_server.access.token_store import TokenRecord, TokenStore
from memoryd_server.access.tokens import (
    DEFAULT_AGENT,
    EVERYTHING,
    Grant,
    TokenFiles,
    TokenVerifier,
    first_token,
    read_tokens,
)

__all__ = [
    "DEFAULT_AGENT",
    "EVERYTHING",
    "Address",
    "CallLimits",
    "CertificateFiles",
    "Certificates",
    "Credentials",
    "Grant",
    "PemFiles",
    "RateLimiter",
    "TokenFiles",
    "TokenRecord",
    "TokenStore",
    "TokenVerifier",
    "confine",
    "first_token",
    "parse",
    "read_certificates",
    "read_tokens",
    "refuse_exposed",
    "validity",
]
