"""`memoryd`: the daemon's own keys.

`memoryd`: everything that is ours and not the reference's.

Checks the name of a time zone.
"""

import re
import zoneinfo
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from memoryd_server.settings.rules import FloatRange, IntRange, SettingsBlock, did_you_mean

OptionalPath = Annotated[Path | None, Field(strict=False)]

_TCP = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s:\[\]/]+):([0-9]{1,5})", re.ASCII)
_LAST_PORT = 65535


class TlsSettings(SettingsBlock):
    """TLS of every TCP listener, once the first two are set. The files are read again when they change."""

    cert_file: OptionalPath = None
    """The server's certificate chain, PEM. Path; default unset."""
    key_file: OptionalPath = None
    """The certificate's key, PEM, for its owner alone to read. Path; default unset."""
    client_ca_file: OptionalPath = None
    """Who signs the certificates that clients must then show besides their token, PEM. Path; default unset."""

    @model_validator(mode="after")
    def _certificate_and_key_together(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("certFile and keyFile are needed together")
        if self.client_ca_file is not None and self.cert_file is None:
            raise ValueError("clientCaFile needs certFile and keyFile")
        return self


class LimitsSettings(SettingsBlock):
    """What one daemon takes on."""

    max_concurrent_calls: Annotated[int, IntRange(1, 65_536)] = 256
    """Calls under way at once, streams aside; more are refused. Calls, 1..65536; default 256."""
    max_concurrent_streams: Annotated[int, IntRange(1, 65_536)] = 2_048
    """Streams under way at once: `Sync`, `WatchIndex` and reflection. Streams, 1..65536; default 2048."""
    token_concurrent_calls: Annotated[int, IntRange(1, 65_536)] = 64
    """Calls that one token may have under way at once. Calls, 1..65536; default 64."""
    token_concurrent_streams: Annotated[int, IntRange(1, 65_536)] = 512
    """Streams that one token may have under way at once, watches on the health among them. Streams, 1..65536; default
    512."""
    token_calls_per_second: Annotated[float, FloatRange(0, 100_000)] = 500.0
    """Calls and streams that one token may begin in a second, and twice as many after a pause; 0 means any number.
    Calls a second, 0..100000; default 500."""
    max_connections: Annotated[int, IntRange(1, 65_536)] = 1_024
    """Connections open at once on each listener; further ones are closed as they come. Connections, 1..65536; default
    1024."""
    max_file_bytes: Annotated[int, IntRange(1, 2**31 - 1)] = 32 * 2**20
    """The largest file that is indexed or read. Bytes, 1..2147483647; default 33554432."""
    shutdown_grace_seconds: Annotated[float, FloatRange(0, 600)] = 10.0
    """Time that running calls have to finish when the daemon stops. Seconds, 0..600; default 10."""
    default_deadline_seconds: Annotated[float, FloatRange(0.1, 3600)] = 30.0
    """Time that a call has when the caller sets no deadline. Seconds, 0.1..3600; default 30."""


class LogSettings(SettingsBlock):
    """The daemon's log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important event that is written. debug, info, warning, error; default "info"."""
    format: Literal["json", "console"] = "json"
    """One JSON object a line, or lines for people. json, console; default "json"."""

    @field_validator("level", mode="before")
    @classmethod
    def _in_any_case(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level


class WatcherSettings(SettingsBlock):
    """How changes of files are noticed."""

    mode: Literal["auto", "polling", "off"] = "auto"
    """The system's events where there are any, regular looks, or neither. auto, polling, off; default "auto"."""
    poll_seconds: Annotated[float, FloatRange(0.1, 3600)] = 2.0
    """Time between two looks when polling. Seconds, 0.1..3600; default 2."""


class LocalModelSettings(SettingsBlock):
    """The model that runs on this machine, shared by all agents that use it."""

    threads: Annotated[int, IntRange(0, 256)] = 0
    """Threads of the model; 0 means half the processors. Threads, 0..256; default 0."""
    idle_seconds: Annotated[float, FloatRange(1, 86_400)] = 600.0
    """Time without use after which the model is unloaded. Seconds, 1..86400; default 600."""


class EmbeddingSettings(SettingsBlock):
    """How memoryd treats providers of embeddings."""

    requests_per_minute: Annotated[int, IntRange(0, 100_000)] = 0
    """Requests that one remote provider gets in a minute, evenly spread; questions go first. 0 means any number.
    Requests, 0..100000; default 0."""


class MetricsSettings(SettingsBlock):
    """Figures for Prometheus, over plain HTTP and without a token."""

    listen: str | None = None
    """Where they are fetched, at `/metrics`. `HOST:PORT` or `[::1]:PORT`; default unset."""
    beyond_loopback: bool = False
    """Whether that may be an address that other machines reach: they then read agents' ids and how these are used.
    true or false; default false."""

    @field_validator("listen")
    @classmethod
    def _address(cls, listen: str | None) -> str | None:
        if listen and (listen.startswith("unix:") or not _is_address(listen)):
            raise ValueError(f"{listen!r} is neither HOST:PORT nor [::1]:PORT")
        return listen or None


class EntriesSettings(SettingsBlock):
    """Short entries beside the Markdown; what they are made with stands in `plugins.entries.memory-lancedb.config`."""

    enabled: bool = False
    """Whether entries are kept, also where `plugins.slots.memory` is not `memory-lancedb`. true or false; default
    false."""


class ServiceSettings(SettingsBlock):
    """The daemon itself. In this block alone stand memoryd's own keys."""

    listen: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Where clients connect. `unix:PATH`, `HOST:PORT` or `[::1]:PORT`; default ["unix:<runtime dir>/memoryd.sock"]."""
    token_file: OptionalPath = None
    """Tokens that open every agent over TCP, one a line, for their owner alone to read; unset, one is made in
    `memoryd.token` of the state directory where there is no other. Path; default unset."""
    tls: TlsSettings = TlsSettings()
    """TLS."""
    limits: LimitsSettings = LimitsSettings()
    """Limits."""
    log: LogSettings = LogSettings()
    """Log."""
    reconcile_seconds: Annotated[float, FloatRange(1, 3600)] = 45.0
    """Time between two comparisons of all files with the index, watcher or not; with the default, whatever breaks, a
    new file is found within a minute. Seconds, 1..3600; default 45."""
    watcher: WatcherSettings = WatcherSettings()
    """Watcher."""
    decay_floor: Annotated[float, FloatRange(0, 1)] = 0.5
    """The least share of its score that temporal decay leaves a hit; 0 is the reference's behaviour. Share, 0..1;
    default 0.5."""
    abstain_below: Annotated[float, FloatRange(0, 1)] = 0.0
    """Coverage of the question below which a search returns nothing and says so; 0 means never. Share, 0..1;
    default 0."""
    confirm_above_tokens: Annotated[int, IntRange(0)] = 2_000_000
    """Tokens to embed with a remote provider above which a sync waits for `Sync(FULL)`; 0 means never. Tokens, at least
    0; default 2000000."""
    batch_min_chunks: Annotated[int, IntRange(1)] = 2_000
    """Chunks without a vector from which on a sync makes batch jobs of them, where `remote.batch.enabled` allows it;
    fewer are sent directly. Chunks, at least 1; default 2000."""
    vector_memory_bytes: Annotated[int, IntRange(0)] = 512 * 2**20
    """Memory for the vectors of each agent in use; beyond it they are read from disk, and an idle agent keeps none.
    Bytes, at least 0; default 536870912."""
    idle_seconds: Annotated[float, FloatRange(1, 86_400)] = 600.0
    """Time without a search after which an agent gives back vectors, pages and connections. Seconds, 1..86400; default
    600."""
    embedding: EmbeddingSettings = EmbeddingSettings()
    """Embeddings."""
    qmd_fallback: Literal["builtin", "none"] = "builtin"
    """Who answers when `memory.backend` is qmd and qmd cannot; with none nobody does, and no second index is kept.
    builtin, none; default "builtin"."""
    metrics: MetricsSettings = MetricsSettings()
    """Metrics."""
    entries: EntriesSettings = EntriesSettings()
    """Entries."""
    local: LocalModelSettings = LocalModelSettings()
    """The local model."""
    files_per_transaction: Annotated[int, IntRange(1, 10_000)] = 100
    """Whole files that one transaction of a sync writes. Files, 1..10000; default 100."""

    @field_validator("listen")
    @classmethod
    def _addresses(cls, listen: tuple[str, ...]) -> tuple[str, ...]:
        for address in listen:
            if not _is_address(address):
                raise ValueError(f"{address!r} is neither unix:PATH nor HOST:PORT nor [::1]:PORT")
        return listen


def _is_address(address: str) -> bool:
    if address.startswith("unix:"):
        return len(address) > len("unix:")
    found = _TCP.fullmatch(address)
    return found is not None and int(found[1]) <= _LAST_PORT


def complaint_about_timezone(name: str) -> str | None:
    """What is wrong with `name` as a time zone, with the nearest right one, or None when nothing is."""
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return f"no such time zone{did_you_mean(name, zoneinfo.available_timezones())}"
    return None
