"""How long a certificate is good for, asked of the TLS library by a handshake with ourselves."""

import ssl
from datetime import UTC, datetime

from memoryd_server.access.certificates import CertificateFiles
from memoryd_server.errors import SettingsError


def valid_until(files: CertificateFiles) -> datetime:
    """The end of the certificate's time. The files must be a pair that can serve.

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
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)


def _shown(serving: ssl.SSLContext, asking: ssl.SSLContext) -> dict[str, object]:
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
