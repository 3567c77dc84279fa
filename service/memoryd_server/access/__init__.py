"""Who may come in over TCP: the tokens and what each may use, and the certificates that listeners show."""

from memoryd_server.access.certificates import CertificateFiles, Certificates, read_certificates
from memoryd_server.access.grant import DEFAULT_AGENT, EVERYTHING, Grant
from memoryd_server.access.keyring import Keyring
from memoryd_server.access.plain import first_token, generate_token, read_tokens
from memoryd_server.access.store import TokenRecord, TokenStore
from memoryd_server.access.token_files import TokenFiles
from memoryd_server.access.watch import AccessFiles

__all__ = [
    "DEFAULT_AGENT",
    "EVERYTHING",
    "AccessFiles",
    "CertificateFiles",
    "Certificates",
    "Grant",
    "Keyring",
    "TokenFiles",
    "TokenRecord",
    "TokenStore",
    "first_token",
    "generate_token",
    "read_certificates",
    "read_tokens",
]
