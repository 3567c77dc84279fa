"""The rules of docs/architecture.md that import contracts cannot express."""

import ast
import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SERVICE = REPOSITORY / "service" / "memoryd_server"
CLIENT = REPOSITORY / "clients" / "python" / "src" / "memoryd"
LONGEST_FILE = 500
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "Lock", "RLock"}
CONSTANT_TYPES = ("Mapping", "Final", "Sequence")


FILES = sorted([*SERVICE.rglob("*.py"), *CLIENT.glob("*.py")])


@cache
def tree(file):
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
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


@cache
def mentioned(file):
    return imported(file) | {dotted(node) for node in ast.walk(tree(file)) if isinstance(node, ast.Attribute)}


def is_within(file, *places):
    return any(file == SERVICE / place or SERVICE / place in file.parents for place in places)


def has(names, *packages):
    return sorted(name for name in names if any(name == p or name.startswith(p + ".") for p in packages))


def violations(rule, *, allowed_in=(), client=True):
    """Return one line per file that breaks a rule. `rule` returns what is wrong with a file, as a list."""
    files = [file for file in FILES if not is_within(file, *allowed_in) and (client or CLIENT not in file.parents)]
    found = [(file.relative_to(REPOSITORY), wrong) for file in files if (wrong := rule(file))]
    return "".join(f"\n{file}: {', '.join(map(str, wrong))}" for file, wrong in found)


def test_all_modules_are_checked():
    assert len(FILES) > 150
    assert SERVICE / "rpc" / "server.py" in FILES
    assert CLIENT / "discovery.py" in FILES


def test_only_settings_and_client_discovery_read_the_environment():
    names = ("os.environ", "os.environb", "os.getenv", "os.getenvb")

    def rule(file):
        return [] if file == CLIENT / "discovery.py" else has(mentioned(file), *names)

    assert not violations(rule, allowed_in=["settings"])


def test_only_qmd_readers_and_the_embedding_worker_start_processes():
    """The commands of secrets, those of a service manager and the editor of the user are the exceptions."""
    starters = ("subprocess", "multiprocessing", "os.fork", "os.system", "os.popen", "os.posix_spawn")
    starters += ("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell")
    places = [
        "qmd",
        "providers",
        "agent/reader_handle.py",
        "credentials/command.py",
        "credentials/command_guard.py",
        "cli/service_manager.py",
        "cli/daemon_starter.py",
        "cli/edit.py",
    ]
    assert not violations(lambda file: has(mentioned(file), *starters), allowed_in=places)


def test_no_module_forks_the_process():
    """gRPC and SQLite do not survive a fork; a new process runs another program."""
    names = ("multiprocessing", "os.fork", "os.forkpty", "pty.fork")

    def rule(file):
        keywords = {node.arg for node in ast.walk(tree(file)) if isinstance(node, ast.keyword)}
        return has(mentioned(file), *names) + sorted(keywords & {"preexec_fn"})

    assert not violations(rule)


def test_only_the_command_line_runs_an_event_loop():
    """A process has one event loop: gRPC for asyncio does not work on several."""
    names = ("asyncio.run", "asyncio.new_event_loop", "asyncio.Runner")
    assert not violations(lambda file: has(mentioned(file), *names), allowed_in=["cli"])


# They await one step of a call, or one of two events, and the step ends with the call.
AWAITED_STEPS = ("agent/agent.py", "agent/lifecycle.py", "rpc/interceptors.py")
# Each thread ends with its owner, which reports its exceptions.
THREAD_OWNERS = ("threads.py", "providers", "sqlite/vector_index.py", "observe/metrics.py", "app/stop_signals.py")


def test_only_the_supervisor_starts_tasks():
    """A task that is started in another way can die of an exception without a trace in metrics and Status."""
    starters = {"create_task", "ensure_future", "TaskGroup", "run_coroutine_threadsafe"}

    def rule(file):
        return sorted({name for name in mentioned(file) if name.rpartition(".")[2] in starters})

    assert not violations(rule, allowed_in=["background_tasks.py", "cli", *AWAITED_STEPS], client=False)


def test_few_modules_start_threads():
    def rule(file):
        return has(mentioned(file), "threading.Thread", "threading.Timer", "_thread")

    assert not violations(rule, allowed_in=["cli", *THREAD_OWNERS], client=False)


# Clients of services that the client library has no API for.
CLIENTS_OF_OTHER_SERVICES = ("cli/health.py", "cli/mcp_stream.py")


def test_only_the_edge_and_the_client_import_grpc():
    names = ("grpc", "grpc_health", "grpc_reflection", "grpc_status", "google.rpc", "google.protobuf", "memoryd.v1")
    assert not violations(
        lambda file: has(imported(file), *names), allowed_in=["rpc", *CLIENTS_OF_OTHER_SERVICES], client=False
    )


def test_only_the_sqlite_driver_imports_sqlite():
    """The readers of OpenClaw's databases are the exception."""
    places = ["sqlite", "credentials/openclaw_database.py", "sources/session_database.py"]
    assert not violations(lambda file: has(imported(file), "apsw", "sqlite3"), allowed_in=places)


