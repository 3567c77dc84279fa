"""TLS options of a client: the certificates that it trusts, and its own certificate."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS options of a connection. The PEM files are read when the channel is created.

    `ca_file` contains the CA certificates to trust, or the daemon's own certificate; None means the public certificate
    authorities of gRPC. `cert_file` and `key_file` are the client certificate, for a daemon that requires one.
    `server_name` is the expected name in the daemon's certificate, if it is not the host of the address.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file must be set together")


def content(path: str | Path | None) -> bytes | None:
    """Return the content of a file, or None if `path` is None.

    Raises:
        OSError: the file cannot be read.
    """
    return None if path is None else Path(path).read_bytes()
