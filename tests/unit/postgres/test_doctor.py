"""`memoryd doctor` on a PostgreSQL database: the server, pgvector, the role and the tables."""

import itertools
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from memoryd_server.cli.database_checks import check_database, inspected_checks
from memoryd_server.doctor import CheckResult
from memoryd_server.settings import DatabaseSettings
from postgres_server import running_server
from postgres_standby import running_standby
from waiting import wait_until

pytestmark = pytest.mark.postgres

pytest.importorskip("psycopg")
schema = pytest.importorskip("memoryd_server.postgres.schema")
inspection = pytest.importorskip("memoryd_server.postgres.inspection")

NUMBERS = itertools.count()
OK, WARNING, FAILED = CheckResult.OK, CheckResult.WARNING, CheckResult.FAILED
SERVER, LATENCY, ROLE, TABLES = "PostgreSQL", "PostgreSQL, latency", "PostgreSQL, role", "PostgreSQL, tables"
STANDBY = "PostgreSQL, standby"
INACTIVE = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'doctor' AND NOT active"
ALL = {SERVER: OK, LATENCY: OK, "pgvector": OK, ROLE: OK, TABLES: OK}


@pytest.fixture
def name(postgres_server):
    """The name of an empty database."""
    name = f"doctor{next(NUMBERS)}"
    postgres_server.create_database(name)
    return name


@pytest.fixture
def new_role(postgres_server):
    """Create a role with options, and return its name."""

    def create(options="", begin="doctor_role"):
        role = f"{begin}{next(NUMBERS)}"
        with postgres_server.admin() as connection:
            connection.execute(f'CREATE ROLE "{role}" LOGIN {options}')
        return role

    return create


def checks(url, **options):
    return list(check_database(DatabaseSettings(url=SecretStr(url), **options)))


def verdicts(found):
    # The latency depends on the load of the machine.
    return {check.name: check.verdict for check in found if check.name != LATENCY} | {LATENCY: OK}


def one(found, name):
    (check,) = (check for check in found if check.name == name)
    return check


def test_nothing_is_checked_with_sqlite():
    assert list(check_database(DatabaseSettings())) == []


def test_a_good_database_before_and_after_its_tables_are_created(postgres_module, name):
    url = postgres_module.server.url_of(name)
    found = checks(url)
    assert verdicts(found) == ALL
    assert "none yet" in one(found, TABLES).detail
    assert one(found, SERVER).detail.startswith("18.")
    assert f"/{name}" in one(found, SERVER).detail
    assert " ms" in one(found, LATENCY).detail
    postgres_module.database(url).prepare()
    found = checks(url)
    assert verdicts(found) == ALL
    assert one(found, TABLES).detail == f"version {schema.SCHEMA_VERSION} is current"


def test_an_inspection_creates_nothing(postgres_server, name):
    checks(postgres_server.url_of(name))
    with postgres_server.admin(name) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'memoryd'").fetchone() is None


def test_an_unreachable_server_is_the_only_check_and_hides_the_password():
    with socket.socket() as taken:
        # Bound without listening, so connections are refused.
        taken.bind(("127.0.0.1", 0))
        (check,) = checks(f"postgresql://memoryd:the-password@127.0.0.1:{taken.getsockname()[1]}/memoryd")
    assert (check.name, check.verdict) == (SERVER, FAILED)
    assert "refused" in check.detail
    assert "start the server" in check.advice
    assert "the-password" not in repr(check)


def test_a_database_that_does_not_exist(postgres_server):
    (check,) = checks(postgres_server.url_of("absent"))
    assert check.verdict is FAILED
    assert '"absent" does not exist' in check.detail


