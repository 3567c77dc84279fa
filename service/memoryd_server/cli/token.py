"""`memoryd token`: the tokens of TCP clients. A running daemon applies each change at the next call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoryd_server.cli.options import (
    NOT_FOUND,
    CommonOptions,
    fail,
    json_option,
    print_json,
    reported,
    settings_options,
)

if TYPE_CHECKING:
    from memoryd_server.access import Scope, TokenFiles, TokenRecord, TokenStore
    from memoryd_server.settings import ResolvedSettings

_UNITS: Mapping[str, timedelta] = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_LONGEST = timedelta(days=36_525)
_MOST_NAME_CHARS = 100
# The values of `Scope`, which is not imported for help and completion.
_SCOPES = ("read", "append", "edit", "admin")
_DEFAULT_SCOPE = "admin"


class _Lifetime(click.ParamType[timedelta]):
    """A time with a unit, such as `90d` or `12h`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        number, unit = str(value)[:-1], _UNITS.get(str(value)[-1:])
        if unit is None or not (number.isascii() and number.isdigit()) or len(number) > len("52596000"):
            self.fail(f"{value!r} is not a time; write 90d, 12h, 30m or 2w", param, ctx)
        lifetime = int(number) * unit
        if not timedelta() < lifetime <= _LONGEST:
            self.fail(f"{value!r} is not between one minute and 100 years", param, ctx)
        return lifetime


@click.group()
def token() -> None:
    """Create, list and revoke the tokens of TCP clients."""


def _settings(options: Mapping[str, Path | None]) -> ResolvedSettings:
    config, state_dir, workspace = options["config"], options["state_dir"], options["workspace"]
    return CommonOptions(config, state_dir, workspace, None, options["token_file"]).settings(read_secrets=False)


def _token_files(settings: ResolvedSettings) -> TokenFiles:
    from memoryd_server.access import TokenFiles  # noqa: PLC0415 -- not needed for help

    return TokenFiles.in_state_dir(settings.state_dir, settings.service.token_file)


def _store(settings: ResolvedSettings) -> TokenStore:
    from memoryd_server.access import TokenStore  # noqa: PLC0415 -- not needed for help

    return TokenStore(_token_files(settings).store)


@token.command()
@settings_options
@click.option(
    "--agent", "agents", multiple=True, help="Agent that the token gives access to; can be repeated. Default: all."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    help="What the token allows; can be repeated. read: search and read the memory. append: also append and sync. "
    "edit: also edit, move, delete and restore memory files. admin: as append, and also forget; edit is not included. "
    "Default: admin.",
)
@click.option("--name", default="", help="Name of the token, for your own use.")
@click.option("--expires", type=_Lifetime(), help="Time until the token expires, for example 90d. Default: never.")
@json_option
def new(
    agents: tuple[str, ...],
    scopes: tuple[str, ...],
    name: str,
    expires: timedelta | None,
    *,
    as_json: bool,
    **options: Path | None,
) -> None:
    """Create a token and print it.

    The token is shown only once; memoryd stores only its hash.
    """
    if len(name) > _MOST_NAME_CHARS or not (name.isprintable() or not name):
        raise click.UsageError(f"--name must be at most {_MOST_NAME_CHARS} printable characters")
    if not all(agent.strip() for agent in agents):
        raise click.UsageError("--agent must not be empty")
    with reported():
        settings = _settings(options)
        # A token for an agent that does not exist would be useless.
        ids = [settings.agent(agent).agent_id for agent in agents]
        now = datetime.now(UTC)
        end = None if expires is None else now + expires
        record, secret = _store(settings).add(name, ids or None, now, end, scopes=_read_scopes(scopes))
    if as_json:
        print_json({**_as_json(record, now), "token": secret})
        return
    click.echo(secret)
    allowed = f"for {_agents(record)}, {_validity(record, now)}, scope {_scopes(record)}"
    click.echo(f"Token {record.token_id}, {allowed}. Not shown again.", err=True)


@token.command(name="list")
@settings_options
@json_option
def list_tokens(as_json: bool, **options: Path | None) -> None:
    """List tokens.

    The tokens themselves are not shown.
    """
    with reported():
        settings, now = _settings(options), datetime.now(UTC)
        records, file = _store(settings).read(), _token_files(settings).plain
        plain = _count_plain_tokens(file)
    if as_json:
        listed: list[dict[str, object]] = [_as_json(record, now) for record in records]
        # Tokens in the token file have no id; removing their line revokes them.
        listed += [{"id": None, "file": str(file), "agents": None, "scopes": [_DEFAULT_SCOPE]} for _ in range(plain)]
        print_json(listed)
        return
    for line in _lines(records, plain, file, now):
        click.echo(line)


@token.command()
@settings_options
@click.argument("token_id", metavar="ID")
def revoke(token_id: str, **options: Path | None) -> None:
    """Revoke the token with the given ID.

    New calls with the token are refused immediately, and its open streams end within seconds.
    """
    with reported():
        revoked = _store(_settings(options)).revoke(token_id)
    if not revoked:
        fail(f"there is no token {token_id!r}; `memoryd token list` shows the existing tokens", NOT_FOUND)
    click.echo(f"Revoked: {token_id}")


def _read_scopes(names: tuple[str, ...]) -> tuple[Scope, ...] | None:
    from memoryd_server.access import Scope  # noqa: PLC0415 -- not needed for help

    return tuple(map(Scope, names)) or None


def _count_plain_tokens(path: Path) -> int:
    from memoryd_server.access import read_tokens  # noqa: PLC0415 -- not needed for help

    try:
        return len(read_tokens(path))
    except FileNotFoundError:
        return 0


def _as_json(record: TokenRecord, now: datetime) -> dict[str, object]:
    return {
        "id": record.token_id,
        "name": record.name,
        "agents": record.agents,
        "scopes": record.granted_scopes,
        "created": record.created.isoformat(),
        "expires": record.expires and record.expires.isoformat(),
        "expired": record.expired(now),
    }


def _lines(records: tuple[TokenRecord, ...], plain: int, path: Path, now: datetime) -> Iterator[str]:
    for record in records:
        name = f"  {record.name}" if record.name else ""
        allowed = f"{_validity(record, now)}  {_agents(record)}  {_scopes(record)}"
        yield f"{record.token_id}  {record.created:%Y-%m-%d}  {allowed}{name}"
    if plain:
        allowed = f"for every agent, without expiry, scope {_DEFAULT_SCOPE}"
        yield f"{plain} in {path}, {allowed}; to revoke one, remove its line"
    if not records and not plain:
        yield "No tokens. The daemon creates the first one when it listens on TCP."


def _agents(record: TokenRecord) -> str:
    return "every agent" if record.agents is None else ", ".join(record.agents)


def _scopes(record: TokenRecord) -> str:
    return ", ".join(record.granted_scopes)


def _validity(record: TokenRecord, now: datetime) -> str:
    if record.expires is None:
        return "without expiry"
    return f"{'expired' if record.expired(now) else 'until'} {record.expires:%Y-%m-%d %H:%M} UTC"
