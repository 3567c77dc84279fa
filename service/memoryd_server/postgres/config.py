"""DatabaseConfig: the URL of the database, the limit of its connections, and the timeouts."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import conninfo

from memoryd_server.access import read_private
from memoryd_server.errors import IndexUnavailable, SettingsError

RENEW_SECONDS: Final = 1.0
LEASE_SECONDS: Final = 5.0

# Unless the URL sets them. A dead host is noticed within some 30 s.
_DEFAULTS: Final = (
    ("application_name", "memoryd"),
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "30000"),
)


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """How to connect. `url` may contain a password, which is therefore not shown, and parameters of libpq.

    `password_file` contains only the password, and is read for each connection. `idle_seconds` is how long unused
    connections are kept. After `check_seconds` without an answer to a statement, a new connection checks whether the
    server answers. `vacuum_seconds` is the shortest time between two runs of VACUUM. The row of this replica is renewed
    every `renew_seconds`, and valid for `lease_seconds` after that. `is_standby` is whether the URL is that of a
    standby, which is also used after its promotion.
    """

    url: str = field(repr=False)
    password_file: Path | None = None
    max_connections: int = 10
    connect_seconds: int = 5
    idle_seconds: float = 60.0
    check_seconds: float = 15.0
    is_standby: bool = False
    vacuum_seconds: float = 600.0
    renew_seconds: float = RENEW_SECONDS
    lease_seconds: float = LEASE_SECONDS

    @property
    def setting(self) -> str:
        """The setting with the URL."""
        return "memoryd.store.standbyUrl" if self.is_standby else "memoryd.store.url"

    @property
    def location(self) -> str:
        """The hosts and the name of the database, without a user or password."""
        found = self._url_parameters()
        hosts = str(found.get("host") or found.get("hostaddr") or "localhost")
        return f"postgresql://{hosts}/{found.get('dbname') or found.get('user') or ''}"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of a connection. Blocks: reads the password.

        Raises:
            IndexUnavailable: the URL is invalid, or the password cannot be read.
        """
        parameters = {**self._url_parameters(), "connect_timeout": self.connect_seconds}
        if self.password_file is not None:
            try:
                content = read_private(self.password_file, "memoryd.store.passwordFile")
                parameters["password"] = content.decode().rstrip("\r\n")
            except FileNotFoundError as error:
                raise IndexUnavailable(
                    f"cannot read memoryd.store.passwordFile {self.password_file}: {error.strerror}"
                ) from error
            except SettingsError as error:
                raise IndexUnavailable(error.message) from error
            except UnicodeDecodeError:
                raise IndexUnavailable("memoryd.store.passwordFile is not UTF-8") from None
        return parameters

    def _url_parameters(self) -> dict[str, Any]:
        try:
            found = conninfo.conninfo_to_dict(self.url)
        except psycopg.Error:
            # The reason would contain parts of the URL.
            raise IndexUnavailable(
                f"{self.setting} is not a PostgreSQL URL, or has a parameter that libpq does not support"
            ) from None
        if "@" in f"{found.get('host')}{found.get('dbname')}":
            # They contain a part of the password, and would be shown.
            raise IndexUnavailable(
                f'{self.setting} is ambiguous: write "@" as %40 and "/" as %2F in its password, or use '
                "memoryd.store.passwordFile"
            )
        attributes = "prefer-standby" if self.is_standby else "read-write"
        return {**dict(_DEFAULTS), "target_session_attrs": attributes, **found}
