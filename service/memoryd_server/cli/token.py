"""`memoryd token`: who may call over TCP. A daemon that runs heeds each change at its next call."""

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from memoryd_server.access import TokenFiles, TokenRecord, TokenStore, read_tokens
from memoryd_server.cli.options import NOT_FOUND, CommonOptions, json_option, print_json, reported, settings_options
from memoryd_server.settings import ResolvedSettings

_UNITS: Mapping[str, timedelta] = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_LONGEST = timedelta(days=36_525)
_MOST_NAME_CHARS = 100


class _Lifetime(click.ParamType[timedelta]):
    """`90d`, `12h` and the like."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        number, unit = str(value)[:-1], _UNITS.get(str(value)[-1:])
        if unit is None or not (number.isascii() and number.isdigit()) or len(number) > len("52596000"):
            self.fail(f"{value!r} is no time; write 90d, 12h, 30m or 2w", param, ctx)
        lifetime = int(number) * unit
        if not timedelta() < lifetime <= _LONGEST:
            self.fail(f"{value!r} is not between a minute and a hundred years", param, ctx)
        return lifetime


@click.group()
def token() -> None:
    """Makes, lists and revokes the tokens that callers show over TCP."""


def _files(settings: ResolvedSettings) -> TokenFiles:
    return TokenFiles.in_state_dir(settings.state_dir, settings.service.token_file)


@token.command()
@settings_options
@click.option(
    "--agent", "agents", multiple=True, help="Agent that it may use; several times for several. Default: all."
)
@click.option("--name", default="", help="What it is for, to tell it from others.")
@click.option("--expires", type=_Lifetime(), help="Time after which it is refused, for example 90d. Default: never.")
@json_option
def new(agents: tuple[str, ...], name: str, expires: timedelta | None, as_json: bool, **where: Path | None) -> None:
    """Makes a token and prints it, this once: memoryd keeps its hash alone."""
    if len(name) > _MOST_NAME_CHARS or not (name.isprintable() or not name):
        raise click.UsageError(f"--name must be at most {_MOST_NAME_CHARS} printable characters")
    if not all(agent.strip() for agent in agents):
        raise click.UsageError("--agent must name an agent")
    with reported():
        settings = _settings(where)
        # A misspelt agent would make a token that opens nothing.
        ids = [settings.agent(agent).agent_id for agent in agents]
        now = datetime.now(UTC)
        store = TokenStore(_files(settings).store)
        record, made = store.add(name, ids or None, now, None if expires is None else now + expires)
    if as_json:
        print_json({**_as_json(record, now), "token": made})
        return
    click.echo(made)
    click.echo(f"Token {record.token_id}, for {_agents(record)}, {_validity(record, now)}. Not shown again.", err=True)


@token.command(name="list")
@settings_options
@json_option
def list_tokens(as_json: bool, **where: Path | None) -> None:
    """Lists the tokens, without what they are."""
    with reported():
        files, now = _files(_settings(where)), datetime.now(UTC)
        records, plain = TokenStore(files.store).read(), _plain_count(files.plain)
    if as_json:
        found: list[dict[str, object]] = [_as_json(record, now) for record in records]
        # Those of the plain file have no id; they go when their line goes.
        found += [{"id": None, "file": str(files.plain), "agents": None} for _ in range(plain)]
        print_json(found)
        return
    for line in _lines(records, plain, files.plain, now):
        click.echo(line)


@token.command()
@settings_options
@click.argument("token_id", metavar="ID")
def revoke(token_id: str, **where: Path | None) -> None:
    """Revokes a token: calls with it are refused from now on, and its streams end within seconds."""
    with reported():
        files = _files(_settings(where))
        revoked = TokenStore(files.store).revoke(token_id)
    if not revoked:
        click.echo(f"memoryd: there is no token {token_id!r}; `memoryd token list` names those that are", err=True)
        sys.exit(NOT_FOUND)
    click.echo(f"Revoked: {token_id}")


def _settings(where: Mapping[str, Path | None]) -> ResolvedSettings:
    return CommonOptions(where["config"], where["state_dir"], where["workspace"], None, where["token_file"]).settings()


def _plain_count(path: Path) -> int:
    try:
        return len(read_tokens(path))
    except FileNotFoundError:
        return 0


def _as_json(record: TokenRecord, now: datetime) -> dict[str, object]:
    return {
        "id": record.token_id,
        "name": record.name,
        "agents": record.agents,
        "created": record.created.isoformat(),
        "expires": record.expires and record.expires.isoformat(),
        "expired": record.expired(now),
    }


def _lines(records: tuple[TokenRecord, ...], plain: int, path: Path, now: datetime) -> Iterator[str]:
    for record in records:
        name = f"  {record.name}" if record.name else ""
        yield f"{record.token_id}  {record.created:%Y-%m-%d}  {_validity(record, now)}  {_agents(record)}{name}"
    if plain:
        yield f"{plain} in {path}, for every agent, without end; remove the line to revoke one"
    if not records and not plain:
        yield "No tokens. The daemon makes the first one when it listens on TCP."


def _agents(record: TokenRecord) -> str:
    return "every agent" if record.agents is None else ", ".join(record.agents)


def _validity(record: TokenRecord, now: datetime) -> str:
    if record.expires is None:
        return "without end"
    return f"{'expired' if record.expired(now) else 'until'} {record.expires:%Y-%m-%d %H:%M} UTC"
