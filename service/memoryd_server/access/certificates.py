"""TLS certificates and keys: checked before use, reloaded when their files change.

`validity` reads the expiry and the names of a certificate from the TLS library, by a handshake in memory with itself.
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
    """Paths of PEM files. If `client_ca` is set, clients must present a certificate signed by it."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def from_settings(
        cls, certificate: Path | None, key: Path | None, client_ca: Path | None
    ) -> "CertificateFiles | None":
        """Return the files that the settings name; None if they name no certificate or no key."""
        return None if certificate is None or key is None else cls(certificate, key, client_ca)

    def paths(self) -> tuple[Path, ...]:
        """Return the paths of all files."""
        return (self.certificate, self.key, *((self.client_ca,) if self.client_ca else ()))


@dataclass(frozen=True, slots=True)
class PemFiles:
    """The content of the files, as PEM."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None

    def __repr__(self) -> str:
        """Return a text without the key."""
        return f"PemFiles(certificate=<{len(self.certificate)} bytes>)"


def read_certificates(files: CertificateFiles) -> PemFiles:
    """Return the content of the files after checking that a listener can use it.

    Raises:
        SettingsError: a file cannot be read or is not PEM, other users can read the key, or the key belongs to another
            certificate.
    """
    content = PemFiles(
        certificate=_read(files.certificate, "memoryd.tls.certFile"),
        key=_read_key(files.key),
        client_ca=_read(files.client_ca, "memoryd.tls.clientCaFile") if files.client_ca else None,
    )
    _check_pair(files)
    if content.client_ca is not None:
        _check_authorities(files.client_ca, content.client_ca)
    return content


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {what} {path}: {error.strerror}") from error


def _read_key(path: Path) -> bytes:
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
            f"{_reason(error)}; the first must contain the certificate and the second its key, both in PEM format"
        ) from error


def _check_authorities(path: Path | None, content: bytes) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(f"memoryd.tls.clientCaFile {path} contains no PEM certificate: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else str(error)
    return (reason or "it is not PEM").lower().replace("_", " ")


class Certificates:
    """The certificates in use. `problem` says why newer files are not used; it is empty if there is no problem.

    Thread-safe: gRPC calls it from its own threads, once per handshake.
    """

    def __init__(self, files: CertificateFiles, log: structlog.typing.FilteringBoundLogger) -> None:
        self._files = files
        self._log = log
        self._lock = threading.Lock()
        self._signature = signature(files.paths())
        self._pem = read_certificates(files)
        self.problem = ""
        self._context: ssl.SSLContext | None = None
        self._context_pem: PemFiles | None = None

    @property
    def requires_client_certificate(self) -> bool:
        """Whether clients must present a certificate."""
        return self._files.client_ca is not None

    def current(self) -> PemFiles:
        """Return the newest content that passed the checks. Blocks while it checks whether the files have changed."""
        with self._lock:
            found = signature(self._files.paths())
            if found is None or found != self._signature:
                self._reload(found)
            return self._pem

    def context(self) -> ssl.SSLContext:
        """Return a TLS context with the newest certificates, for a new connection. Blocks as `current`.

        Raises:
            OSError: the files cannot be loaded any more. While a renewal writes them, the older context is returned.
        """
        pem = self.current()
        with self._lock:
            if self._context is None or self._context_pem != pem:
                try:
                    self._context, self._context_pem = _server_context(self._files, pem), pem
                except OSError:
                    if self._context is None:
                        raise
            return self._context

    def _reload(self, found: Signature | None) -> None:
        try:
            pem = read_certificates(self._files)
        except SettingsError as error:
            # A renewal may write its two files one after the other: the older pair stays in use until both are written.
            if error.message != self.problem:
                self._log.error("keep-certificates", problem=error.message)
            self.problem = error.message
        else:
            if pem != self._pem:
                self._log.info("load-certificates", file=str(self._files.certificate))
            self._pem, self.problem = pem, ""
        self._signature = found


def _server_context(files: CertificateFiles, pem: PemFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The library reads certificates and keys only from files.
    context.load_cert_chain(files.certificate, files.key)
    if pem.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=pem.client_ca.decode("ascii"))
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(frozen=True, slots=True)
class CertificateValidity:
    """The time at which a certificate expires and the hosts that it is valid for, host names before IP addresses."""

    until: datetime
    names: tuple[str, ...]


def certificate_validity(files: CertificateFiles) -> CertificateValidity:
    """Return the validity of the certificate. The files must be a pair that passed `read_certificates`.

    Raises:
        SettingsError: the certificate has expired, or is not valid yet.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # The certificate is its own trust anchor, because its issuer does not matter here.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(files.certificate)
    try:
        fields = _server_certificate(server, client)
    except ssl.SSLCertVerificationError as error:
        raise SettingsError(f"{files.certificate}: {error.verify_message}") from error
    names = fields.get("subjectAltName", ())
    return CertificateValidity(
        until=datetime.fromtimestamp(ssl.cert_time_to_seconds(fields["notAfter"]), UTC),
        names=tuple(name for wanted in ("DNS", "IP Address") for kind, name in names if kind == wanted),
    )


def _server_certificate(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> dict[str, Any]:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    while True:
        if _handshake(client):
            return dict(client.getpeercert() or {})
        _handshake(server)


def _handshake(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
