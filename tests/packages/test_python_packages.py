"""The Python packages, installed into empty environments outside the checkout: the command, the client and the extras.

`make packages` builds the packages first. `test_python_archives.py` tests their contents.
"""

import json
import re
import signal
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clients.python_venvs import run
from daemon_process import end
from entry_fixture import open_entries
from packages.python_environments import (
    CLIENT_PROGRAM,
    DIST,
    INSTALL_SECONDS,
    LLAMA_WHEELS,
    QUERY,
    archive,
    environment,
    install_with_pip,
    install_with_uv,
    interpreter,
    prepare,
    project,
    tool,
    wheels,
)

pytestmark = [pytest.mark.packages, pytest.mark.timeout(2 * INSTALL_SECONDS)]

VERSION = project(".")["version"]
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
# The versions that the metadata promises. The environment of pip has the version that runs the tests.
SUPPORTED = [found[1] for each in project(".")["classifiers"] if (found := re.search(r"Python :: (3\.\d+)$", each))]
OTHER_VERSIONS = [version for version in SUPPORTED if version != RUNNING]


@pytest.fixture(autouse=True)
def _outside_the_checkout(monkeypatch, tmp_path):
    """Let the processes of a test start in an empty folder, without the modules of the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture(scope="module")
def by_pip(tmp_path_factory):
    """The packages without extras, installed with pip."""
    return install_with_pip(tmp_path_factory.mktemp("p"))


def found(response):
    return [result["path"] for result in response["results"]]


def test_pip_installs_both_packages_and_the_command(by_pip):
    assert by_pip.run("--version") == f"memoryd, version {VERSION}\n"
    assert re.search(r"^ +serve +Run the daemon", by_pip.run("--help"), re.MULTILINE)
    printed = by_pip.run(
        "-I", "-c", "import memoryd, memoryd_server as m; print(memoryd.__file__, m.__file__)", program=by_pip.python
    )
    assert all(path.startswith(f"{by_pip.folder}/env/") for path in printed.split()), printed
    by_pip.run("-m", "pip", "check", program=by_pip.python)


def test_search_without_a_daemon_finds_a_note(by_pip):
    assert found(by_pip.search()) == ["MEMORY.md"]


def test_command_and_client_call_the_daemon(by_pip):
    with by_pip.serving("served", {}) as served:
        assert served.address.startswith("unix:")
        by_pip.run("index", "--address", served.address)
        assert "The heron nests by the weir." in by_pip.run("search", "--address", served.address, QUERY)
        client = by_pip.run("-I", "-c", CLIENT_PROGRAM, served.address, QUERY, program=by_pip.python)
        assert client == "MEMORY.md\n"
        assert end(served.process, signal.SIGTERM) == 0


def test_entries_without_the_extra_name_the_extra(by_pip):
    state = by_pip.configure("entries", {"memoryd": {"entries": {"enabled": True}}})
    with pytest.raises(AssertionError, match=r"memoryd\[lancedb\]"):
        by_pip.run("entry", "remember", "--state-dir", state, "prefers green tea")


def test_lancedb_extra_stores_and_recalls_entries(tmp_path):
    installed = install_with_uv(tmp_path, "memoryd[lancedb]")
    settings = {"memory": {"search": {"provider": "none"}}, "memoryd": {"entries": {"enabled": True}}}
    with installed.serving("entries", settings) as served:
        open_entries(served.address)
        for text in ("prefers green tea", "lives in Lisbon"):
            installed.run("entry", "remember", "--address", served.address, text)
        recalled = installed.run("entry", "recall", "--address", served.address, "which tea?")
    assert "prefers green tea" in recalled
    assert "Lisbon" not in recalled


MCP_PROGRAM = """
import asyncio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main(command, address, query):
    server = StdioServerParameters(command=command, args=["mcp", "--address", address])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        result = await session.call_tool("memory_search", {"query": query})
        print(result.structured_content["results"][0]["path"])

