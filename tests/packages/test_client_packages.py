"""The packages of the clients for npm, Go, Maven and crates.io: their files, and a program that uses each of them.

The real OpenClaw with the packed plugin is tested by `tests/e2e/test_openclaw_plugin.py`.
"""

import json
import re
import subprocess
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from clients.runner import REPOSITORY
from daemon_process import environment, serving
from memoryd.client import connect
from openclaw_host import pack_plugin, require_openclaw
from packages.client_archives import (
    ARTIFACT,
    CLIENTS,
    CRATE,
    MODULE,
    artifact_folder,
    below,
    contents,
    deploy_java,
    pack_go,
    pack_typescript,
    package_rust,
    tracked,
    version,
)
from packages.client_consumers import build_go, build_java, build_rust, build_typescript

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

NOTES = {
    "memory/birds.md": "The heron nests by the weir.\nIt returns in March.\n",
    "memory/deployment.md": "The deployment moved to Thursday.\n",
}
QUERY = "where does the heron nest"
RESULT = "memory/birds.md: The heron nests by the weir.\n"
LICENSE = (REPOSITORY / "LICENSE").read_bytes()


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """Run a program with a query and the address of a real daemon, and return its output."""
    root = tmp_path_factory.mktemp("d")
    workspace, state, home = (root / name for name in ("w", "s", "h"))
    for folder in (workspace / "memory", state, home):
        folder.mkdir(parents=True)
    for name, text in NOTES.items():
        (workspace / name).write_text(text, "utf-8")
    with serving(workspace, state, home=home, listen=f"unix:{root}/m.sock") as served:
        with connect(served.address, timeout=60) as client:
            for _ in client.sync():
                pass

        def searched(command):
            done = subprocess.run(
                [str(part) for part in (*command, QUERY)],
                cwd=home,
                env=environment(home) | {"MEMORYD_ADDRESS": served.address},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, (done.stdout, done.stderr)
            return done.stdout

        yield searched


@pytest.fixture(scope="module")
def typescript(tmp_path_factory):
    return pack_typescript(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="module")
def openclaw(tmp_path_factory):
    require_openclaw()
    return pack_plugin(tmp_path_factory.mktemp("openclaw"))


@pytest.fixture(scope="module")
def go(tmp_path_factory):
    return pack_go(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    return deploy_java(tmp_path_factory.mktemp("maven"))


@pytest.fixture(scope="module")
def rust(tmp_path_factory):
    return package_rust(tmp_path_factory.mktemp("cargo"))


def assert_without_local_paths(files):
    """Fail if a file contains the path of the checkout or of the home directory."""
    paths = [f"{folder}/".encode() for folder in (REPOSITORY, Path.home())]
    found = [name for name, data in files.items() if any(path in data for path in paths)]
    assert not found, f"these files contain paths of this machine: {found}"


def assert_version(manifest, name):
    assert (manifest["name"], manifest["version"]) == (name, version())


def test_typescript_program_searches_with_the_packed_client(typescript, search, tmp_path):
    assert search(build_typescript(typescript, tmp_path)) == RESULT


def test_go_program_searches_with_the_packed_client(go, search, tmp_path):
    assert search(build_go(go.proxy, tmp_path)) == RESULT


def test_java_program_searches_with_the_packed_client(java, search, tmp_path):
    assert search(build_java(java, tmp_path)) == RESULT


def test_rust_program_searches_with_the_packed_client(rust, search, tmp_path):
    assert search(build_rust(rust, tmp_path)) == RESULT


def test_tarball_of_the_typescript_client_contains_code_and_types_of_its_sources_only(typescript):
    files = below("package", contents(typescript))
    sources = [name.removeprefix("clients/typescript/src/") for name in tracked("clients/typescript/src")]
    compiled = {f"dist/{source.removesuffix('.ts')}{ending}" for source in sources for ending in (".js", ".d.ts")}
    assert set(files) == {"package.json", "README.md", "LICENSE"} | compiled
    assert files["LICENSE"] == LICENSE
    assert_version(json.loads(files["package.json"]), "@memoryd/client")
    assert_without_local_paths(files)


def test_tarball_of_the_openclaw_plugin_contains_the_bundle_and_the_licenses_of_its_packages(openclaw):
    files = below("package", contents(openclaw))
    documents = {"package.json", "openclaw.plugin.json", "README.md", "LICENSE"}
    assert set(files) == documents | {"dist/index.js", "dist/licenses.txt"}
    assert files["LICENSE"] == LICENSE
    assert_version(json.loads(files["package.json"]), "@memoryd/openclaw")
    assert "dependencies" not in json.loads(files["package.json"])
    bundled = set(re.findall(rb"^// \S*node_modules/((?:@[^/\s]+/)?[^/\s]+)/", files["dist/index.js"], re.MULTILINE))
    licensed = set(re.findall(rb"^== (\S+) \S+ \(", files["dist/licenses.txt"], re.MULTILINE))
    assert b"@grpc/grpc-js" in bundled
    assert licensed == bundled
    assert_without_local_paths(files)


def test_zip_of_the_go_module_contains_stubs_and_license_but_no_other_client(go):
    files = below(f"{MODULE}@v{version()}", contents(go.file("zip")))
    # Go packs each tracked file of the folder, also the tests and what `make clients-go` uses.
    packed = {name.removeprefix("clients/go/") for name in tracked("clients/go")}
    assert set(files) == packed | {"LICENSE"}
    assert {"README.md", "go.sum", "memoryd/client.go", "memoryd/v1/memory_service_grpc.pb.go"} <= packed
    assert files["LICENSE"] == LICENSE
    assert files["go.mod"].startswith(f"module {MODULE}\n".encode())
    assert files["go.mod"] == go.file("mod").read_bytes()
    assert not re.search(rb"^replace\b", files["go.mod"], re.MULTILINE)
    assert_without_local_paths(files)


def test_go_finds_the_module_by_the_tag_of_its_folder(go):
    info = json.loads(go.file("info").read_text("utf-8"))
    assert info["Version"] == f"v{version()}"
    assert (info["Origin"]["Subdir"], info["Origin"]["Ref"]) == ("clients/go", f"refs/tags/clients/go/v{version()}")


def test_maven_repository_contains_classes_sources_and_documentation(java):
    folder, stem = artifact_folder(java), f"{ARTIFACT}-{version()}"
    endings = (".jar", "-sources.jar", "-javadoc.jar", ".pom")
    names = {file.name for file in folder.iterdir()}
    assert names == {f"{stem}{end}{sum_}" for end in endings for sum_ in ("", ".md5", ".sha1")}
    classes, sources, pages = (contents(folder / f"{stem}{end}") for end in endings[:3])

    # Each class is compiled from a file of the sources, which are those of the checkout and the generated stubs.
    compiled = {re.sub(r"(\$.*)?\.class$", ".java", name) for name in classes if name.endswith(".class")}
    code = {name for name in sources if name.endswith(".java")}
    root = "clients/java/src/main/java/"
    written = {name.removeprefix(root) for name in tracked(root)}
    assert compiled == code
    assert {name for name in code if not name.startswith("io/memoryd/v1/")} == written
    assert "io/memoryd/v1/MemoryServiceGrpc.java" in code
    public = {name for name in written if re.search(rb"^public ", sources[name], re.MULTILINE)}
    assert {f"io.memoryd.client/{name.removesuffix('.java')}.html" for name in public} <= set(pages)

    policy = (CLIENTS / "service_config.json").read_bytes()
    assert classes["META-INF/LICENSE"] == LICENSE
    assert classes["io/memoryd/client/service_config.json"] == policy
    for files in (classes, sources, pages):
        assert_without_local_paths(files)


def test_deployed_pom_has_what_maven_central_requires(java):
    pom = ET.parse(artifact_folder(java) / f"{ARTIFACT}-{version()}.pom")
    required = (
        *("name", "description", "url", "licenses/license/name", "licenses/license/url", "developers/developer/name"),
        *("scm/connection", "scm/developerConnection", "scm/url"),
    )
    missing = [path for path in required if not pom.findtext("/".join(f"{{*}}{part}" for part in path.split("/")))]
    assert not missing
    assert pom.findtext("{*}version") == version()
    # Maven Central refuses artifacts that need another repository.
    assert pom.find("{*}repositories") is None


def test_crate_contains_protos_readme_and_sources_but_no_runner(rust):
    files = below(f"{CRATE}-{version()}", contents(rust))
    parts = ("src", "examples", "protos", "build.rs", "service_config.json", "LICENSE", "README.md")
    ours = tracked(*(f"clients/rust/{part}" for part in parts))
    # Cargo adds the manifest in two forms, a lock file and the commit. Unit tests are part of src.
    added = {"Cargo.toml", "Cargo.toml.orig", "Cargo.lock", ".cargo_vcs_info.json"}
    assert set(files) == {name.removeprefix("clients/rust/") for name in ours} | added
    assert files["LICENSE"] == LICENSE
    package = tomllib.loads(files["Cargo.toml"].decode())["package"]
    assert_version(package, CRATE)
    assert {"description", "license", "readme", "repository", "rust-version"} <= set(package)
    assert_without_local_paths(files)
