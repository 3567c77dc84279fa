"""TLS pairs: checked, reloaded, validity.

A listener's certificate and key: checked before they are used, and read again when their files change.

How long a certificate is good for, and for which names: asked of the TLS library by a handshake with ourselves.
"""

import ssl
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from memoryd_server.access.private_files import Signature, read_private, signature
from memoryd_server.errors import SettingsError


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files. Where `client_ca` is set, clients must show a certificate that it has signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def named(cls, certificate: Path | None, key: Path | None, client_ca: Path | None) -> "CertificateFiles | None":
        """The files that the settings name; None where they name no certificate."""
        return None if certificate is None or key is None else cls(certificate, key, client_ca)

    def paths(self) -> tuple[Path, ...]:
        """All of them."""
        return (self.certificate, self.key, *((self.client_ca,) if self.client_ca else ()))


@dataclass(frozen=True, slots=True)
class PemFiles:
    """What the files hold."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None

    def __repr__(self) -> str:
        """Without the key."""
        return f"Pem(certificate=<{len(self.certificate)} bytes>)"


def read_certificates(files: CertificateFiles) -> PemFiles:
    """The content of the files, after a look at whether it can serve.

    Raises:
        SettingsError: a file cannot be read, the key can be read by others or belongs to another certificate, or what
            should be PEM is not.
    """
    found = PemFiles(
        certificate=_read(files.certificate, "memoryd.tls.certFile"),
        key=_key(files.key),
        client_ca=_read(files.client_ca, "memoryd.tls.clientCaFile") if files.client_ca else None,
    )
    _check_pair(files)
    if found.client_ca is not None:
        _check_authorities(files.client_ca, found.client_ca)
    return found


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {what} {path}: {error.strerror}") from error


def _key(path: Path) -> bytes:
    try:
        return read_private(path, "memoryd.tls.keyFile", root_may_share=True)
    except FileNotFoundError as error:
        raise SettingsError(f"cannot read memoryd.tls.keyFile {path}: {error.strerror}") from error


def _check_pair(files: CertificateFiles) -> None:
    def refuse_password() -> str:
        raise SettingsError(f"memoryd.tls.keyFile {files.key} is encrypted; memoryd needs a key without a password")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key, refuse_password)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(
            f"memoryd.tls.certFile {files.certificate} and keyFile {files.key} cannot be used together: "
            f"{_words(error)}; the first must hold the certificate and the second its key, both as PEM"
        ) from error


def _check_authorities(path: Path | None, content: bytes) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(f"memoryd.tls.clientCaFile {path} holds no certificate as PEM: {_words(error)}") from error


def _words(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else str(error)
    return (reason or "it is no PEM").lower().replace("_", " ")


class Certificates:
    """The certificates in force. `problem` says why newer files are not used; it is empty when all is well.

    Thread-safe: gRPC asks from its own threads, once a handshake.
    """

    def __init__(self, files: CertificateFiles, log: structlog.typing.FilteringBoundLogger) -> None:
        self._files = files
        self._log = log
        self._lock = threading.Lock()
        self._signature = signature(files.paths())
        self._pem = read_certificates(files)
        self.problem = ""

    @property
    def asks_clients(self) -> bool:
        """Whether clients must show a certificate."""
        return self._files.client_ca is not None

    def current(self) -> PemFiles:
        """The files' content: the newest that could serve. Blocks while it looks whether they have changed."""
        with self._lock:
            found = signature(self._files.paths())
            if found is None or found != self._signature:
                self._reload(found)
            return self._pem

    def _reload(self, found: Signature | None) -> None:
        try:
            pem = read_certificates(self._files)
        except SettingsError as error:
            # A renewal may write two files, one after the other: the older pair serves until both are there.
            if error.message != self.problem:
                self._log.error("keep-certificates", problem=error.message)
            self.problem = error.message
        else:
            if pem != self._pem:
                self._log.info("load-certificates", file=str(self._files.certificate))
            self._pem, self.problem = pem, ""
        self._signature = found


@dataclass(frozen=True, slots=True)
class CertificateValidity:
    """Until when a certificate is good, and for which hosts, host names first."""

    until: datetime
    names: tuple[str, ...]


def certificate_validity(files: CertificateFiles) -> CertificateValidity:
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
    return CertificateValidity(
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
