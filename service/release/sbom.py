"""Write the SBOM of memoryd, in CycloneDX's format, into a folder: `python -m release.sbom FOLDER`.

It lists memoryd, its client and the packages of service/locks/run.lock. cyclonedx-py reads the lock file; this module
replaces the addresses of the package index and the line numbers of the lock file, and adds licenses and conditions. The
same files make the same bytes. It runs in .tools/release, which has cyclonedx-py.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from release.licenses import PAGE, listed_licenses
from release.locks import LOCKS, REPOSITORY, Pin, project_version, read_pins

LOCK = LOCKS / "run.lock"
SPECIFICATION = "1.6"

Json = dict[str, Any]


def generate() -> Json:
    """Return the SBOM as cyclonedx-py makes it from the lock file."""
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "--output-reproducible"]
    command += [
        "--short-PURLs",
        "--sv",
        SPECIFICATION,
        "--of",
        "JSON",
        "--pyproject",
        str(REPOSITORY / "pyproject.toml"),
    ]
    done = subprocess.run([*command, str(LOCK)], capture_output=True, text=True, check=False)  # noqa: S603 -- fixed
    if done.returncode:
        raise SystemExit(f"cyclonedx-py failed: {done.stderr.strip()}")
    result: Json = json.loads(done.stdout)
    return result


def complete(bom: Json, pins: Sequence[Pin], licenses: Mapping[tuple[str, str], str], version: str) -> Json:
    """Return the SBOM with licenses, conditions and the client, and without addresses of packages.

    Raises:
        ValueError: a package of the lock file is missing.
    """
    markers = {(pin.name, pin.version): pin.marker for pin in pins}
    components = [_component(found, licenses, markers) for found in bom["components"]]
    missing = set(markers) - {(found["name"], found["version"]) for found in components}
    if missing:
        raise ValueError(f"cyclonedx-py left out packages of {LOCK.name}: {sorted(missing)}")
    client = f"pkg:pypi/memoryd-client@{version}"
    components.append(
        {
            "bom-ref": client,
            "licenses": [{"expression": "MIT"}],
            "name": "memoryd-client",
            "purl": client,
            "type": "library",
            "version": version,
        }
    )
    root = f"pkg:pypi/memoryd@{version}"
    main = bom["metadata"]["component"] | {"bom-ref": root, "purl": root}
    tools = [{key: tool[key] for key in ("type", "name", "version")} for tool in bom["metadata"]["tools"]["components"]]
    direct = _direct_dependencies()
    return bom | {
        "components": components,
        # What the packages need of each other is not in the lock file, so the graph only has memoryd's own edges.
        "dependencies": [
            {"ref": root, "dependsOn": sorted(found["bom-ref"] for found in components if found["name"] in direct)}
        ],
        "metadata": bom["metadata"] | {"component": main, "tools": {"components": tools}},
    }


def _component(found: Json, licenses: Mapping[tuple[str, str], str], markers: Mapping[tuple[str, str], str]) -> Json:
    """Return a package with its purl instead of the address from which it is downloaded. Keep the hashes."""
    key = (found["name"], found["version"])
    result = {name: found[name] for name in ("name", "purl", "type", "version")} | {"bom-ref": found["purl"]}
    hashes = [entry for reference in found["externalReferences"] for entry in reference["hashes"]]
    result["externalReferences"] = [{"hashes": hashes, "type": "distribution", "url": found["purl"]}]
    result["licenses"] = [{"expression": licenses[key]}]
    if markers.get(key):
        result["properties"] = [{"name": "memoryd:condition", "value": markers[key]}]
    return result


def _direct_dependencies() -> frozenset[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    names = (re.split(r"[ ;=<>~!\[]", each)[0] for each in project["dependencies"])
    return frozenset(re.sub(r"[-_.]+", "-", name).lower() for name in names)


def validate(text: str) -> None:
    """Check the SBOM against the schema of its specification, which cyclonedx-python-lib contains.

    Raises:
        ValueError: it does not match the schema.
    """
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 -- only installed in .tools/release
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise ValueError(f"the SBOM does not match the schema of CycloneDX {SPECIFICATION}: {problem}")


def main(arguments: Sequence[str]) -> None:
    """Write the file and print its path."""
    version = project_version()
    bom = complete(generate(), read_pins(LOCK), listed_licenses(PAGE.read_text("utf-8")), version)
    text = json.dumps(bom, indent=2, sort_keys=True) + "\n"
    validate(text)
    file = Path(arguments[0]) / f"memoryd-{version}.cdx.json"
    file.write_text(text, "utf-8")
    print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
