"""The SBOM lists memoryd, its client and every package of the core, with licenses and hashes, without addresses."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from memoryd_server import __version__
from release.locks import LOCKS, read_pins

REPOSITORY = Path(__file__).parents[3]
PYTHON = REPOSITORY / ".tools" / "release" / "bin" / "python"
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(str(problem) if problem else 0)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .tools/release: `make sbom` installs it"),
]


def write(folder):
    command = [PYTHON, "-m", "release.sbom", folder]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "service")}
    subprocess.run(command, check=True, capture_output=True, timeout=120, env=environment)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sbom"))


@pytest.fixture
def bom(file):
    return json.loads(file.read_text("utf-8"))


def test_the_sbom_matches_the_schema(file):
    done = subprocess.run(
        [PYTHON, "-c", VALIDATE],
        input=file.read_text("utf-8"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_sbom_describes_this_version(file, bom):
    assert file.name == f"memoryd-{__version__}.cdx.json"
    main = bom["metadata"]["component"]
    assert (main["name"], main["version"], main["purl"]) == ("memoryd", __version__, f"pkg:pypi/memoryd@{__version__}")


def test_every_package_of_the_core_is_a_component_with_a_license_and_hashes(bom):
    components = {(each["name"], each["version"]): each for each in bom["components"]}
    pins = {(pin.name, pin.version) for pin in read_pins(LOCKS / "run.lock")}
    assert len(pins) > 20
    assert set(components) == pins | {("memoryd-client", __version__)}
    assert all(each["licenses"][0]["expression"] for each in components.values())
    for pin in pins:
        (distribution,) = components[pin]["externalReferences"]
        assert distribution["hashes"], pin


def test_memoryd_depends_on_its_direct_dependencies(bom):
    (entry,) = bom["dependencies"]
    names = {re.match(r"pkg:pypi/([^@]+)@", reference)[1] for reference in entry["dependsOn"]}
    assert {"memoryd-client", "grpcio", "numpy", "pystemmer", "prometheus-client"} <= names
    assert not {"idna", "h11"} & names


def test_the_sbom_has_no_download_addresses(bom):
    own = bom["metadata"]["component"].pop("externalReferences")
    assert all("github.com/memoryd/memoryd" in reference["url"] for reference in own)
    del bom["$schema"]
    assert "://" not in json.dumps(bom)


def test_the_same_files_make_the_same_bytes(file, tmp_path):
    assert write(tmp_path).read_bytes() == file.read_bytes()
