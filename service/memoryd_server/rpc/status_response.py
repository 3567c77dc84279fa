"""AgentStatus into protobuf.

An agent's status as a message.

The embedding side and the vector leg of a status as messages.
"""

from memoryd.v1 import memory_pb2, memory_service_pb2
from memoryd_server import __version__
from memoryd_server.agent import (
    Agent,
    AgentEmbedding,
    BackendStatus,
    IndexReport,
    ProviderProbe,
    ServiceInfo,
    VectorUse,
)
from memoryd_server.embedding import ProviderUsage
from memoryd_server.rpc import wire
from memoryd_server.rpc.responses import active_sync, degradation, file_failed, watcher
from memoryd_server.rpc.wire import build_message, duration, timestamp
from memoryd_server.store import TOKENIZER, ProviderModel, VectorIdentity
from memoryd_server.text import ANALYZER_VERSION

# A status reply stays small; ListFiles has every failed file.
MOST_FAILED_FILES = 20


def status_response(
    memory: Agent, report: IndexReport, service: ServiceInfo, probe: ProviderProbe | None, backend: BackendStatus
) -> memory_service_pb2.StatusResponse:
    """How `memory`, and the backend in front of it, are doing, by a report of this moment. Holds no secret."""
    config = memory.config
    degradations = (*backend.degradations, *memory.degradations_with(report.watched_roots), *memory.remarks())
    return build_message(
        memory_service_pb2.StatusResponse,
        service=_service(service),
        agent_id=config.agent_id,
        workspace=config.roots.workspace,
        configured_backend=wire.backend(config.configured_backend),
        active_backend=wire.backend(backend.active or "unspecified"),
        degradations=[degradation(d) for d in degradations],
        index=_index(memory, report),
        embedding=embedding_status(memory.vectors, report.vectors, probe),
        vector=vector_status(memory, report.vectors),
        fulltext=build_message(
            memory_pb2.FulltextStatus,
            available=not report.keyword_error,
            tokenizer=TOKENIZER,
            error=report.keyword_error,
        ),
        cache=memory_pb2.CacheStatus(
            enabled=config.cache_enabled, entries=report.cached_embeddings, max_entries=config.cache_max_entries
        ),
        batch=_batch(memory),
        watchers=[watcher(root) for root in report.watched_roots],
        qmd=_qmd(backend),
        active_sync=active_sync(memory.coordinator.active),
        source_issues=report.issues,
        failed_files=[file_failed(failure) for failure in report.failed_files[:MOST_FAILED_FILES]],
    )


def _service(service: ServiceInfo) -> memory_pb2.ServiceStatus:
    settings = service.settings()
    return build_message(
        memory_pb2.ServiceStatus,
        version=__version__,
        start_time=timestamp(service.start_time_ns),
        settings_awaiting_restart=settings.awaiting_restart,
        settings_warnings=service.warnings(),
        settings_load_time=timestamp(settings.load_time_ns),
        settings_loads=settings.loads,
        settings_error=settings.error,
    )


