"""The first minutes of a new user, in a Debian with Python and nothing else: three commands to the first answer.

The system is made by debootstrap in .tools/debian, and each test runs in a copy-free mount namespace of its own.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clients.runner import REPOSITORY
from e2e.namespaces import require
from packages.python_environments import INSTALL_SECONDS, wheels

pytestmark = [pytest.mark.packages, pytest.mark.timeout(3 * INSTALL_SECONDS)]

DEBIAN = REPOSITORY / ".tools" / "debian"
# The writable layer of a test is in memory, so that the next one finds the same system.
NAMESPACES = ("unshare", "--mount", "--pid", "--fork")
ENTER = """
set -e
mount -t tmpfs tmpfs "$LAYER"
mkdir -p "$LAYER/up" "$LAYER/work" "$LAYER/root"
mount -t overlay overlay -o "lowerdir=$DEBIAN,upperdir=$LAYER/up,workdir=$LAYER/work" "$LAYER/root"
mount -t proc proc "$LAYER/root/proc"
mount --rbind /dev "$LAYER/root/dev"
cp "$DIST"/*.whl "$LAYER/root/root/"
cp /etc/resolv.conf /etc/hosts "$LAYER/root/etc/"
test -z "$CERTIFICATES" || cp "$CERTIFICATES" "$LAYER/root/root/certificates.pem"
exec chroot "$LAYER/root" /usr/bin/env -i HOME=/root PATH=/usr/bin:/bin TERM=dumb $PIP /bin/bash -c "cd /root; $1"
"""
NOTES = """
mkdir -p notes/garden
printf '# Garden\\n\\nTomatoes need water every evening in July.\\n' > notes/garden/tomato.md
"""


@pytest.fixture(scope="module")
def debian():
    """Make the system if it is not there."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        reason = "debootstrap and root are needed: `apt install debootstrap`, and run the tests as root"
        pytest.fail(f"CI must not skip this test: {reason}") if os.environ.get("CI") == "true" else pytest.skip(reason)
    require(NAMESPACES)
    if not (DEBIAN / "root" / ".ready").exists():
        shutil.rmtree(DEBIAN, ignore_errors=True)
        command = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv", "bookworm", DEBIAN]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * INSTALL_SECONDS)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        (DEBIAN / "root" / ".ready").touch()


@pytest.fixture
def user(debian, tmp_path):
    """Run shell commands as a user of this system, who has the wheels in the home directory."""
    certificates = next((os.environ[name] for name in ("PIP_CERT", "SSL_CERT_FILE") if os.environ.get(name)), "")
    kept = {name: text for name, text in os.environ.items() if name in {"PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT"}}
    pip = kept | ({"PIP_CERT": "/root/certificates.pem"} if certificates else {})
    (tmp_path / "layer").mkdir()
    environ = {
        **os.environ,
        "DEBIAN": str(DEBIAN),
        "LAYER": str(tmp_path / "layer"),
        "DIST": str(wheels()[0].parent),
        "CERTIFICATES": certificates,
        "PIP": " ".join(f"{name}={text}" for name, text in pip.items()),
    }

    def run(script):
        return subprocess.run(
            [*NAMESPACES, "bash", "-c", ENTER, "enter", script],
            env=environ,
            capture_output=True,
            text=True,
            timeout=2 * INSTALL_SECONDS,
            check=False,
        )

    return run


THREE_COMMANDS = """
python3 -m venv memoryd && memoryd/bin/pip install -q --no-cache-dir *.whl
memoryd/bin/memoryd init notes
memoryd/bin/memoryd search 'when do tomatoes need water?'
"""
MISTAKES = """
exec 2>&1
echo "== folder"; memoryd/bin/memoryd init nots --force
echo "== key"; memoryd/bin/memoryd init notes --force --embedding openai
echo "== extra"; memoryd/bin/memoryd init notes --force --embedding local
echo "== service"; memoryd/bin/memoryd service install
memoryd/bin/memoryd serve --listen 127.0.0.1:7627 > log & first=$!
for _ in $(seq 300); do grep -q '^listening' log && break; sleep 0.1; done
echo "== port"; memoryd/bin/memoryd serve --state-dir other --listen 127.0.0.1:7627
echo "== index"; memoryd/bin/memoryd serve
kill $first; wait $first
echo "== stopped with $?"
"""
ADVICE = {
    "folder": "/root/nots does not exist; give the folder that contains your Markdown files",
    "key": "there is no key; set OPENAI_API_KEY",
    "extra": "install the extra: pip install 'memoryd[local]'",
    "service": "this system has no systemd; start `memoryd serve` with the service manager that it has",
    "port": "the port is taken, perhaps by another memoryd; stop that one, or choose another --listen",
    "index": "use that daemon, stop it, or choose another --state-dir for this one",
    "stopped with 0": "",
}


def test_three_commands_lead_to_an_answer_and_mistakes_are_explained(user):
    done = user(NOTES + THREE_COMMANDS + MISTAKES)
    answer, *mistakes = done.stdout.split("== ")
    assert "garden/tomato.md:1-" in answer.partition("Next:")[2], done.stdout + done.stderr
    shown = dict(mistake.split("\n", 1) for mistake in mistakes)
    assert list(shown) == list(ADVICE)
    for mistake, advice in ADVICE.items():
        assert advice in shown[mistake], (mistake, shown[mistake])


def test_the_system_has_only_python(debian):
    assert not any((DEBIAN / "usr" / "bin" / name).exists() for name in ("gcc", "git", "curl", "make", "systemctl"))
    assert Path(DEBIAN, "usr", "bin", "python3").exists()
