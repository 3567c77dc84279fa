"""The settings into the configurations of the other packages: agents, limits, tokens and certificates.

Only `app` sees both the settings and these configurations.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from zoneinfo import ZoneInfo

from memoryd_server.access import (
    Address,
    CallLimits,
    CertificateFiles,
    Certificates,
    TokenFiles,
    TokenVerifier,
    parse_address,
    refuse_exposed,
)
from memoryd_server.agent import AgentConfig, RecallConfig, RerankPolicy, SyncConfig
from memoryd_server.app.metrics import metrics_address
from memoryd_server.app.plugins import keeps_builtin_index, needs_workspace, plugin_configs
from memoryd_server.app.session_places import session_places
from memoryd_server.app.shared_store import database_of
from memoryd_server.errors import SettingsError
from memoryd_server.model import Degradation, DegradationKind, Source
from memoryd_server.observe import Log
from memoryd_server.providers import (
    BatchPolicy,
    EmbeddingConfig,
    LocalConfig,
    RemoteConfig,
    RerankConfig,
    ThrottleConfig,
)
from memoryd_server.search import CitationMode, RankingConfig
from memoryd_server.sessions import FlushPolicy, StartupContext
from memoryd_server.settings import (
    AgentSettings,
    ExtraPathSettings,
    LimitsSettings,
    ProviderAccess,
    RecallSettings,
    ResolvedSettings,
    ServiceSettings,
    default_model,
    fill,
)
from memoryd_server.sources import ExtraPath, GrowthLimits, Roots

_NO_FOLDER = "/dev/null"
"""The workspace of agents whose documents are in a database: no file can be below it."""


def agent_configs(settings: ResolvedSettings) -> list[AgentConfig]:
    """Return the configuration of each agent. Blocks: the host's time zone is a file.

    Raises:
        SettingsError: documents are in a database, and its driver is not installed or the search backend needs files.
        IndexUnavailable: the URL of that database cannot be used.
    """
    in_database = settings.service.store.has_documents
    location = database_of(settings.service.store).location if in_database else ""
    configs: list[AgentConfig] = []
    for agent in settings.agents.values():
        config = replace(agent_config(agent, settings), documents_location=location)
        configs.append(_sharing(config, configs[-1]) if configs else config)
    return configs


_SHARED = ("flush", "startup", "sync", "ranking", "embedding", "recall", "batch", "plugins")


def _sharing(config: AgentConfig, before: AgentConfig) -> AgentConfig:
    """Return the configuration with the parts of another one that are equal: with many agents, most parts are."""
    same = {name: getattr(before, name) for name in _SHARED if getattr(config, name) == getattr(before, name)}
    return replace(config, **same)


def check_backends(settings: ResolvedSettings) -> None:
    """Check that no search backend needs files of a workspace that is not read.

    Raises:
        SettingsError: one does.
    """
    if settings.service.store.has_documents:
        for agent in settings.agents.values():
            if needs_workspace(agent):
                raise SettingsError(
                    f'memory.backend is "{agent.memory.backend}", which searches the files of a workspace, but the '
                    'memory files are in the database of memoryd.store.url; set memoryd.store.documents to "folder", '
                    'or memory.backend to "builtin"'
                )


def agent_config(agent: AgentSettings, settings: ResolvedSettings) -> AgentConfig:
    """Return the configuration of an agent. Blocks: the host's time zone is a file."""
    search = agent.memory_search
    zone = agent.user_timezone or host_time_zone()
    in_database = settings.service.store.has_documents
    extra_paths = tuple(map(_extra_path, search.extra_paths))
    roots = Roots(_NO_FOLDER) if in_database else Roots(str(agent.workspace), extra_paths)
    embedding = _embedding(agent, settings)
    sessions = session_places(
        settings.session_store, settings.state_dir, agent.agent_id, only_agent=len(settings.agents) == 1
    )
    return AgentConfig(
        agent_id=agent.agent_id,
        default=agent.default,
        enabled=agent.enabled,
        memory_enabled=agent.memory_enabled,
        disabled_reason=agent.disabled_reason,
        roots=roots,
        index_path=agent.index_path,
        ledger_path=settings.state_dir / "memory" / f"{agent.agent_id}.appends",
        sessions_folder=sessions.folder,
        session_database=sessions.database,
        sources=tuple(Source(source) for source in search.indexed_sources),
        searched_sources=_searched_sources(agent),
        read_chars=agent.memory_get_max_chars,
        edits_enabled=settings.service.writes == "edit",
        history_seconds=settings.service.history.days * 86_400,
        history_bytes=settings.service.history.max_bytes,
        cache_enabled=search.cache.enabled,
        cache_max_entries=search.cache.max_entries,
        chunk_tokens=search.chunking.tokens,
        chunk_overlap=search.chunking.overlap,
        max_results=search.query.max_results,
        min_score=search.query.min_score if "min_score" in search.query.model_fields_set else None,
        citations=CitationMode(agent.memory.citations),
        time_zone=zone,
        flush=_flush_policy(agent, zone),
        startup=fill(StartupContext, agent.startup_context),
        sync=_sync_config(agent, settings.service),
        store_driver=search.store.driver if settings.service.store.url is None else "postgres",
        documents_driver="postgres" if in_database else "folder",
        unread_workspace=str(agent.workspace) if in_database else "",
        configured_backend=agent.memory.backend,
        ranking=_ranking(agent, settings.service),
        # Without an index of its own, memoryd embeds nothing.
        embedding=embedding if keeps_builtin_index(agent, settings) else EmbeddingConfig("none"),
        confirm_above_tokens=settings.service.confirm_above_tokens,
        vector_enabled=search.store.vector.enabled,
        vector_extension_path=search.store.vector.extension_path,
        idle_seconds=settings.service.idle_seconds,
        vector_memory_bytes=settings.service.vector_memory_bytes,
        batch=_batch_policy(agent, settings.service),
        impairments=tuple(map(_skipped, extra_paths)) if in_database else (),
        recall=_recall_config(settings.service.recall),
        plugins=plugin_configs(agent, roots, settings, embedding),
    )


