"""The PostgreSQL driver is imported only if it is used; if its package is missing, the error names the extra."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["psycopg"] = None
from pydantic import SecretStr
from memoryd_server.app.shared_store import SharedStore
from memoryd_server.errors import SettingsError
from memoryd_server.settings import DatabaseSettings
assert not any(name.startswith("memoryd_server.postgres") for name in sys.modules)
try:
    SharedStore(DatabaseSettings(url=SecretStr("postgresql://h/d"))).storage(None, None)
except SettingsError as error:
    print(error.message)
"""
DOCTOR = """
import sys
sys.modules["psycopg"] = None
from pydantic import SecretStr
from memoryd_server.cli.database_checks import check_database
from memoryd_server.settings import DatabaseSettings
for check in check_database(DatabaseSettings(url=SecretStr("postgresql://h/d"))):
    print(check.verdict, check.detail)
"""


WITHOUT_LIBRARY = PROGRAM.replace('sys.modules["psycopg"] = None', 'import os; os.environ["PSYCOPG_IMPL"] = "c"')


@pytest.mark.parametrize(
    ("program", "start"),
    [(PROGRAM, "memoryd.store"), (DOCTOR, "failed memoryd.store"), (WITHOUT_LIBRARY, "memoryd.store")],
)
def test_a_missing_driver_names_the_extra(program, start):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(start)
    assert "pip install 'memoryd[postgres]'" in done.stdout
