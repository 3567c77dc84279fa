"""How long a certificate is good for, and for which names: asked of the TLS library by a handshake with ourselves."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from memoryd_server.access.certificates import CertificateFiles
from memoryd_server.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Validity:
    """Until when a certificate is good, and for which hosts, host names first."""

    until: datetime
    names: tuple[str, ...]


def validity(files: CertificateFiles) -> Validity:
    """What the certificate is good for. The files must be a pair that can serve.

    Raises:
        SettingsError: its time is over, or has not come.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(files.certificate, files.key)
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    # The certificate vouches for itself: who signed it is not the question.
    asking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    asking.load_verify_locations(files.certificate)
    try:
        shown = _shown(serving, asking)
    except ssl.SSLCertVerificationError as error:
        raise SettingsError(f"{files.certificate}: {error.verify_message}") from error
    names = shown.get("subjectAltName", ())
    return Validity(
        until=datetime.fromtimestamp(ssl.cert_time_to_seconds(shown["notAfter"]), UTC),
        names=tuple(name for wanted in ("DNS", "IP Address") for kind, name in names if kind == wanted),
    )


def _shown(serving: ssl.SSLContext, asking: ssl.SSLContext) -> dict[str, Any]:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = asking.wrap_bio(to_client, to_server)
    while True:
        if _done(client):
            return dict(client.getpeercert() or {})
        _done(server)


def _done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