def _batch(memory: Agent) -> memory_pb2.BatchStatus:
    state = memory.vectors.batches
    return build_message(
        memory_pb2.BatchStatus,
        enabled=memory.config.batch.enabled,
        failures=state.failures,
        last_error=state.last_error,
        jobs=state.jobs,
        chunks_in_jobs=state.texts,
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


def shared_apart(answer: memory_service_pb2.StatusResponse) -> memory_service_pb2.StatusResponse:
    """`answer` without what other agents have a part in, for callers who may learn nothing of those."""
    settings = ("settings_warnings", "settings_awaiting_restart", "settings_load_time", "settings_loads")
    for field in (*settings, "settings_error"):
        answer.service.ClearField(field)
    for field in ("calls", "tokens", "usage"):
        answer.embedding.ClearField(field)
    return answer


def _index(memory: Agent, report: IndexReport) -> memory_pb2.IndexStatus:
    state = memory.board.current
    age = report.oldest_unindexed_age_seconds
    return build_message(
        memory_pb2.IndexStatus,
        state=wire.index_state(state.seen(dirty=report.dirty, files=report.counts.files).state),
        revision=report.counts.revision,
        schema_version=report.schema_version,
        files=report.counts.files,
        chunks=report.counts.chunks,
        size_bytes=report.size_bytes,
        last_sync_time=None if report.last_sync_ms is None else timestamp(report.last_sync_ms * 1_000_000),
        sources=[
            memory_pb2.SourceStatus(
                source=wire.source(counts.source),
                files_on_disk=counts.files_on_disk,
                files_indexed=counts.files_indexed,
                chunks=counts.chunks,
                files_failed=counts.files_failed,
            )
            for counts in report.sources
        ],
        dirty=report.dirty,
        pending_files=report.pending_files,
        oldest_unindexed_age=None if age is None else duration(age),
        identity=identity(memory),
        identity_mismatches=identity_mismatches(memory),
        pending_embeddings=memory.vectors.pending(report.counts.chunks),
        analyzer_version=ANALYZER_VERSION,
        path=str(memory.index_path),
    )


def embedding_status(side: AgentEmbedding, use: VectorUse, probe: ProviderProbe | None) -> memory_pb2.EmbeddingStatus:
    """Who makes vectors, and how that goes. Holds no key."""
    selection, status, stands_in = side.selection, side.provider_status(), side.stands_in
    spec = None if side.embedder is None else side.embedder.provider.spec
    totals = {} if spec is None else use.usage
    own = ProviderUsage() if spec is None else totals.get((spec.provider, spec.model), ProviderUsage())
    reason = selection.reason if status is None else status.reason
    return build_message(
        memory_pb2.EmbeddingStatus,
        requested_provider=selection.requested,
        provider="" if spec is None else spec.provider,
        model="" if spec is None else spec.model,
        dimensions=0 if spec is None else spec.dimensions or 0,
        reason=reason if stands_in is None else stands_in.reason,
        fallback_from="" if stands_in is None else stands_in.wanted,
        calls=own.calls,
        tokens=own.tokens,
        usage=[_usage(maker, used) for maker, used in sorted(totals.items())],
        probe=None if probe is None else _probe(probe),
    )


def _probe(probe: ProviderProbe) -> memory_pb2.ProbeResult:
    return build_message(
        memory_pb2.ProbeResult, ok=not probe.error, elapsed=duration(probe.elapsed_seconds), error=probe.error
    )


def _usage(maker: ProviderModel, used: ProviderUsage) -> memory_pb2.ProviderUsage:
    return build_message(
        memory_pb2.ProviderUsage,
        provider=maker[0],
        model=maker[1],
        calls=used.calls,
        tokens=used.tokens,
        retries=used.retries,
        cache_hits=used.cache_hits,
    )


def vector_status(memory: Agent, use: VectorUse) -> memory_pb2.VectorStatus:
    """Who compares vectors."""
    side = memory.vectors
    engine = side.store.vector_engine()
    stored = side.state.stored
    return build_message(
        memory_pb2.VectorStatus,
        enabled=memory.config.vector_enabled,
        engine=engine.engine if side.embedder is not None else "none",
        version=engine.version or "",
        load_error=(engine.load_error or "") if side.embedder is not None else "",
        dimensions=stored.dimensions if stored is not None else 0,
        resident_form=use.resident_form,
        resident_bytes=use.resident_bytes,
    )


def identity(memory: Agent) -> memory_pb2.Identity | None:
    """What the index's vectors were built with; None when there are none."""
    stored: VectorIdentity | None = memory.vectors.state.stored
    build = memory.built_with
    if stored is None:
        return None
    return build_message(
        memory_pb2.Identity,
        provider=stored.provider,
        model=stored.model,
        endpoint=stored.endpoint,
        dimensions=stored.dimensions,
        chunk_tokens=build.chunk_tokens if build is not None else 0,
        chunk_overlap=build.chunk_overlap if build is not None else 0,
        query_prefix=stored.query_prefix,
        document_prefix=stored.document_prefix,
    )


def identity_mismatches(memory: Agent) -> list[memory_pb2.IdentityMismatch]:
    """How that differs from the settings."""
    return [
        build_message(memory_pb2.IdentityMismatch, field=field, index_value=old, wanted_value=new)
        for field, old, new in memory.mismatches()
    ]
