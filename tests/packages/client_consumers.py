"""The programs in `consumers`, each built outside the checkout with a packed client and its declared dependencies.

Each function copies a program into an empty folder, builds it there, and returns the command that runs it. The caches
of compiled and downloaded dependencies are those that `make clients` fills.
"""

import json
import os
import shutil
import tarfile
from pathlib import Path

from clients.runner import REPOSITORY
from packages.client_archives import CRATE, MODULE, version
from packages.toolchains import run, run_maven

CONSUMERS = Path(__file__).parent / "consumers"
TOOLS = REPOSITORY / ".tools" / "clients"


def copied(language, folder):
    """Return a new folder with the source of a program."""
    return Path(shutil.copytree(CONSUMERS / language, folder / "consumer"))


def build_typescript(tarball, folder):
    """Install the tarball, and compile the program against its types."""
    program = copied("typescript", folder)
    run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefer-offline", tarball, cwd=program)
    # The compiler and the types of Node are tools of the user; npm does not have to install them a second time.
    tools = REPOSITORY / "clients" / "typescript" / "node_modules"
    run("node", tools / "typescript" / "bin" / "tsc", "-p", program, "--typeRoots", tools / "@types", cwd=program)
    return ["node", program / "search.js"]


def build_go(proxy, folder):
    """Get the module from `proxy`, the folder of a module proxy, and compile the program."""
    program = copied("go", folder)
    default = json.loads(run("go", "env", "-json", "GOPROXY", "GOMODCACHE", cwd=program))
    # The module must not get into the user's cache. This one has a constant path, because Go reuses compiled packages
    # only at the same path; the module of an earlier test is deleted. The user's cache serves the dependencies.
    cache, modules = Path(default["GOMODCACHE"], "cache", "download"), TOOLS / "go" / "modules"
    for place in (modules, modules / "cache" / "download"):
        shutil.rmtree(place.joinpath(*MODULE.split("/")[:2]), ignore_errors=True)
    settings = {
        "GOPROXY": f"file://{proxy},file://{cache},{default['GOPROXY']}",
        "GOMODCACHE": modules,
        "GONOSUMDB": MODULE,
        "GOFLAGS": "-modcacherw",
        # Go keeps an index of the files of each module in the user's cache, by the module's path and version. After a
        # test with other files it is wrong, because the version is the same. Without it, Go reads the folder.
        "GODEBUG": "goindex=0",
    }
    run("go", "get", f"{MODULE}/memoryd@v{version()}", cwd=program, **settings)
    run("go", "build", "-o", "search", ".", cwd=program, **settings)
    return [program / "search"]


def build_java(repository, folder):
    """Resolve the client from a Maven repository, and build the program as a jar."""
    program = copied("java", folder)
    properties = {
        "maven.repo.local": folder / "m2",
        "packed.repository": repository,
        "cache.repository": Path.home() / ".m2" / "repository",
        "memoryd.version": version(),
    }
    defined = [f"-D{name}={value}" for name, value in properties.items()]
    run_maven("-s", "settings.xml", *defined, "package", cwd=program)
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", program / "target" / "search.jar"]


def build_rust(crate, folder):
    """Replace the crate of crates.io by the packed one, and compile the program."""
    program = copied("rust", folder)
    with tarfile.open(crate) as packed:
        packed.extractall(program / "crate", filter="data")
    unpacked = program / "crate" / f"{CRATE}-{version()}"
    # The same versions of the dependencies as in the client's own build, which are compiled already.
    shutil.copy2(unpacked / "Cargo.lock", program / "Cargo.lock")
    patch = f'patch.crates-io.{CRATE}.path="{unpacked}"'
    target = TOOLS / "rust"
    jobs = os.environ.get("CARGO_BUILD_JOBS", "2")
    run("cargo", "build", "-q", "--config", patch, cwd=program, CARGO_TARGET_DIR=target, CARGO_BUILD_JOBS=jobs)
    shutil.copy2(target / "debug" / "memoryd-consumer", program / "search")
    return [program / "search"]
