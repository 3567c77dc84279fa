"""The rules of docs/architecture.md that import contracts cannot tell."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SERVICE = REPOSITORY / "service" / "memoryd_server"
CLIENT = REPOSITORY / "clients" / "python" / "src" / "memoryd"
LONGEST_FILE = 500
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "Lock", "RLock"}
CONSTANT_TYPES = ("Mapping", "Final", "Sequence")


def modules():
    files = [*SERVICE.rglob("*.py"), *CLIENT.glob("*.py")]
    return [pytest.param(file, id=str(file.relative_to(REPOSITORY))) for file in sorted(files)]


def tree(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(file):
    names = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def dotted(node):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([*([node.id] if isinstance(node, ast.Name) else []), *reversed(parts)])


def mentioned(file):
    return imported(file) | {dotted(node) for node in ast.walk(tree(file)) if isinstance(node, ast.Attribute)}


def is_within(file, *places):
    return any(file == SERVICE / place or SERVICE / place in file.parents for place in places)


def has(names, *packages):
    return sorted(name for name in names if any(name == p or name.startswith(p + ".") for p in packages))


@pytest.mark.parametrize("file", modules())
def test_only_settings_read_the_environment(file):
    # A client that is told nothing finds its daemon by the environment.
    if not is_within(file, "settings") and file != CLIENT / "discovery.py":
        assert has(mentioned(file), "os.environ", "os.environb", "os.getenv", "os.getenvb") == []


@pytest.mark.parametrize("file", modules())
def test_only_qmd_and_the_embedding_worker_start_processes(file):
    if not is_within(file, "backend/qmd", "backend/qmd.py", "embed"):
        starters = ("subprocess", "multiprocessing", "os.fork", "os.system", "os.popen", "os.posix_spawn")
        assert (
            has(mentioned(file), *starters, "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell") == []
        )


@pytest.mark.parametrize("file", modules())
def test_no_process_is_forked_to_go_on_with_our_threads_gone(file):
    """gRPC and SQLite do not survive a fork; what is started is another program."""
    assert has(mentioned(file), "multiprocessing", "os.fork", "os.forkpty", "pty.fork") == []
    keywords = {node.arg for node in ast.walk(tree(file)) if isinstance(node, ast.keyword)}
    assert "preexec_fn" not in keywords


@pytest.mark.parametrize("file", modules())
def test_only_the_command_runs_an_event_loop(file):
    """So a process has one: gRPC for asyncio does not work on several."""
    if not is_within(file, "cli"):
        assert has(mentioned(file), "asyncio.run", "asyncio.new_event_loop", "asyncio.Runner") == []


@pytest.mark.parametrize("file", modules())
def test_only_the_edge_and_the_client_import_grpc(file):
    if CLIENT not in file.parents and not is_within(file, "rpc"):
        wire = ("grpc", "grpc_health", "grpc_reflection", "grpc_status", "google.rpc", "google.protobuf", "memoryd.v1")
        assert has(imported(file), *wire) == []


@pytest.mark.parametrize("file", modules())
def test_only_the_index_imports_sqlite(file):
    if not is_within(file, "index"):
        assert has(imported(file), "apsw", "sqlite3") == []


@pytest.mark.parametrize("file", modules())
def test_no_file_is_too_long_to_read(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def is_mutable(value):
    if isinstance(value, ast.Call):
        return dotted(value.func).rpartition(".")[2] in MUTABLE_CALLS
    return isinstance(value, MUTABLE)


def module_state(file):
    """Names that a module binds to something that can change; a read-only type says that nobody changes it."""
    for node in tree(file).body:
        if isinstance(node, ast.Assign) and is_mutable(node.value):
            yield from (name for target in node.targets if (name := dotted(target)) != "__all__")
        if isinstance(node, ast.AnnAssign) and node.value and is_mutable(node.value):
            annotation = ast.unparse(node.annotation).removeprefix("Final[")
            if not annotation.startswith(CONSTANT_TYPES):
                yield dotted(node.target)


@pytest.mark.parametrize("file", modules())
def test_a_module_holds_no_state(file):
    assert list(module_state(file)) == []
    assert not [node for node in ast.walk(tree(file)) if isinstance(node, ast.Global)]
