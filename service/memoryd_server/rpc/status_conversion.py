"""An agent's status as a message."""

from collections.abc import Callable
from dataclasses import dataclass

from memoryd.v1 import memory_pb2, memory_service_pb2
from memoryd_server import __version__
from memoryd_server.backend import AgentMemory, IndexReport
from memoryd_server.backend.protocol import BackendState
from memoryd_server.backend.vector_side import ProbeOutcome
from memoryd_server.rpc import enums
from memoryd_server.rpc.conversion import degradation
from memoryd_server.rpc.messages import build_message
from memoryd_server.rpc.sync_conversion import active_sync, file_failed, watcher
from memoryd_server.rpc.times import duration, timestamp
from memoryd_server.rpc.vector_conversion import embedding_status, identity, identity_mismatches, vector_status
from memoryd_server.store.identity import TOKENIZER
from memoryd_server.text import ANALYZER_VERSION

# A status reply stays small; ListFiles has every failed file.
MOST_FAILED_FILES = 20


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """How the settings in force came about.

    `load_time_ns` is when they were read (Unix time), `loads` how often settings were read since the start. `error`
    says why the last reload was refused or what of it failed, `changed` which keys it brought into force, and
    `awaiting_restart` those that differ on disk and could not be.
    """

    load_time_ns: int
    loads: int = 1
    error: str = ""
    changed: tuple[str, ...] = ()
    awaiting_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The daemon itself. `start_time_ns` is Unix time; `warnings` are about the settings and the files they name."""

    start_time_ns: int
    warnings: Callable[[], tuple[str, ...]]
    settings: Callable[[], SettingsReport]


def status_response(
    memory: AgentMemory, report: IndexReport, service: ServiceInfo, probe: ProbeOutcome | None, backend: BackendState
) -> memory_service_pb2.StatusResponse:
    """How `memory`, and the backend in front of it, are doing, by a report of this moment. Holds no secret."""
    config = memory.config
    degradations = (*backend.degradations, *memory.degradations_with(report.watched_roots), *memory.remarks())
    return build_message(
        memory_service_pb2.StatusResponse,
        service=_service(service),
        agent_id=config.agent_id,
        workspace=config.roots.workspace,
        configured_backend=enums.backend(config.configured_backend),
        active_backend=enums.backend(backend.active or "unspecified"),
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


def _batch(memory: AgentMemory) -> memory_pb2.BatchStatus:
    state = memory.vectors.batches
    return build_message(
        memory_pb2.BatchStatus,
        enabled=memory.config.batch.enabled,
        failures=state.failures,
        last_error=state.last_error,
        jobs=state.jobs,
        chunks_in_jobs=state.texts,
    )


def _qmd(backend: BackendState) -> memory_pb2.QmdStatus:
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


def _index(memory: AgentMemory, report: IndexReport) -> memory_pb2.IndexStatus:
    state = memory.board.current
    age = report.oldest_unindexed_age_seconds
    return build_message(
        memory_pb2.IndexStatus,
        state=enums.index_state(state.seen(dirty=report.dirty, files=report.counts.files).state),
        revision=report.counts.revision,
        schema_version=report.schema_version,
        files=report.counts.files,
        chunks=report.counts.chunks,
        size_bytes=report.size_bytes,
        last_sync_time=None if report.last_sync_ms is None else timestamp(report.last_sync_ms * 1_000_000),
        sources=[
            memory_pb2.SourceStatus(
                source=enums.source(counts.source),
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
