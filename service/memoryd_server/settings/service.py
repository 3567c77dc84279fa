"""The `memoryd` block: the settings of the daemon, which OpenClaw does not have; and the check of a time zone."""

import re
import zoneinfo
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from memoryd_server.settings.rules import FloatRange, IntRange, SettingsBlock, did_you_mean
from memoryd_server.settings.secret_input import SecretInput, SecretValue

OptionalPath = Annotated[Path | None, Field(strict=False)]

_TCP = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s:\[\]/]+):([0-9]{1,5})", re.ASCII)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_LAST_PORT = 65535


class TlsSettings(SettingsBlock):
    """TLS of every TCP listener, enabled by `certFile` and `keyFile`. The files are read again when they change."""

    cert_file: OptionalPath = None
    """The server's certificate chain, PEM. Path; default unset."""
    key_file: OptionalPath = None
    """The private key of the certificate, PEM. Only its owner may have access to the file. Path; default unset."""
    client_ca_file: OptionalPath = None
    """The CA certificates, PEM, for client certificates. If set, each client must present a certificate that one of
    them signed, in addition to its token. Path; default unset."""

    @model_validator(mode="after")
    def _certificate_and_key_together(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("certFile and keyFile must be set together")
        if self.client_ca_file is not None and self.cert_file is None:
            raise ValueError("clientCaFile requires certFile and keyFile")
        return self


class LimitsSettings(SettingsBlock):
    """The limits of one daemon."""

    max_concurrent_calls: Annotated[int, IntRange(1, 65_536)] = 256
    """The maximum number of concurrent unary calls; further calls are refused. Calls, 1..65536; default 256."""
    max_concurrent_streams: Annotated[int, IntRange(1, 65_536)] = 2_048
    """The maximum number of concurrent streams: `Sync`, `WatchIndex` and reflection. Streams, 1..65536; default 2048.
    """
    token_concurrent_calls: Annotated[int, IntRange(1, 65_536)] = 64
    """The maximum number of concurrent unary calls with one token. Calls, 1..65536; default 64."""
    token_concurrent_streams: Annotated[int, IntRange(1, 65_536)] = 512
    """The maximum number of concurrent streams with one token, health watches included. Streams, 1..65536; default 512.
    """
    token_calls_per_second: Annotated[float, FloatRange(0, 100_000)] = 500.0
    """The maximum number of calls and streams that one token may start per second. After a pause, it may start twice as
    many at a time. 0 means no limit. Calls a second, 0..100000; default 500."""
    max_unread_reply_bytes: Annotated[int, IntRange(1, 2**31 - 1)] = 64 * 2**20
    """The maximum total size of the replies that clients have not read yet; further calls are refused. Bytes,
    1..2147483647; default 67108864."""
    token_unread_reply_bytes: Annotated[int, IntRange(1, 2**31 - 1)] = 16 * 2**20
    """The maximum size of the replies that the clients of one token have not read yet; further calls with the token are
    refused. Bytes, 1..2147483647; default 16777216."""
    reply_seconds: Annotated[float, FloatRange(0.1, 3600)] = 60.0
    """The time that a client has to read the reply to a unary call; then the call is cancelled. Seconds, 0.1..3600;
    default 60."""
    stream_reply_seconds: Annotated[float, FloatRange(0.1, 86_400)] = 300.0
    """The time that a client has to read one message of a stream; then the stream is cancelled. Seconds, 0.1..86400;
    default 300."""
    max_connections: Annotated[int, IntRange(1, 65_536)] = 1_024
    """The maximum number of open connections of each listener; further connections are closed immediately. Connections,
    1..65536; default 1024."""
    max_file_bytes: Annotated[int, IntRange(1, 2**31 - 1)] = 32 * 2**20
    """The size of the largest file that is indexed or read. Bytes, 1..2147483647; default 33554432."""
    shutdown_grace_seconds: Annotated[float, FloatRange(0, 600)] = 10.0
    """The time that running calls have to finish when the daemon stops. Seconds, 0..600; default 10."""
    default_deadline_seconds: Annotated[float, FloatRange(0.1, 3600)] = 30.0
    """The deadline of a call for which the caller sets none. Seconds, 0.1..3600; default 30."""


class LogSettings(SettingsBlock):
    """The daemon's log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of the events that are logged. debug, info, warning, error; default "info"."""
    format: Literal["json", "console"] = "json"
    """The format of the log: one JSON object per line, or text for people. json, console; default "json"."""

    @field_validator("level", mode="before")
    @classmethod
    def _in_any_case(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level


class WatcherSettings(SettingsBlock):
    """How changes of files are detected."""

    mode: Literal["auto", "polling", "off"] = "auto"
    """`auto` uses the events of the operating system if it has them, and polling otherwise; `polling` scans the files
    at intervals; `off` does neither. auto, polling, off; default "auto"."""
    poll_seconds: Annotated[float, FloatRange(0.1, 3600)] = 2.0
    """The time between two scans when polling. Seconds, 0.1..3600; default 2."""


class LocalModelSettings(SettingsBlock):
    """The models that run on this machine, for embeddings and for reranking. Agents share them."""

    threads: Annotated[int, IntRange(0, 256)] = 0
    """The number of threads of each model; 0 means half the processors. Threads, 0..256; default 0."""
    idle_seconds: Annotated[float, FloatRange(1, 86_400)] = 600.0
    """The time without use after which a model is unloaded. Seconds, 1..86400; default 600."""


class EmbeddingSettings(SettingsBlock):
    """How memoryd uses embedding providers."""

    requests_per_minute: Annotated[int, IntRange(0, 100_000)] = 0
    """The maximum number of requests per minute to one remote provider, evenly spread; queries are sent first. 0 means
    no limit. Requests, 0..100000; default 0."""
    identity_headers: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The headers whose values select what computes the vectors, such as a deployment or a region: another value is
    treated as another model. The index stores a hash of the value. Names of headers; default []."""


class RerankSettings(SettingsBlock):
    """Reranking: a model reads the query and each of the best candidates, and its scores change their order.

    A reranker over HTTP receives the query and the text of the candidates of each search; see
    [reranking](reranking.md). `${NAME}` in `baseUrl`, `apiKey` and `headers` is replaced by the environment variable.
    """

    provider: Literal["none", "http", "local"] = "none"
    """What scores the candidates: `none` disables reranking, `http` is a server with the rerank API of Jina, Cohere,
    Voyage, vLLM or llama-server, `local` a model on this machine. none, http, local; default "none"."""
    # An address may hold a password.
    base_url: Annotated[str | None, Field(repr=False)] = None
    """The base URL of the server for `http`, with or without the path `/rerank`. URL; default unset."""
    model: str | None = None
    """The model that the server for `http` uses; if it is unset, none is sent. Name; default unset."""
    api_key: Annotated[SecretValue | None, SecretInput()] = None
    """The API key for `http`, or a [SecretRef](#secretrefs). No other key is used in its place. Secret; default unset.
    """
    headers: dict[str, Annotated[SecretValue, SecretInput()]] | None = None
    """Headers of each request for `http`, each a text or a [SecretRef](#secretrefs). Secrets; default unset."""
    model_path: str | None = None
    """The model for `local`: a GGUF file with rank pooling, or `hf:organization/repository/file.gguf`, which is
    downloaded. Path or hf address; default unset."""
    candidates: Annotated[int, IntRange(1, 100)] = 30
    """The maximum number of candidates that the model scores in a search. A local model scores fewer if it is too slow
    for `timeoutMs`. Candidates, 1..100; default 30."""
    timeout_ms: Annotated[int, IntRange(10, 60_000)] = 300
    """The time that a search waits for the scores. Then it answers in the order without them, and says so.
    Milliseconds, 10..60000; default 300."""
    weight: Annotated[float, FloatRange(0, 1)] = 0.7
    """The share of the model's score in the order of the scored candidates; the rest is the share of the search's own
    score. Share, 0..1; default 0.7."""


class RecallSettings(SettingsBlock):
    """`MemoryRecall`: the memories that a gateway inserts before each turn; see [recall](recall.md)."""

    max_tokens: Annotated[int, IntRange(1, 100_000)] = 1_500
    """The maximum length of a block if the request sets none. An ASCII character counts as a quarter of a token, any
    other code point as one. Tokens, 1..100000; default 1500."""
    min_confidence: Annotated[float, FloatRange(0, 1)] = 0.4
    """The confidence below which nothing is returned, if keyword search and vector search answered together;
    `min_confidence` of a request takes precedence. Share, 0..1; default 0.4."""
    min_keyword_confidence: Annotated[float, FloatRange(0, 1)] = 0.1
    """The same if keyword search alone answered, whose confidence has another scale. Share, 0..1; default 0.1."""
    include_untrusted: bool = False
    """Whether text of other people and programs is returned too: files of extra paths, messages that the gateway does
    not mark as the owner's, and texts generated by the gateway. true or false; default false."""
    embedding_timeout_ms: Annotated[int, IntRange(1, 60_000)] = 150
    """The time that a recall waits for the vector of its query. Then keyword search answers alone, and the response
    says so. Milliseconds, 1..60000; default 150."""


class MetricsSettings(SettingsBlock):
    """Metrics for Prometheus, served over plain HTTP and without a token."""

    listen: str | None = None
    """The address at which `/metrics` is served. `HOST:PORT` or `[::1]:PORT`; default unset."""
    beyond_loopback: bool = False
    """Whether `listen` may be an address that other machines can reach. They can then read the ids of the agents and
    how much these are used. true or false; default false."""

    @field_validator("listen")
    @classmethod
    def _address(cls, listen: str | None) -> str | None:
        return _checked_tcp(listen)


class HttpSettings(SettingsBlock):
    """HTTP: MCP at `/mcp`, the inspector at `/`, and `/healthz`, `/readyz` and `/metrics`; needs the extra `http`.

    All routes but the two health checks and the files of the inspector's page require a [token](operations.md#tokens),
    also on loopback.
    """

    listen: str | None = None
    """The address at which HTTP is served; beyond loopback only with `memoryd.tls`. `HOST:PORT` or `[::1]:PORT`;
    default unset."""
    allowed_hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The values of the header `Host` that are accepted in addition to `localhost`, `127.0.0.1`, `[::1]` and the host
    of `listen`. Each is `HOST`, which allows every port, or `HOST:PORT`; default []."""
    allowed_origins: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The origins of web pages that may send requests and read the responses, except those of the inspector. Requests
    of pages from `localhost`, `127.0.0.1`, `[::1]`, the host of `listen` and the value of the request's own header
    `Host` are accepted, too, but only a page of the same origin can read the responses. `http://HOST`, `https://HOST`
    or either with `:PORT`; default []."""
    max_sessions: Annotated[int, IntRange(1, 65_536)] = 256
    """The maximum number of open MCP sessions over HTTP, half of them for one token; further sessions are
    refused. Sessions, 1..65536; default 256."""
    session_idle_seconds: Annotated[float, FloatRange(1, 86_400)] = 1_800.0
    """The time without a request after which an MCP session ends. Seconds, 1..86400; default 1800."""
    max_body_bytes: Annotated[int, IntRange(1_024, 64 * 2**20)] = 4 * 2**20
    """The maximum size of the body of a request. Bytes, 1024..67108864; default 4194304."""
    inspector: bool = True
    """Whether the [inspector](operations.md#inspector), a read-only web page, is served at `/`. true or false;
    default true."""

    @field_validator("listen")
    @classmethod
    def _address(cls, listen: str | None) -> str | None:
        return _checked_tcp(listen)

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} is neither HOST nor HOST:PORT")
        return hosts

    @field_validator("allowed_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            scheme, _, host = origin.partition("://")
            if scheme not in {"http", "https"} or not _HOST.fullmatch(host):
                raise ValueError(f"{origin!r} is no origin such as https://example.org or http://example.org:8080")
        return origins


class McpSettings(SettingsBlock):
    """MCP over standard input and output: the daemon that [`memoryd mcp`](mcp.md) starts if none is running."""

    idle_seconds: Annotated[float, FloatRange(0, 86_400)] = 600.0
    """The time without a session, a call or a sync after which a daemon that `memoryd mcp` started exits; 0 means that
    it does not exit. Other daemons never do. Seconds, 0..86400; default 600."""


class HistorySettings(SettingsBlock):
    """The history of edits of each agent: the contents that edits replaced or deleted; see [editing](editing.md).

    A change applies to contents that are already stored.
    """

    days: Annotated[float, FloatRange(0.01, 36_500)] = 30.0
    """The time that a replaced content is kept. Days, 0.01..36500; default 30."""
    max_bytes: Annotated[int, IntRange(0)] = 256 * 2**20
    """The maximum size of the compressed contents of one agent. If they are larger, the oldest are deleted first; those
    of the newest write are always kept. Bytes, at least 0; default 268435456."""


class DatabaseSettings(SettingsBlock):
    """A PostgreSQL database with pgvector; needs the extra `postgres`. See [PostgreSQL](postgresql.md).

    It holds the indexes, the embedding caches and the histories of edits of all agents, in place of SQLite files, and
    unless `documents` is "folder", the memory files and transcripts.
    """

    url: SecretStr | None = None
    """The database. The URL may name several hosts, and parameters of libpq such as `sslmode=verify-full`. If it is
    unset, files are used. The role must not be exempt from row-level security. `postgresql://USER@HOST/DATABASE`;
    default unset."""
    standby_url: SecretStr | None = None
    """A standby of this database, which may answer calls that set `max_staleness`. The URL may name several hosts.
    `passwordFile` also applies to it. It is used only if `url` is set. `postgresql://USER@HOST/DATABASE`; default
    unset."""
    password_file: OptionalPath = None
    """A file that contains only the password, and that only its owner can open. It is read again for each connection.
    Path; default unset."""
    documents: Literal["database", "folder"] = "database"
    """Where memory files and transcripts are if `url` is set. With "database", clients write memory files with
    `MemoryAppend` and `MemoryWrite`, and transcripts with `SessionAppend`; workspaces, extra paths and OpenClaw's
    sessions are not read. With "folder", memory files are in workspaces, and OpenClaw's sessions are read.
    database, folder; default "database"."""
    max_connections: Annotated[int, IntRange(2, 1_000)] = 10
    """The maximum number of connections for searches and writes. A few more renew the daemon's leases, listen for
    changes, run VACUUM, and create HNSW indexes. It applies separately to the standby. Connections, 2..1000; default
    10."""
    approximate_above: Annotated[int, IntRange(0, 100_000_000)] = 10_000
    """The number of chunks above which an agent's vectors get an HNSW index. Searches with it are faster, and may miss
    some of the nearest chunks. Without it, a search compares all vectors. 0 disables these indexes. Chunks,
    0..100000000; default 10000."""

    @property
    def has_documents(self) -> bool:
        """Whether the memory files are in the database, so that no workspace is read."""
        return self.url is not None and self.documents == "database"

    @field_validator("url", "standby_url")
    @classmethod
    def _address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is None or not url.get_secret_value().strip():
            return None
        if not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("the value is not a URL such as postgresql://USER@HOST/DATABASE")
        return url


class EntriesSettings(SettingsBlock):
    """Entries: short texts that are stored separately from the Markdown files.

    `plugins.entries.memory-lancedb.config` configures them.
    """

    enabled: bool = False
    """Whether entries are enabled even if `plugins.slots.memory` is not `memory-lancedb`. true or false; default false.
    """


class SecretsSettings(SettingsBlock):
    """How memoryd reads the secrets that OpenClaw's settings refer to."""

    exec: bool = False
    """Whether memoryd runs the commands of the sources of the kind `exec` in `secrets.providers`. Counts only in
    memoryd's own settings file, so that OpenClaw's file alone starts no program. true or false; default false."""


class ServiceSettings(SettingsBlock):
    """The daemon itself. Only this block has keys that OpenClaw does not have."""

    listen: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The addresses at which the daemon accepts clients. `unix:PATH`, `HOST:PORT` or `[::1]:PORT`; default
    ["unix:<runtime dir>/memoryd.sock"]."""
    token_file: OptionalPath = None
    """A file of tokens that give access to every agent over TCP, one per line. Only its owner may have access to the
    file. If it is unset and no other token exists, the daemon creates one in `memoryd.token` of the state directory.
    Path; default unset."""
    tls: TlsSettings = TlsSettings()
    """TLS."""
    limits: LimitsSettings = LimitsSettings()
    """Limits."""
    log: LogSettings = LogSettings()
    """Log."""
    reconcile_seconds: Annotated[float, FloatRange(1, 3600)] = 45.0
    """The time between two comparisons of all files with the index, which happen with or without a watcher. With the
    default, a new file is found within a minute even if its events are lost. Seconds, 1..3600; default 45."""
    watcher: WatcherSettings = WatcherSettings()
    """Watcher."""
    decay_floor: Annotated[float, FloatRange(0, 1)] = 0.5
    """The smallest share of its score that temporal decay leaves a hit; 0 is OpenClaw's behaviour. Share, 0..1; default
    0.5."""
    abstain_below: Annotated[float, FloatRange(0, 1)] = 0.0
    """The minimum confidence of a keyword search: mostly the share of the query that the best hit covers. Below it, the
    search returns no hits and says so; 0 disables this. `abstain_below` of a request takes precedence. Share, 0..1;
    default 0."""
    confirm_above_tokens: Annotated[int, IntRange(0)] = 2_000_000
    """A sync that would send more tokens than this to another machine waits for approval by `Sync(FULL)`; 0 disables
    the limit. A local model and a server on loopback need no approval, except for a model of Ollama whose name ends in
    `:cloud` or `-cloud`. Tokens, at least 0; default 2000000."""
    batch_min_chunks: Annotated[int, IntRange(1)] = 2_000
    """If `remote.batch.enabled` allows it, a sync with at least this many chunks without a vector embeds them by batch
    jobs; fewer are sent directly. Chunks, at least 1; default 2000."""
    vector_memory_bytes: Annotated[int, IntRange(0)] = 512 * 2**20
    """The memory for the vectors of each agent in use. Vectors that do not fit are read from disk, and an idle agent
    keeps none in memory. Bytes, at least 0; default 536870912."""
    idle_seconds: Annotated[float, FloatRange(1, 86_400)] = 600.0
    """The time without a search after which an agent releases vectors, pages and connections. Seconds, 1..86400;
    default 600."""
    embedding: EmbeddingSettings = EmbeddingSettings()
    """Embeddings."""
    rerank: RerankSettings = RerankSettings()
    """Reranking."""
    recall: RecallSettings = RecallSettings()
    """Recall before a turn."""
    qmd_fallback: Literal["builtin", "none"] = "builtin"
    """What answers searches when `memory.backend` is qmd and qmd fails. With `none`, the search fails, and memoryd
    keeps no index of its own. builtin, none; default "builtin"."""
    metrics: MetricsSettings = MetricsSettings()
    """Metrics."""
    http: HttpSettings = HttpSettings()
    """HTTP."""
    mcp: McpSettings = McpSettings()
    """MCP."""
    writes: Literal["append", "edit"] = "append"
    """Whether clients can only append to memory files, or also edit, move, delete and restore them with `MemoryWrite`,
    `MemoryMove` and `MemoryRestore`, which keep what they replace. A client on TCP also needs a token with the
    [scope](operations.md#scopes) `edit`. append, edit; default "append"."""
    history: HistorySettings = HistorySettings()
    """The history of edits."""
    store: DatabaseSettings = DatabaseSettings()
    """The database."""
    entries: EntriesSettings = EntriesSettings()
    """Entries."""
    secrets: SecretsSettings = SecretsSettings()
    """Secrets."""
    local: LocalModelSettings = LocalModelSettings()
    """The local model."""
    readers: Annotated[int, IntRange(0, 64)] = 0
    """The number of [reader processes](operations.md#reader-processes), which search the indexes for the daemon, so
    that concurrent searches use several cores. 0 means that the daemon runs all searches itself. Each process takes
    about 100 MiB for 15,000 chunks. Must be 0 if `store.url` is set. Processes, 0..64; default 0."""
    files_per_transaction: Annotated[int, IntRange(1, 10_000)] = 100
    """The number of whole files that a sync writes in one transaction. Files, 1..10000; default 100."""

    @field_validator("listen")
    @classmethod
    def _addresses(cls, listen: tuple[str, ...]) -> tuple[str, ...]:
        for address in listen:
            if not _is_address(address):
                raise ValueError(f"{address!r} is neither unix:PATH nor HOST:PORT nor [::1]:PORT")
        return listen

    @model_validator(mode="after")
    def _readers_search_files(self) -> Self:
        if self.readers and self.store.url is not None:
            raise ValueError("readers must be 0 if store.url is set, because reader processes search only SQLite files")
        return self


def _checked_tcp(listen: str | None) -> str | None:
    if listen and (listen.startswith("unix:") or not _is_address(listen)):
        raise ValueError(f"{listen!r} is neither HOST:PORT nor [::1]:PORT")
    return listen or None


def _is_address(address: str) -> bool:
    if address.startswith("unix:"):
        return len(address) > len("unix:")
    found = _TCP.fullmatch(address)
    return found is not None and int(found[1]) <= _LAST_PORT


def check_timezone(name: str) -> str | None:
    """Return what is wrong with `name` as a time zone, with the closest valid name; None if it is valid."""
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return f"unknown time zone{did_you_mean(name, zoneinfo.available_timezones())}"
    return None