def _extra_path(extra: str | ExtraPathSettings) -> ExtraPath:
    path, pattern = (extra, "") if isinstance(extra, str) else (extra.path, extra.pattern)
    return ExtraPath(str(Path(path).expanduser()), pattern)


def _skipped(extra: ExtraPath) -> Degradation:
    reason = (
        f"the extra path {extra.path} is not read, because the memory files are in the database of memoryd.store.url; "
        'to read it, set memoryd.store.documents to "folder"'
    )
    return Degradation(DegradationKind.SOURCE_SKIPPED, extra.path, "", reason)


def verifier_and_certificates(
    settings: ResolvedSettings, listen: Sequence[Address], log: Log
) -> tuple[TokenVerifier, Certificates | None]:
    """Return the verifier of tokens and the TLS certificates for these addresses and for that of HTTP.

    Reads the files, and creates the first token if there is none.

    Raises:
        SettingsError: a file cannot be used, or an address is unsafe without TLS.
    """
    tls = settings.service.tls
    certificates = CertificateFiles.from_settings(tls.cert_file, tls.key_file, tls.client_ca_file)
    listen = (*listen, *filter(None, (http_address(settings),)))
    refuse_exposed(listen, tls=certificates is not None)
    keyring = TokenVerifier(
        TokenFiles.in_state_dir(settings.state_dir, settings.service.token_file), now=lambda: datetime.now(UTC), log=log
    )
    over_tcp = any(address.socket_path is None for address in listen)
    keyring.open(for_tcp=over_tcp)
    return keyring, Certificates(certificates, log) if over_tcp and certificates is not None else None


def check_listeners(settings: ResolvedSettings) -> None:
    """Check the listeners that take effect only after a restart, so that the restart does not fail because of them.

    Binds and writes nothing.

    Raises:
        SettingsError: an address is invalid, or unsafe without TLS.
    """
    tls = settings.service.tls
    certificates = CertificateFiles.from_settings(tls.cert_file, tls.key_file, tls.client_ca_file)
    listen = [parse_address(address) for address in settings.service.listen]
    http = http_address(settings)
    refuse_exposed(listen if http is None else [*listen, http], tls=certificates is not None)
    metrics_address(settings)
    if http is not None:
        require_http_extra()


