"""A client for one command: of the daemon that runs, or of one that lives in this process as long as the command."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from memoryd.client import MemorydClient, MemorydError, connect
from memoryd_server.cli.endpoint import endpoint_of
from memoryd_server.cli.options import Common
from memoryd_server.settings import ResolvedSettings
from memoryd_server.tokens import read_tokens

# How long a daemon may take to say that it is there.
_GREETING_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Session:
    """A client, and whether the daemon behind it is another process."""

    client: MemorydClient
    remote: bool


@contextmanager
def session(common: Common, *, background: bool = False) -> Iterator[Session]:
    """The daemon that was named; else the one that runs for this state directory; else one in this process.

    `background` lets the one in this process watch files and sync by itself.

    Raises:
        SettingsError: the settings cannot be used.
        memoryd.client.MemorydError: the daemon that was named does not answer.
    """
    named = common.daemon_address()
    if named is not None:
        with connect(named, _token(common.token_file)) as client:
            yield Session(client, remote=True)
        return
    settings = common.settings()
    found = _running(settings)
    if found is not None:
        with found:
            yield Session(found, remote=True)
        return
    with _in_process(settings, background=background) as client:
        yield Session(client, remote=False)


def _token(file: Path | None) -> str | None:
    return next(iter(read_tokens(file)), None)


def _running(settings: ResolvedSettings) -> MemorydClient | None:
    """A client of the daemon that runs with these settings, if one answers."""
    candidates = dict.fromkeys([*endpoint_of(settings.state_dir), *settings.service.listen])
    for address in candidates:
        if address.startswith("unix:") and not Path(address.removeprefix("unix:")).exists():
            continue
        client = connect(address, _token(settings.service.token_file))
        try:
            client.list_agents(page_size=1, timeout=_GREETING_SECONDS)
        except MemorydError:
            client.close()
        else:
            return client
    return None


@contextmanager
def _in_process(settings: ResolvedSettings, *, background: bool) -> Iterator[MemorydClient]:
    with tempfile.TemporaryDirectory(prefix="memoryd-") as directory:
        address = f"unix:{directory}/s"
        service = settings.service.model_copy(update={"listen": (address,)})
        # Imported here: a command that finds a daemon needs none of its modules, and starts in half the time.
        from memoryd_server.cli.local import LocalDaemon  # noqa: PLC0415

        local = LocalDaemon(replace(settings, service=service), background=background)
        local.start()
        try:
            with connect(address) as client:
                yield client
        finally:
            local.stop()
