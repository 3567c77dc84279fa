"""AgentStatus as a protobuf message."""

from memoryd.v1 import memory_pb2, memory_service_pb2
from memoryd_server import __version__
from memoryd_server.agent import (
    ANALYZER_VERSION,
    TOKENIZER,
    AgentStatus,
    BackendStatus,
    BatchJobsState,
    EmbeddingStatus,
    IndexStatus,
    ProviderModel,
    ProviderProbe,
    ProviderUsage,
    RerankStatus,
    RootStatus,
    ServiceInfo,
    VectorIdentity,
)
from memoryd_server.rpc import wire
from memoryd_server.rpc.responses import active_sync, degradations, file_failed, watchers
from memoryd_server.rpc.wire import MOST_REPORT_BYTES, build_message, cut_text, cut_texts, duration, fitting, timestamp

# A status reply stays small; ListFiles has every failed file.
MOST_FAILED_FILES = 20


def status_response(status: AgentStatus, service: ServiceInfo) -> memory_service_pb2.StatusResponse:
    """Return the status of an agent and of the daemon. Holds no secret."""
    config, index = status.config, status.index
    return build_message(
        memory_service_pb2.StatusResponse,
        service=_service(service, config.agent_id),
        agent_id=config.agent_id,
        workspace=config.memory_location,
        configured_backend=wire.backend(config.configured_backend),
        active_backend=wire.backend(status.backend.active or "unspecified"),
        degradations=degradations(status.degradations),
        index=_index(index, status.embedding),
        embedding=_embedding(status.embedding, status.probe),
        vector=_vector(status.embedding, enabled=config.vector_enabled, probed=status.probe is not None),
        fulltext=build_message(
            memory_pb2.FulltextStatus,
            available=not index.keyword_error,
            tokenizer=TOKENIZER,
            error=index.keyword_error,
        ),
        cache=memory_pb2.CacheStatus(
            enabled=config.cache_enabled, entries=index.cached_embeddings, max_entries=config.cache_max_entries
        ),
        batch=_batch(status.batch_jobs, enabled=config.batch.enabled),
        watchers=watchers(status.watched_roots),
        qmd=_qmd(status.backend),
        active_sync=active_sync(status.active_sync),
        source_issues=cut_texts(index.issues),
        failed_files=[file_failed(failure) for failure in index.failed_files[:MOST_FAILED_FILES]],
        reranker=None if status.reranker is None else _reranker(status.reranker, index.mean_chunk_tokens),
    )


def _reranker(status: RerankStatus, mean_chunk_tokens: int) -> memory_pb2.RerankerStatus:
    usage = status.usage
    return build_message(
        memory_pb2.RerankerStatus,
        provider=status.provider,
        model=cut_text(status.model),
        endpoint=cut_text(status.endpoint),
        reason=cut_text(status.reason),
        candidates=status.candidates,
        tokens_per_search=status.candidates * mean_chunk_tokens,
        calls=usage.calls,
        tokens=usage.tokens,
        failures=usage.failures,
        late=usage.late,
        cache_hits=usage.cache_hits,
    )


def _service(service: ServiceInfo, agent_id: str) -> memory_pb2.ServiceStatus:
    settings = service.settings()
    return build_message(
        memory_pb2.ServiceStatus,
        version=__version__,
        start_time=timestamp(service.start_time_ns),
        settings_awaiting_restart=cut_texts(settings.awaiting_restart),
        settings_warnings=cut_texts(service.warnings()),
        settings_load_time=timestamp(settings.load_time_ns),
        settings_loads=settings.loads,
        settings_error=cut_text(settings.error),
        background_failures=cut_texts(service.background_failures(agent_id)),
    )


def _batch(jobs: BatchJobsState, *, enabled: bool) -> memory_pb2.BatchStatus:
    return build_message(
        memory_pb2.BatchStatus,
        enabled=enabled,
        failures=jobs.failures,
        last_error=jobs.last_error,
        jobs=jobs.jobs,
        chunks_in_jobs=jobs.texts,
    )


def _qmd(backend: BackendStatus) -> memory_pb2.QmdStatus:
    if backend.wanted != "qmd":
        return memory_pb2.QmdStatus()
    return build_message(
        memory_pb2.QmdStatus,
        configured=True,
        available=not backend.reason,
        version=backend.version,
        reason=backend.reason,
    )


def shared_apart(response: memory_service_pb2.StatusResponse) -> memory_service_pb2.StatusResponse:
    """Return `response` without what concerns other agents, for a caller that may learn nothing of them."""
    settings = ("settings_warnings", "settings_awaiting_restart", "settings_load_time", "settings_loads")
    for field in (*settings, "settings_error", "background_failures"):
        response.service.ClearField(field)
    for field in ("calls", "tokens", "usage"):
        response.embedding.ClearField(field)
    if response.HasField("reranker"):
        for field in ("calls", "tokens", "failures", "late", "cache_hits"):
            response.reranker.ClearField(field)
    return response


