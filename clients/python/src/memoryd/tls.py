"""What a client needs to speak TLS: whom it trusts, and who it is."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS of a connection, by PEM files; they are read when the connection is set up.

    `ca_file` holds the certificates to trust, or the daemon's own; None means the public authorities that grpc knows.
    `cert_file` and `key_file` are for a daemon that asks its clients for a certificate. `server_name` is the name to
    look for in the daemon's certificate where that is not the host that is dialled.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file are needed together")


def content(path: str | Path | None) -> bytes | None:
    """Returns what a file holds, or None where none is named.

    Raises:
        OSError: it cannot be read.
    """
    return None if path is None else Path(path).read_bytes()
