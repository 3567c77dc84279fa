"""Certificates made at test time, by the `openssl` command."""

import shutil
import subprocess

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is missing")

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_NAMES = "subjectAltName=DNS:localhost,DNS:memory.example,IP:127.0.0.1\n"


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Authority:
    """Signs certificates for localhost, 127.0.0.1 and memory.example; `ca` is its own, as PEM."""

    def __init__(self, folder, name="ca"):
        self._folder = folder
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl("req", "-x509", *_KEY, "-keyout", self._key, "-out", self.ca, "-subj", f"/CN={name}", "-days", 3)

    def issue(self, name, *, days=3):
        """A certificate and its key, as two PEM files; the key is private."""
        certificate, key, request, names = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr", "names"))
        names.write_text(_NAMES)
        _openssl("req", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial",
            "-out", certificate, "-days", days, "-extfile", names,
        )  # fmt: skip
        key.chmod(0o600)
        return certificate, key
