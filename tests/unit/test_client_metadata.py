"""The manifests of the clients have what their registries require or show."""

import json
import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parents[2] / "clients"
SITE = "https://github.com/memoryd/memoryd"


@pytest.mark.parametrize("client", ["typescript", "openclaw"])
def test_npm_package_can_be_published_with_provenance(client):
    package = json.loads((CLIENTS / client / "package.json").read_text("utf-8"))
    assert package["name"].startswith("@memoryd/")
    # A package with a scope is private by default. npm compares the repository with that of the workflow's provenance.
    assert package["publishConfig"] == {"access": "public", "provenance": True}
    assert package["repository"] == {"type": "git", "url": f"git+{SITE}.git", "directory": f"clients/{client}"}
    assert package["homepage"] == f"{SITE}/tree/main/clients/{client}#readme"
    assert (package["license"], package["type"]) == ("MIT", "module")
    assert package["engines"]["node"].startswith(">=")
    assert "dist" in package["files"]
    assert {"description", "keywords", "exports"} <= set(package)
    assert "private" not in package


@pytest.mark.parametrize("client", ["typescript", "openclaw"])
def test_npm_package_depends_on_published_packages_only(client):
    package = json.loads((CLIENTS / client / "package.json").read_text("utf-8"))
    needed = package.get("dependencies", {}) | package.get("peerDependencies", {})
    assert [name for name, version in needed.items() if ":" in version or "/" in version] == []


def test_rust_crate_has_what_crates_io_requires():
    package = tomllib.loads((CLIENTS / "rust" / "Cargo.toml").read_text("utf-8"))["package"]
    assert (package["license"], package["readme"], package["repository"]) == ("MIT", "README.md", SITE)
    assert package["description"]
    assert package["rust-version"]
    # crates.io refuses more than five keywords, and longer ones.
    assert len(package["keywords"]) <= 5
    assert max(map(len, package["keywords"])) <= 20
    assert len(package["categories"]) <= 5
    assert package.get("publish", True) is True


def test_rust_runner_is_not_published():
    package = tomllib.loads((CLIENTS / "rust" / "runner" / "Cargo.toml").read_text("utf-8"))["package"]
    assert package["publish"] is False


def test_maven_release_has_sources_documentation_and_signatures():
    pom = ET.parse(CLIENTS / "java" / "pom.xml")
    (release,) = [each for each in pom.iterfind("{*}profiles/{*}profile") if each.findtext("{*}id") == "release"]
    goals = {
        plugin.findtext("{*}artifactId"): {goal.text for goal in plugin.iterfind(".//{*}goal")}
        for where in (pom.find("{*}build"), release.find("{*}build"))
        for plugin in where.iterfind("{*}plugins/{*}plugin")
    }
    assert goals["maven-source-plugin"] == {"jar-no-fork"}
    assert goals["maven-javadoc-plugin"] == {"jar"}
    assert goals["maven-gpg-plugin"] == {"sign"}


def test_go_module_is_named_after_its_folder_and_major_version():
    """Go finds a version by the tag clients/go/vX.Y.Z. From version 2 on, the path of the module ends with /vX."""
    pyproject = tomllib.loads((CLIENTS.parent / "pyproject.toml").read_text("utf-8"))
    major = int(pyproject["project"]["version"].partition(".")[0])
    module = re.search(r"^module (\S+)$", (CLIENTS / "go" / "go.mod").read_text("utf-8"), re.MULTILINE)
    assert module[1] == "github.com/memoryd/memoryd/clients/go" + (f"/v{major}" if major > 1 else "")
    assert "`clients/go/vX.Y.Z`" in (CLIENTS / "go" / "README.md").read_text("utf-8")