def http_address(settings: ResolvedSettings) -> Address | None:
    """Return the address at which HTTP is served; None if it is disabled.

    Raises:
        SettingsError: the address is invalid.
    """
    listen = settings.service.http.listen
    return parse_address(listen) if listen else None


HTTP_EXTRA = ("mcp", "starlette", "uvicorn")


def require_http_extra(packages: Sequence[str] = HTTP_EXTRA) -> None:
    """Check that the packages of HTTP and MCP are installed, without importing them. Blocks.

    Raises:
        SettingsError: one of them is missing.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise SettingsError(
            f"memoryd.http.listen is set, but {', '.join(missing)} cannot be imported; install the extra: "
            "pip install 'memoryd[http]', or remove memoryd.http.listen"
        )


def _flush_policy(agent: AgentSettings, zone: str) -> FlushPolicy:
    return fill(FlushPolicy, agent.compaction.memory_flush, agent.compaction, time_zone=zone)


def _recall_config(recall: RecallSettings) -> RecallConfig:
    return fill(RecallConfig, recall, embedding_seconds=recall.embedding_timeout_ms / 1000)


def _sync_config(agent: AgentSettings, service: ServiceSettings) -> SyncConfig:
    sync, watcher = agent.memory_search.sync, service.watcher
    return fill(
        SyncConfig,
        sync,
        watcher,
        service,
        watch=sync.watch and watcher.mode != "off",
        poll=watcher.mode == "polling",
        debounce_seconds=sync.watch_debounce_ms / 1000,
        interval_seconds=sync.interval_minutes * 60,
        max_file_bytes=service.limits.max_file_bytes,
        growth=GrowthLimits(sync.sessions.delta_bytes, sync.sessions.delta_messages),
        compaction_forces=sync.sessions.post_compaction_force,
    )


def _ranking(agent: AgentSettings, service: ServiceSettings) -> RankingConfig:
    hybrid = agent.memory_search.query.hybrid
    return fill(
        RankingConfig,
        hybrid,
        hybrid.temporal_decay,
        service,
        hybrid=hybrid.enabled,
        mmr=hybrid.mmr.enabled,
        mmr_lambda=hybrid.mmr.lambda_,
        decay=hybrid.temporal_decay.enabled,
        merged_chars=4 * agent.memory_search.chunking.tokens,
        rerank_weight=service.rerank.weight,
    )


def _embedding(agent: AgentSettings, settings: ResolvedSettings) -> EmbeddingConfig:
    search, service = agent.memory_search, settings.service
    local = LocalConfig(
        model_path=search.local.model_path or "",
        cache_dir=search.local.model_cache_dir or str(settings.state_dir / "models"),
        idle_seconds=service.local.idle_seconds,
        threads=service.local.threads or None,
    )
    at_once = (search.remote.non_batch_concurrency if search.remote else None) or ThrottleConfig().max_concurrent
    pace = ThrottleConfig(at_once, service.embedding.requests_per_minute)
    identity_headers = service.embedding.identity_headers
    # A layout of the settings in which this provider has no default model leaves the model empty.
    has_default = search.provider != "openai-compatible"
    remotes = tuple(
        replace(
            _remote(
                name,
                access,
                pace,
                identity_headers,
                model=search.model or (_default_model(name, access) if has_default else ""),
                dimensions=search.output_dimensionality,
            ),
            query_input_type=search.query_type,
            document_input_type=search.document_type,
        )
        for name, access in agent.provider_access.items()
    )
    fallback = None
    name, model = search.fallback_provider, search.fallback_model
    if name not in {"none", "auto"} and (name != search.provider or model not in {"", search.model}):
        # The configured model and dimensions belong to the configured provider.
        fallback_model = model or _default_model(name, agent.fallback_access)
        remote = _remote(name, agent.fallback_access, pace, identity_headers, model=fallback_model)
        own = replace(local, model_path=model) if model and name == "local" else local
        fallback = EmbeddingConfig(name, (remote,), own, names_model=bool(model))
    blocked_by = settings.blocked_by(agent.agent_id)
    return EmbeddingConfig(search.provider, remotes, local, fallback, blocked_by, why_none=agent.no_provider)


def rerank_config(settings: ResolvedSettings) -> RerankConfig:
    """Return the configuration of the reranker, which all agents share."""
    service, access = settings.service, settings.rerank_access
    rerank = service.rerank
    local = LocalConfig(
        model_path=rerank.model_path or "",
        cache_dir=str(settings.state_dir / "models"),
        idle_seconds=service.local.idle_seconds,
        threads=service.local.threads or None,
    )
    if rerank.provider != "http":
        return RerankConfig(rerank.provider, rerank.model_path or "", local=local)
    return RerankConfig(
        rerank.provider,
        rerank.model or "",
        access.base_url,
        tuple(key.get_secret_value() for key in access.keys),
        tuple(sorted((name, value.get_secret_value()) for name, value in access.headers.items())),
        problem=str(access.missing) if access.missing else access.problem,
        blocked_by=tuple(blocker.visible_to("") for blocker in settings.remote_embeddings_blocked_by),
    )


def rerank_policy(settings: ResolvedSettings) -> RerankPolicy:
    """Return when a search calls the reranker, and for how many candidates."""
    rerank = settings.service.rerank
    return RerankPolicy(rerank.candidates, rerank.timeout_ms / 1000)


def _searched_sources(agent: AgentSettings) -> tuple[Source, ...]:
    """Return the sources that a search without sources covers; empty for all that are indexed."""
    search, qmd = agent.memory_search, agent.memory.qmd
    if search.sources == search.indexed_sources or (agent.memory.backend == "qmd" and qmd.sessions.enabled):
        return ()
    return tuple(Source(source) for source in search.sources)


def _batch_policy(agent: AgentSettings, service: ServiceSettings) -> BatchPolicy:
    remote = agent.memory_search.remote
    if remote is None:
        return BatchPolicy()
    batch = remote.batch
    return fill(
        BatchPolicy,
        batch,
        max_jobs=batch.concurrency,
        poll_seconds=batch.poll_interval_ms / 1_000,
        least_texts=service.batch_min_chunks,
    )


def _remote(
    provider: str,
    access: ProviderAccess,
    pace: ThrottleConfig,
    identity_headers: tuple[str, ...],
    *,
    model: str,
    dimensions: int | None = None,
) -> RemoteConfig:
    headers = sorted((name, value.get_secret_value()) for name, value in access.headers.items())
    return RemoteConfig(
        provider=provider,
        model=model,
        base_url=access.base_url,
        keys=tuple(key.get_secret_value() for key in access.keys),
        headers=tuple(headers),
        identity_headers=identity_headers,
        dimensions=dimensions,
        no_key=access.no_key,
        missing_secret=str(access.missing) if access.missing else "",
        problem=access.problem,
        pace=pace,
        api=access.api,
    )


def _default_model(provider: str, access: ProviderAccess) -> str:
    """Return the default model of a provider; empty if it has none, as a compatible one of the settings' own."""
    return default_model("ollama" if access.api == "ollama" else provider)


def call_limits(limits: LimitsSettings) -> CallLimits:
    """Return the limits on concurrent calls and streams, and on the rate of calls."""
    return fill(CallLimits, limits)


def host_time_zone() -> str:
    """Return the IANA name of the host's time zone; UTC if it cannot be determined."""
    try:
        target = str(Path("/etc/localtime").resolve(strict=True))
        name = target.split("/zoneinfo/", 1)[1].removeprefix("posix/")
        return str(ZoneInfo(name))
    except (OSError, IndexError, ValueError, LookupError):
        return time.tzname[0] if time.tzname[0] in ("UTC", "GMT") else "UTC"
