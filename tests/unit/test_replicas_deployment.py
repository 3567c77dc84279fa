"""The files under service/deploy/replicas: the scripts run, and the compose file names what there is."""

import os
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import yaml

from certificates import needs_openssl
from memoryd_server.access import read_private
from memoryd_server.cli.main import main
from memoryd_server.settings.loading import load
from postgres_server import IS_ROOT, PROGRAMS, UNPRIVILEGED, PostgresServer, missing, running_server

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "service" / "deploy" / "replicas"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
needs_postgres = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture
def prepared(tmp_path):
    """A copy of the folder after `prepare.sh`."""
    folder = tmp_path / "replicas"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("secrets", ".env"))
    prepare(folder)
    return folder


def prepare(folder):
    subprocess.run([folder / "prepare.sh"], check=True, capture_output=True, timeout=60)


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@needs_openssl
def test_prepare_creates_private_secrets_and_keeps_existing_ones(prepared):
    secrets = prepared / "secrets"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    for name in ("database.password", "token", "tls.key"):
        assert read_private(secrets / "memoryd" / name, name)
    password = (secrets / "memoryd.password").read_bytes()
    assert (secrets / "memoryd" / "database.password").read_bytes() == password
    assert len({(secrets / f"{name}.password").read_bytes() for name in ("memoryd", "postgres", "replication")}) == 3
    lines = dict(line.split("=") for line in (prepared / ".env").read_text().splitlines())
    assert lines == {"MEMORYD_UID": str(os.getuid()), "MEMORYD_GID": str(os.getgid())}
    before = files(prepared)
    prepare(prepared)
    assert files(prepared) == before


@needs_openssl
def test_the_certificate_is_valid_for_the_replicas_and_their_common_name(prepared):
    secrets = prepared / "secrets"
    names = {name for service in ("memoryd-1", "memoryd-2") for name in (service, *aliases(service))}
    for name in (*names, "localhost"):
        command = ["openssl", "verify", "-CAfile", secrets / "ca.pem", "-verify_hostname", name]
        subprocess.run([*command, secrets / "memoryd" / "tls.pem"], check=True, capture_output=True, timeout=60)


def aliases(service):
    return COMPOSE["services"][service]["networks"]["default"]["aliases"]


def test_the_settings_are_valid_and_name_files_and_hosts_of_the_compose_file(tmp_path):
    shutil.copy(FOLDER / "memoryd.json5", tmp_path)
    settings = load(environ={"MEMORYD_STATE_DIR": str(tmp_path)}, home=tmp_path)
    assert not settings.warnings
    store, tls = settings.service.store, settings.service.tls
    hosts = store.url.get_secret_value().split("@")[1].split("/")[0].split(",")
    assert set(hosts) == {"primary", "standby"}
    assert set(hosts) <= set(COMPOSE["services"])
    (folder,) = {Path(path).parent for path in (store.password_file, tls.cert_file, tls.key_file)}
    for name in ("memoryd-1", "memoryd-2"):
        assert f"./secrets/memoryd:{folder}:ro" in COMPOSE["services"][name]["volumes"]


def test_the_compose_file_starts_commands_that_there_are():
    for name in ("memoryd-1", "memoryd-2"):
        service = COMPOSE["services"][name]
        verb, *arguments = service["command"]
        main.get_command(click.Context(main), verb).make_context(verb, arguments, resilient_parsing=True)
        assert service["build"]["dockerfile"] == "service/deploy/Containerfile"
        context = (FOLDER / service["build"]["context"]).resolve()
        assert context == REPOSITORY
        lock = service["build"]["args"]["EXTRA_LOCKS"]
        assert (REPOSITORY / "service" / "locks" / f"{lock}.lock").exists()
    mounted = [
        volume.split(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service["volumes"]
        if volume.startswith("./") and not volume.startswith("./secrets")
    ]
    assert all((FOLDER / name).is_file() for name in mounted)


class Installed(PostgresServer):
    """A server with the settings of its own configuration file, whose transaction logs can be copied."""

    def __init__(self, folder):
        super().__init__(folder, durable=True)


@contextmanager
def standby_of(server, folder, secrets):
    """Run standby.sh for a server that listens on a Unix socket."""
    command = [*UNPRIVILEGED, shutil.which("sh"), FOLDER / "standby.sh", "-c", f"unix_socket_directories={folder}"]
    process = subprocess.Popen(
        [*command, "-c", "listen_addresses="],
        env=environment(secrets) | {"PGDATA": str(folder / "data"), "PRIMARY": str(server.folder)},
        cwd=folder,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def environment(secrets):
    return {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "SECRETS": str(secrets)}


@pytest.mark.parametrize("times", [1, 2], ids=["first start", "second start"])
@needs_postgres
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_scripts_of_the_database_make_a_synchronous_standby(times):
    with running_server(Installed) as server, tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name:
        folder = Path(name)
        # The mounted secrets have other names than their files.
        secrets = folder / "run"
        secrets.mkdir()
        for secret in ("memoryd", "replication"):
            (secrets / f"{secret}_password").write_text(f"{secret} secret\n")
        if IS_ROOT:
            for path in (folder, secrets):
                shutil.chown(path, "nobody")
        with server.admin() as connection:
            connection.execute("DROP DATABASE memoryd")
            connection.execute("DROP ROLE memoryd")
        run_primary(server, secrets)
        server.stop()
        server.start()
        for _ in range(times):
            with standby_of(server, folder, secrets):
                wait_for_sync(server)
                with server.admin("memoryd") as connection:
                    connection.execute("CREATE TABLE probe AS SELECT 1 AS one")
                    connection.execute("DROP TABLE probe")
        with standby_of(server, folder, secrets):
            wait_for_sync(server)
            server.stop()
            promote(folder)
        server.start()
        with server.admin("memoryd") as connection:
            role = connection.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = 'memoryd'")
            assert role.fetchone() == (False, False)
            assert connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone()


def promote(folder):
    """Promote the standby as docs/scale.md says, and write to it."""
    command = [*UNPRIVILEGED, PROGRAMS / "pg_ctl", "promote", "-D", folder / "data"]
    subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=folder)
    address = f"postgresql://postgres@/memoryd?host={folder}"
    # Without this, a commit waits for a standby that does not exist.
    for statement in (
        "ALTER SYSTEM RESET synchronous_standby_names",
        "SELECT pg_reload_conf()",
        "CREATE TABLE probe AS SELECT 1 AS one",
    ):
        command = [PROGRAMS / "psql", "-X", "-v", "ON_ERROR_STOP=1", "-c", statement, address]
        subprocess.run(command, check=True, capture_output=True, timeout=30)


def run_primary(server, secrets):
    subprocess.run(
        ["/bin/sh", FOLDER / "primary.sh"],
        check=True,
        capture_output=True,
        timeout=60,
        env=environment(secrets) | {"PGHOST": str(server.folder), "PGDATA": str(server.folder / "data")},
    )


def wait_for_sync(server):
    deadline = time.monotonic() + 60
    query = "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby'"
    while True:
        with server.admin() as connection:
            # A commit would wait for the standby.
            rows = connection.execute(query).fetchall()
        if rows == [("sync",)]:
            return
        assert time.monotonic() < deadline, rows
        time.sleep(0.1)
