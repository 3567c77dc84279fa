"""An object store on loopback, where `make object-store` has put one: moto's, which keeps everything in memory."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

MOTO = Path(__file__).parents[1] / ".tools" / "moto"
BUCKET = "entries"
READY_SECONDS = 60

needs_object_store = pytest.mark.skipif(
    not (MOTO / ".ready").exists(), reason="there is no object store: `make object-store` installs one"
)


@contextmanager
def object_store():
    """A store with one bucket; answers with LanceDB's options for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(MOTO)}, stdout=quiet, stderr=quiet)
    url = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(process, url)
        yield {
            "endpoint": url,
            "region": "us-east-1",
            "allow_http": "true",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }
    finally:
        process.kill()
        process.wait(30)


def _make_bucket(process, url):
    until = time.monotonic() + READY_SECONDS
    # A URL without a loopback proxy: the request must not leave this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            opener.open(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=5).close()
            return
        except (urllib.error.URLError, OSError) as error:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the object store does not answer: {error}") from error
            time.sleep(0.1)
