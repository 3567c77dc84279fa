"""The packages of the clients, packed as they are published, and the files in them.

Each function packs the files of the checkout into a folder, with the tool that the release uses, and returns the path
of what a user downloads. It builds what `make clients` would have built before.
"""

import json
import shutil
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from clients.runner import REPOSITORY
from packages.toolchains import require, run, run_maven

CLIENTS = REPOSITORY / "clients"
MODULE = "github.com/memoryd/memoryd/clients/go"
GROUP, ARTIFACT = "io.memoryd", "memoryd-client"
CRATE = "memoryd-client"


def tracked(*paths):
    """Return the files of Git below these paths, relative to the checkout, that exist."""
    listed = run("git", "ls-files", "-z", "--", *paths, cwd=REPOSITORY).split("\0")
    return [name for name in listed if name and (REPOSITORY / name).is_file()]


def version():
    """Return the version that the TypeScript client has; `tests/unit/release` compares all versions."""
    return json.loads((CLIENTS / "typescript" / "package.json").read_text("utf-8"))["version"]


def contents(archive):
    """Return the bytes of each file in a tar or zip archive, by its name."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            return {name: packed.read(name) for name in packed.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
        strange = [member.name for member in members if not (member.isfile() or member.isdir())]
        assert not strange, f"{archive} contains links or devices: {strange}"
        return {member.name: packed.extractfile(member).read() for member in members if member.isfile()}


def below(folder, files):
    """Return the files of an archive with their names relative to its only folder."""
    outside = [name for name in files if not name.startswith(f"{folder}/")]
    assert not outside, f"files outside {folder}/: {outside}"
    return {name.removeprefix(f"{folder}/"): data for name, data in files.items()}


def pack_typescript(folder):
    """Return the tarball of @memoryd/client. Build it if its sources are newer than the build."""
    require("node", "npm", "make")
    client = CLIENTS / "typescript"
    sources = [REPOSITORY / name for name in tracked("clients/typescript/src")]
    built = client / "dist" / "index.js"
    if not built.exists() or built.stat().st_mtime < max(file.stat().st_mtime for file in sources):
        run("make", "--no-print-directory", "clients/typescript/node_modules/.ready", cwd=REPOSITORY)
        shutil.rmtree(client / "dist", ignore_errors=True)
        run("npm", "run", "--silent", "build", cwd=client)
    printed = run("npm", "pack", "--silent", "--pack-destination", folder, cwd=client)
    return folder / printed.split()[-1]


@dataclass(frozen=True)
class GoModule:
    """A module as the module proxy serves it: `proxy` is the proxy's folder, and `files` that of the module in it."""

    proxy: Path
    files: Path

    def file(self, kind):
        """Return the path of the module's file of this kind: zip, mod or info."""
        return self.files / f"v{version()}.{kind}"


def pack_go(folder):
    """Return the module of the tag clients/go/vX.Y.Z, which Go itself packs from a Git repository.

    The repository contains the files of the checkout, with the changes that are not committed. Go reads it instead of
    the one on GitHub, from which the module proxy packs the module in the same way.
    """
    require("go", "git")
    source, cache = folder / "repository", folder / "cache"
    for name in tracked("LICENSE", "README.md", "clients/go"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, source / name)
    author = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    run("git", "init", "-q", cwd=source)
    run("git", "add", "--all", "--force", cwd=source)
    run("git", *author, "commit", "-q", "-m", "Files of the module", cwd=source)
    run("git", *author, "-c", "tag.gpgsign=false", "tag", f"clients/go/v{version()}", cwd=source)
    run(
        *("go", "mod", "download", f"{MODULE}@v{version()}"),
        cwd=folder,
        GIT_CONFIG_COUNT=1,
        GIT_CONFIG_KEY_0=f"url.file://{source}.insteadOf",
        GIT_CONFIG_VALUE_0="https://github.com/memoryd/memoryd",
        GOPROXY="direct",
        GONOSUMDB=MODULE,
        GOMODCACHE=cache,
        GOFLAGS="-modcacherw",
    )
    proxy = cache / "cache" / "download"
    return GoModule(proxy, proxy / MODULE / "@v")


def deploy_java(folder):
    """Return a Maven repository that contains what is published on Maven Central, without signatures."""
    require("mvn", "javac")
    # `make clients-java` runs the tests and checks the format. Files installed into ~/.m2 would hide the deployed ones.
    skipped = ("-Dmaven.test.skip", "-Dspotless.check.skip", "-Dmaven.install.skip", "-Dgpg.skip")
    where = f"-DaltDeploymentRepository=packed::file:{folder}"
    run_maven("--strict-checksums", "-P", "release", *skipped, where, "deploy", cwd=CLIENTS / "java")
    return folder


def artifact_folder(repository):
    """Return the folder of the client's version in a Maven repository."""
    return repository.joinpath(*GROUP.split("."), ARTIFACT, version())


def package_rust(folder):
    """Return the crate of memoryd-client. `make clients-rust` verifies that it can be built by itself."""
    require("cargo", "make")
    run("make", "--no-print-directory", "clients/rust/Cargo.lock", cwd=REPOSITORY)
    options = ("-q", "--locked", "--allow-dirty", "--no-verify", "-p", CRATE)
    run("cargo", "package", *options, cwd=CLIENTS / "rust", CARGO_TARGET_DIR=folder)
    return folder / "package" / f"{CRATE}-{version()}.crate"