def test_no_file_is_too_long_to_read():
    def rule(file):
        lines = len(file.read_text(encoding="utf-8").splitlines())
        return [f"{lines} lines"] if lines > LONGEST_FILE else []

    assert not violations(rule)


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


def test_no_module_holds_state():
    def rule(file):
        changed = [f"global {', '.join(node.names)}" for node in ast.walk(tree(file)) if isinstance(node, ast.Global)]
        return [*module_state(file), *changed]

    assert not violations(rule)


def module_of(file):
    """The dotted name of a module of the service, below `memoryd_server`; empty for the package itself."""
    parts = file.relative_to(SERVICE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules():
    return {module_of(file) for file in SERVICE.rglob("*.py")}


@cache
def imported_modules(file):
    """The modules of the service that a module imports when it is imported itself."""
    known = modules()
    found = set()
    for node in tree(file).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "memoryd_server":
            base = node.module.removeprefix("memoryd_server").removeprefix(".")
            for alias in node.names:
                name = f"{base}.{alias.name}".removeprefix(".")
                found.add(name if name in known else base)
    return found - {""}


def test_no_modules_import_each_other():
    """No cycle between files. Import-linter checks the packages."""
    graph = {module_of(file): imported_modules(file) for file in SERVICE.rglob("*.py") if file.name != "__init__.py"}
    # A package stands for the modules that its __init__ imports.
    faces = {module_of(file): imported_modules(file) for file in SERVICE.rglob("__init__.py")}
    done, cycles = set(), []

    def visit(module, path):
        if module in path:
            cycles.append(" -> ".join([*path[path.index(module) :], module]))
        elif module not in done:
            for other in sorted(graph.get(module) or faces.get(module, ())):
                visit(other, [*path, module])
            done.add(module)

    for module in sorted(graph):
        visit(module, [])
    assert not cycles


def test_another_package_is_imported_by_its_name_alone():
    """The `__init__` of a package lists its API in `__all__`. `python -m memoryd_server` imports the command."""

    def rule(file):
        own = module_of(file).partition(".")[0] if SERVICE in file.parents else ""
        found = set()
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memoryd_server."):
                package, _, module = node.module.removeprefix("memoryd_server.").partition(".")
                names = {f"{package}.{alias.name}" for alias in node.names}
                if package not in {own, "cli"}:
                    found |= {f"{package}.{module}"} if module else names & modules()
        return sorted(found)

    assert not violations(rule)


def test_each_public_class_name_occurs_once():
    places = {}
    for file in SERVICE.rglob("*.py"):
        for node in tree(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module_of(file))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


TESTS = REPOSITORY / "tests"
MAX_PATCHES = 59
MAX_PRIVATE_REACHES = 77
# Private by name only: documented functions of the standard library and of named tuples.
PRIVATE = re.compile(r"(?<!\bself)(?<!\bcls)\.\s*_(?!_)")
DOCUMENTED = {"_exit", "_getframe", "_replace", "_asdict"}


def private_reaches(file):
    """Return the private attributes that a file reads from objects other than `self` and `cls`."""
    # Parsing all tests takes seconds, and most have none.
    if not PRIVATE.search(file.read_text("utf-8")):
        return
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
            if not own and node.attr not in DOCUMENTED:
                yield f"{file.relative_to(REPOSITORY)}:{node.lineno}: {ast.unparse(node)}"


def test_tests_patch_few_attributes():
    """A test passes an argument, a fake or a clock. Lower the limit when a patch goes."""
    call = "monkeypatch" + ".setattr"
    found = sum(file.read_text(encoding="utf-8").count(call) for file in TESTS.rglob("*.py"))
    assert found <= MAX_PATCHES


def test_tests_read_few_private_attributes():
    """A fixture holds the reach for what has no public name. Lower the limit when a reach goes."""
    found = [reach for file in sorted(TESTS.rglob("*.py")) for reach in private_reaches(file)]
    assert len(found) <= MAX_PRIVATE_REACHES, "\n".join(found)


# The tables in which FTS5 keeps a table's data are no part of its interface. Its commands and fts5vocab are. One module
# reads the lengths of chunks there, checks that they agree with the totals, and lets FTS5 rank if they do not.
READS_LENGTHS = "sqlite.term_scores"
SHADOW_TABLES = re.compile(r"keyword_(?:data|idx|content|docsize|config)\b")


def test_no_statement_reads_the_tables_inside_of_fts5():
    found = [
        f"{module_of(file)}: {name[0]}"
        for file in SERVICE.rglob("*.py")
        if module_of(file) != READS_LENGTHS and (name := SHADOW_TABLES.search(file.read_text()))
    ]
    assert found == []


def test_a_package_exports_what_other_packages_use():
    used, exported = set(), set()
    for file in SERVICE.rglob("*.py"):
        own = module_of(file).partition(".")[0]
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memoryd_server."):
                package = node.module.split(".")[1]
                names = {f"{package}.{alias.name}" for alias in node.names}
                if file.name == "__init__.py":
                    exported |= names
                elif package != own:
                    used |= names
    assert exported <= used