def test_a_wrong_password(postgres_server, new_role, name, tmp_path):
    role = new_role("PASSWORD 'right'")
    with postgres_server.admin() as connection:
        (access,) = connection.execute("SHOW hba_file").fetchone()
        before = Path(access).read_text()
        Path(access).write_text(f"local all {role} scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
    url = postgres_server.url_of(name, role)
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("wrong-password")
    (check,) = checks(url, password_file=password)
    assert check.verdict is FAILED
    assert "password authentication failed" in check.detail
    assert "check memoryd.store.passwordFile" in check.detail
    assert "memoryd.store.passwordFile" in check.advice
    assert "wrong-password" not in repr(check)
    password.write_text("right\n")
    assert one(checks(url, password_file=password), SERVER).verdict is OK
    password.chmod(0o644)
    (check,) = checks(url, password_file=password)
    assert "chmod 600" in check.detail


def test_a_database_without_the_extension(postgres_server):
    name = f"doctor{next(NUMBERS)}"
    with postgres_server.admin() as connection:
        connection.execute(f"CREATE DATABASE {name} OWNER memoryd")
    found = checks(postgres_server.url_of(name))
    assert verdicts(found) == ALL | {"pgvector": FAILED}
    assert one(found, "pgvector").advice == "run CREATE EXTENSION vector in the database as a superuser"


@pytest.mark.parametrize(
    ("options", "detail"), [("SUPERUSER NOBYPASSRLS", "is a superuser"), ("BYPASSRLS", "has BYPASSRLS")]
)
def test_a_role_that_is_exempt_from_row_level_security(postgres_server, name, new_role, options, detail):
    role = new_role(options)
    with postgres_server.admin(name) as connection:
        connection.execute(f"GRANT CREATE ON DATABASE {name} TO {role}")
    found = checks(postgres_server.url_of(name, role))
    assert verdicts(found) == ALL | {ROLE: FAILED}
    assert one(found, ROLE).detail == f"{role} {detail}"


def test_a_role_that_may_not_create_tables_and_what_the_advice_achieves(postgres_module, name, new_role):
    server, role = postgres_module.server, new_role(begin="role-in-quotes")
    url = server.url_of(name, role)
    found = checks(url)
    assert verdicts(found) == ALL | {ROLE: FAILED}
    assert "may not create tables" in one(found, ROLE).detail
    with server.admin(name) as connection:
        connection.execute("CREATE SCHEMA memoryd")
        granted = one(checks(url), ROLE).advice.partition(": ")[2]
        assert granted.startswith("GRANT ")
        connection.execute("DROP SCHEMA memoryd")
        connection.execute(one(found, ROLE).advice.partition(": ")[2])
    assert verdicts(checks(url)) == ALL
    postgres_module.database(url).prepare()
    with server.admin(name) as connection:
        connection.execute("DROP SCHEMA memoryd CASCADE")
        connection.execute("CREATE SCHEMA memoryd")
        connection.execute(granted)
    assert verdicts(checks(url)) == ALL
    postgres_module.database(url).prepare()


def test_the_tables_of_another_role(postgres_module, name, new_role):
    server = postgres_module.server
    postgres_module.database(server.url_of(name)).prepare()
    found = checks(server.url_of(name, new_role()))
    assert verdicts(found) == ALL | {ROLE: FAILED, TABLES: FAILED}
    assert "may not read the tables" in one(found, TABLES).detail


def test_the_tables_of_a_newer_memoryd(postgres_module, name):
    server = postgres_module.server
    postgres_module.database(server.url_of(name)).prepare()
    with server.admin(name) as connection:
        connection.execute("INSERT INTO memoryd.schema_migrations(version) VALUES(99)")
    found = checks(server.url_of(name))
    assert verdicts(found) == ALL | {TABLES: FAILED}
    assert "version 99; this memoryd supports at most" in one(found, TABLES).detail
    assert one(found, TABLES).advice == "upgrade memoryd"


def test_older_tables_an_old_server_an_old_extension_and_a_slow_connection(postgres_module, name):
    """Only the facts are changed here, because the tests have one server and there is one version of the tables."""
    facts = inspection.inspect_database(postgres_module.database(postgres_module.server.url_of(name)))
    older = replace(facts, tables_version=1, supported_tables_version=2)
    assert "upgrades them to version 2" in one(inspected_checks(older), TABLES).detail
    assert one(inspected_checks(older), TABLES).verdict is OK
    for changes, check in (
        ({"server_version": "17.2", "server_number": 170_002}, SERVER),
        ({"extension": "0.7.4"}, "pgvector"),
        ({"round_trip_seconds": 0.05}, LATENCY),
    ):
        found = list(inspected_checks(replace(facts, **changes)))
        assert one(found, check).verdict is WARNING
    absent = replace(facts, extension="", is_installed=False)
    assert one(inspected_checks(absent), "pgvector").advice.startswith("install pgvector on the server, then run")


@pytest.fixture(scope="module")
def standby(postgres_server):
    with running_standby(postgres_server, name="doctor") as server:
        yield server
    with postgres_server.admin() as connection:
        wait_until(lambda: connection.execute(INACTIVE).fetchone())
        connection.execute("SELECT pg_drop_replication_slot('doctor')")


def standby_check_of(postgres_server, name, url):
    return one(checks(postgres_server.url_of(name), standby_url=SecretStr(url)), STANDBY)


def test_a_standby_that_follows_and_one_that_does_not(postgres_server, name, standby):
    standby.catch_up()
    check = standby_check_of(postgres_server, name, standby.url_of(name))
    assert (check.verdict, check.detail.partition(" replayed ")[0]) == (OK, f"postgresql://{standby.folder}/{name}")
    standby.pause_replay()
    try:
        with postgres_server.admin(name) as connection:
            connection.execute("CREATE TABLE written(id integer)")
        check = standby_check_of(postgres_server, name, standby.url_of(name))
        assert check.verdict is WARNING
        assert "has not replayed within 5 s" in check.detail
    finally:
        standby.resume_replay()


def test_a_standby_that_is_stopped_a_primary_or_of_another_server(postgres_server, name, tmp_path):
    check = standby_check_of(postgres_server, name, postgres_server.url_of(name))
    assert (check.verdict, check.detail.rpartition(" is ")[2]) == (WARNING, "a primary")
    check = standby_check_of(postgres_server, name, f"postgresql://memoryd@/{name}?host={tmp_path}")
    assert check.verdict is WARNING
    assert "memoryd.store.standbyUrl" in check.advice
    with running_server() as other:
        other.create_database(name)
        check = standby_check_of(postgres_server, name, other.url_of(name))
    assert check.verdict is WARNING
    assert "does not have the database" in check.detail


def test_a_standby_of_the_primary_with_another_database(postgres_server, name, standby):
    standby.catch_up()
    check = standby_check_of(postgres_server, name, standby.url)
    assert check.verdict is WARNING
    assert "does not have the database" in check.detail