def _index(status: IndexStatus, embedding: EmbeddingStatus) -> memory_pb2.IndexStatus:
    age = status.oldest_unindexed_age_seconds
    return build_message(
        memory_pb2.IndexStatus,
        state=wire.index_state(status.state),
        revision=status.counts.revision,
        schema_version=status.schema_version,
        files=status.counts.files,
        chunks=status.counts.chunks,
        size_bytes=status.size_bytes,
        last_sync_time=None if status.last_sync_ms is None else timestamp(status.last_sync_ms * 1_000_000),
        sources=[
            memory_pb2.SourceStatus(
                source=wire.source(counts.source),
                files_on_disk=counts.files_on_disk,
                files_indexed=counts.files_indexed,
                chunks=counts.chunks,
                files_failed=counts.files_failed,
            )
            for counts in status.sources
        ],
        dirty=status.dirty,
        pending_files=status.pending_files,
        oldest_unindexed_age=None if age is None else duration(age),
        identity=_identity(status, embedding.stored),
        next_identity=_identity(status, embedding.staged),
        identity_mismatches=[
            build_message(memory_pb2.IdentityMismatch, field=field, index_value=old, wanted_value=new)
            for field, old, new in status.differences
        ],
        pending_embeddings=status.pending_embeddings,
        analyzer_version=ANALYZER_VERSION,
        path=status.location,
        roots=fitting(status.roots, _root, MOST_REPORT_BYTES),
    )


def _root(status: RootStatus) -> memory_pb2.RootStatus:
    age = status.oldest_unindexed_age_seconds
    return build_message(
        memory_pb2.RootStatus,
        root=status.root,
        source=wire.source(status.source),
        files_on_disk=status.files_on_disk,
        files_indexed=status.files_indexed,
        pending_files=status.pending_files,
        files_failed=status.files_failed,
        oldest_unindexed_age=None if age is None else duration(age),
    )


def _embedding(status: EmbeddingStatus, probe: ProviderProbe | None) -> memory_pb2.EmbeddingStatus:
    spec = status.spec
    totals = {} if spec is None else status.usage
    own = ProviderUsage() if spec is None else totals.get((spec.provider, spec.model), ProviderUsage())
    return build_message(
        memory_pb2.EmbeddingStatus,
        requested_provider=status.requested,
        provider="" if spec is None else spec.provider,
        model="" if spec is None else spec.model,
        dimensions=status.dimensions,
        reason=status.reason,
        fallback_from=status.fallback_from,
        calls=own.calls,
        tokens=own.tokens,
        usage=fitting(sorted(totals.items()), lambda each: provider_usage(*each), MOST_REPORT_BYTES),
        probe=None if probe is None else _probe(probe),
    )


def _probe(probe: ProviderProbe) -> memory_pb2.ProbeResult:
    return build_message(
        memory_pb2.ProbeResult,
        ok=not probe.error,
        elapsed=duration(probe.elapsed_seconds),
        error=probe.error,
        dimensions=probe.dimensions,
    )


def provider_usage(maker: ProviderModel, used: ProviderUsage) -> memory_pb2.ProviderUsage:
    """Return the use of one provider and model."""
    return build_message(
        memory_pb2.ProviderUsage,
        provider=maker[0],
        model=maker[1],
        calls=used.calls,
        tokens=used.tokens,
        retries=used.retries,
        cache_hits=used.cache_hits,
    )


def _vector(status: EmbeddingStatus, *, enabled: bool, probed: bool) -> memory_pb2.VectorStatus:
    engine, is_known = status.engine, probed or status.spec is not None
    return build_message(
        memory_pb2.VectorStatus,
        enabled=enabled,
        engine=engine.engine if is_known else "none",
        version=engine.version if is_known else "",
        load_error=engine.load_error if is_known and engine.load_error else "",
        extension_path=engine.path if is_known else "",
        dimensions=0 if status.stored is None else status.stored.dimensions,
        resident_form=engine.form,
        resident_bytes=status.resident_bytes,
    )


def _identity(status: IndexStatus, stored: VectorIdentity | None) -> memory_pb2.Identity | None:
    """Return what a set of the index's vectors was made with; None if there is none."""
    built_with = status.built_with
    if stored is None:
        return None
    return build_message(
        memory_pb2.Identity,
        provider=stored.provider,
        model=stored.model,
        endpoint=stored.endpoint,
        dimensions=stored.dimensions,
        chunk_tokens=0 if built_with is None else built_with.chunk_tokens,
        chunk_overlap=0 if built_with is None else built_with.chunk_overlap,
        query_prefix=stored.query_prefix,
        document_prefix=stored.document_prefix,
        piece_chars=stored.piece_chars,
    )
