"""TLS of the TCP listeners, with certificates that may change while the daemon runs."""

import grpc

from memoryd_server.access import Certificates
from memoryd_server.access.certificates import Pem


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Credentials that show the newest certificate to each connection that is made; those that are open stay."""
    served = certificates.current()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal served
        found = certificates.current()
        if found == served:
            return None
        served = found
        return _configuration(found)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(served),
        changed,  # type: ignore[arg-type] # the stubs do not know that None means unchanged
        require_client_authentication=certificates.asks_clients,
    )


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], root_certificates=pem.client_ca)
