"""Namespaces of a test's own, where the system lets anybody make them."""

import subprocess

import pytest


def require(command):
    """Skips the test where `command`, an `unshare` and its flags, makes no namespaces."""
    try:
        made = subprocess.run([*command, "true"], capture_output=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if made.returncode:
        pytest.skip("namespaces may not be made here")