asyncio.run(main(*sys.argv[1:]))
"""


def test_http_extra_serves_mcp_and_http(tmp_path):
    installed = install_with_uv(tmp_path, "memoryd[http]")
    settings = {"memory": {"search": {"provider": "none"}}, "memoryd": {"http": {"listen": "127.0.0.1:0"}}}
    with installed.serving("mcp", settings) as served:
        installed.run("index", "--address", served.address)
        found_by_mcp = installed.run(
            "-I", "-c", MCP_PROGRAM, installed.memoryd, served.address, QUERY, program=installed.python
        )
        assert found_by_mcp == "MEMORY.md\n"
        assert end(served.process, signal.SIGTERM) == 0


def test_mcp_without_the_extra_names_the_extra(by_pip):
    with by_pip.serving("no-extra", {}) as served:
        first = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        response = by_pip.run("mcp", "--address", served.address, input=json.dumps(first) + "\n")
    assert "install memoryd[http]" in json.loads(response)["error"]["message"]


def test_local_extra_computes_embeddings(tmp_path, model_path):
    if not list(LLAMA_WHEELS.glob("llama_cpp_python-*.whl")):
        pytest.skip(f"{LLAMA_WHEELS} contains no wheel of llama-cpp-python: `make setup-local` compiles it")
    only_binary = ("--only-binary", "llama-cpp-python")
    installed = install_with_uv(tmp_path, *only_binary, "memoryd[local]", find_links=[LLAMA_WHEELS])
    local = {"provider": "local", "local": {"modelPath": str(model_path.resolve())}}
    state = installed.configure("local", {"memory": {"search": local}})
    # No word of the query is in the notes. The command computes the vectors before it searches.
    response = installed.search("which birds live near a dam?", state)
    assert found(response) == ["MEMORY.md"]
    assert response["info"]["servedMode"] == "SEARCH_MODE_HYBRID"
    assert not response["info"]["keywordCandidates"]
    assert response["info"]["embedding"]["provider"] == "local"


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_other_versions_of_python_install_and_search(version, tmp_path):
    installed = install_with_uv(tmp_path, *wheels(), python=interpreter(version))
    assert installed.run("-V", program=installed.python).startswith(f"Python {version}.")
    assert found(installed.search()) == ["MEMORY.md"]


def test_source_distributions_are_built_and_installed(tmp_path):
    """Without the locked environment: hatchling and its plugin are downloaded from the package index."""
    sources = [archive(name, ".tar.gz") for name in ("memoryd", "memoryd_client")]
    assert install_with_uv(tmp_path, *sources).run("--version") == f"memoryd, version {VERSION}\n"


def test_uv_tool_installs_and_uninstalls_the_command(tmp_path):
    uv, home = tool("uv"), tmp_path / "home"
    installed = prepare(tmp_path, home / "uv" / "bin" / "memoryd")
    installed.run("tool", "install", "-q", "--python", sys.executable, "--find-links", DIST, "memoryd", program=uv)
    assert installed.run("--version") == f"memoryd, version {VERSION}\n"
    installed.run("tool", "uninstall", "-q", "memoryd", program=uv)
    assert not installed.memoryd.exists()


def test_pipx_runs_the_wheel(tmp_path):
    installed = prepare(tmp_path, tool("pipx"))
    # `--pip-args` is passed to pip, and to uv if pipx uses uv.
    options = ("--python", sys.executable, "--pip-args", f"--find-links {DIST}", "--spec", wheels()[0])
    printed = installed.run("run", *options, "memoryd", "--version", timeout=INSTALL_SECONDS)
    assert printed == f"memoryd, version {VERSION}\n"


# The package index


@contextmanager
def package_index(folder):
    """Serve a package index with memoryd on loopback, and yield its address until the block ends."""
    page = folder / "simple" / "memoryd" / "index.html"
    page.parent.mkdir(parents=True)
    wheel = wheels()[0]
    page.with_name(wheel.name).write_bytes(wheel.read_bytes())
    needed = project(".")["requires-python"].replace(">", "&gt;")
    page.write_text(f'<a href="{wheel.name}" data-requires-python="{needed}">{wheel.name}</a>', "utf-8")
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def test_pip_of_an_older_python_names_the_required_version(tmp_path):
    """With the message of an index, which knows the required version of Python before the download."""
    pip = (sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--no-deps", "--only-binary", ":all:")
    with package_index(tmp_path) as index:
        options = ("--index-url", index, "--target", tmp_path / "target", "memoryd", "--python-version")
        refusal = rf"{re.escape(VERSION)} Requires-Python >=3\.11"
        with pytest.raises(AssertionError, match=refusal):
            run(*pip, *options, "3.10", env=environment(tmp_path))
        assert f"Would install memoryd-{VERSION}" in run(*pip, *options, "3.11", env=environment(tmp_path))
