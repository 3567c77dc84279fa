"""Answers, events, sessions into protobuf.

Answers of searches, reads and lists as messages.

What a session loads, and what was forgotten, as messages.

Sync runs and the state of an index as messages.
"""

from collections.abc import Iterable
from dataclasses import replace

from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2
from memoryd_server.agent import (
    Agent,
    FileRange,
    ForgetReceipt,
    Heartbeat,
    IndexSnapshot,
    IndexState,
    ListedFile,
    RunCompleted,
    RunProgress,
    RunStarted,
    SessionContextRequest,
    SyncEvent,
    SyncRun,
)
from memoryd_server.model import Degradation, DegradationKind, FileFailure
from memoryd_server.rpc import wire
from memoryd_server.rpc.wire import build_message, duration, make_cursor, timestamp
from memoryd_server.search import BUILTIN, Hit, RetrieverReport, SearchAnswer, citation
from memoryd_server.sessions import ContextFile, FlushDecision, ToolSchema, recall_prompt, tool_schemas
from memoryd_server.sources import WatchedRoot


def search_response(
    answer: SearchAnswer, memory: Agent, *, elapsed_seconds: float, explain: bool
) -> memory_service_pb2.MemorySearchResponse:
    """An answer with how it came about. The details of scores and legs are there when `explain` asks for them."""
    board, builtin = memory.board.current, answer.backend == BUILTIN
    degradations = _of_search(memory.degradations(), answer) if builtin else memory.config.impairments
    info = build_message(
        memory_pb2.SearchInfo,
        backend=wire.backend(answer.backend),
        served_mode=wire.search_mode(answer.served_mode),
        degradations=[degradation(d) for d in (*_beyond(degradations, answer.degradations), *degradations)],
        index_revision=answer.revision,
        index_state=wire.index_state(board.state if builtin else _state_of(answer)),
        stale=answer.stale or (builtin and (board.dirty or board.pending_files > 0)),
        keyword_candidates=answer.keyword_candidates,
        vector_candidates=answer.vector_candidates,
        coverage=answer.coverage,
        embedding=_embedding(memory, answer) if answer.vector_candidates else None,
        dropped_by_min_score=answer.dropped_by_min_score,
        elapsed=duration(elapsed_seconds),
        empty_reason=wire.empty_reason(answer.empty_reason),
        empty_explanation=answer.empty_explanation,
        legs=[_leg(report) for report in answer.retrievers] if explain else [],
    )
    return memory_service_pb2.MemorySearchResponse(results=[_result(hit, explain) for hit in answer.hits], info=info)


def _of_search(standing: tuple[Degradation, ...], answer: SearchAnswer) -> tuple[Degradation, ...]:
    """The degradations of a memory as they concern one answer.

    Whether and why it did without vectors, the answer says itself: the provider's last failure may be another one.
    """
    skipped = DegradationKind.VECTOR_LEG_SKIPPED
    own = next((d for d in answer.degradations if d.kind is skipped), None)
    found = (d if d.kind is not skipped else own and replace(d, reason=own.reason) for d in standing)
    return tuple(d for d in found if d is not None)


def _beyond(standing: tuple[Degradation, ...], answers: tuple[Degradation, ...]) -> list[Degradation]:
    """The degradations of an answer that the standing ones do not tell already."""
    told = {d.kind for d in standing}
    return [d for d in answers if d.kind not in told]


def _state_of(answer: SearchAnswer) -> IndexState:
    """The state of an index that is not memoryd's own."""
    if not answer.indexed_files:
        return IndexState.EMPTY
    return IndexState.STALE if answer.stale else IndexState.READY


def _embedding(memory: Agent, answer: SearchAnswer) -> memory_pb2.EmbeddingInfo | None:
    if answer.backend != BUILTIN:
        return build_message(memory_pb2.EmbeddingInfo, provider=answer.backend)
    if memory.vectors.embedder is None:
        return None
    spec = memory.vectors.embedder.provider.spec
    return build_message(memory_pb2.EmbeddingInfo, provider=spec.provider, model=spec.model)


def _result(hit: Hit, explain: bool) -> memory_pb2.SearchResult:
    return build_message(
        memory_pb2.SearchResult,
        path=hit.path,
        start_line=hit.start_line,
        end_line=hit.end_line,
        score=hit.score,
        snippet=hit.snippet,
        snippet_start_line=hit.snippet_start_line,
        snippet_end_line=hit.snippet_end_line,
        source=wire.source(hit.source),
        citation=citation(hit.path, hit.start_line, hit.end_line),
        modified_time=timestamp(hit.mtime_ns),
        score_detail=_score_detail(hit) if explain else None,
    )


def _score_detail(hit: Hit) -> memory_pb2.ScoreDetail:
    return memory_pb2.ScoreDetail(
        vector=hit.vector_score,
        text=hit.text_score,
        coverage=hit.coverage,
        decay=hit.decay,
        vector_rank=hit.vector_rank,
        keyword_rank=hit.keyword_rank,
    )


def _leg(leg: RetrieverReport) -> memory_pb2.LegReport:
    return build_message(
        memory_pb2.LegReport,
        leg=wire.search_mode(leg.retriever),
        ran=leg.ran,
        candidates=leg.candidates,
        elapsed=duration(leg.elapsed_seconds),
        terms=leg.terms,
        note=leg.note,
    )


def degradation(value: Degradation) -> memory_pb2.Degradation:
    """A degradation."""
    return build_message(
        memory_pb2.Degradation,
        kind=wire.degradation_kind(value.kind),
        wanted=value.wanted,
        used=value.used,
        reason=value.reason,
    )


def kinds_of(degradations: Iterable[memory_pb2.Degradation]) -> list[str]:
    """The names of their kinds."""
    return [memory_pb2.DegradationKind.Name(d.kind).removeprefix("DEGRADATION_KIND_") for d in degradations]


def get_response(value: FileRange) -> memory_service_pb2.MemoryGetResponse:
    """Lines of a file."""
    return build_message(
        memory_service_pb2.MemoryGetResponse,
        path=value.path,
        text=value.text,
        start_line=value.start_line,
        end_line=value.end_line,
        total_lines=value.total_lines,
        next_start_line=value.next_start_line,
        truncated=value.truncated,
    )


def file(value: ListedFile) -> memory_service_pb2.File:
    """A listed file."""
    return build_message(
        memory_service_pb2.File,
        path=value.path,
        source=wire.source(value.source),
        size_bytes=value.size_bytes,
        modified_time=timestamp(value.mtime_ns),
        state=wire.file_state(value.state),
        error=value.error,
        chunks=value.chunks,
    )


def flush_response(value: FlushDecision, agent_id: str) -> memory_service_pb2.FlushDecisionResponse:
    """A decision with every input echoed."""
    inputs = value.inputs
    echo = memory_service_pb2.FlushDecisionRequest(
        agent_id=agent_id,
        total_tokens=inputs.total_tokens,
        incoming_prompt_tokens=inputs.incoming_prompt_tokens,
        last_output_tokens=inputs.last_output_tokens,
        context_window_tokens=inputs.context_window_tokens,
        reserve_tokens_floor=inputs.reserve_tokens_floor,
        effective_reserve_tokens=inputs.effective_reserve_tokens,
        soft_threshold_tokens=inputs.soft_threshold_tokens,
        transcript_bytes=inputs.transcript_bytes,
        compaction_count=inputs.compaction_count,
        last_flush_compaction_count=inputs.last_flush_compaction_count,
        workspace_access=wire.workspace_access(inputs.workspace_access),
        turn_kind=wire.turn_kind(inputs.turn_kind),
        time_zone=inputs.time_zone,
    )
    if inputs.total_tokens_fresh is not None:
        echo.total_tokens_fresh = inputs.total_tokens_fresh
    echo.now.FromDatetime(inputs.now)
    return memory_service_pb2.FlushDecisionResponse(
        flush=value.flush,
        reason=wire.flush_reason(value.reason),
        threshold_tokens=value.threshold_tokens,
        projected_tokens=value.projected_tokens,
        remaining_tokens=value.remaining_tokens,
        prompts=memory_service_pb2.FlushPrompts(
            system=value.prompts.system, user=value.prompts.user, silent_reply=value.prompts.silent_reply
        ),
        target_path=value.target_path,
        flush_compaction_count=value.flush_compaction_count,
        inputs=echo,
    )


def context_response(
    files: Iterable[ContextFile], call: SessionContextRequest
) -> memory_service_pb2.SessionContextResponse:
    """A session's files, with the recall section and the tools where they are wanted."""
    section = recall_prompt(call.tools, cites=call.cites, main_session=call.main_session) if call.section else ""
    return memory_service_pb2.SessionContextResponse(
        files=map(_file, files),
        recall_prompt=section,
        tool_schemas=map(_tool, tool_schemas(call.tools)) if call.schemas else (),
        main_session=call.main_session,
    )


def forget_response(value: ForgetReceipt) -> memory_service_pb2.MemoryForgetResponse:
    """The receipt of what was removed."""
    return memory_service_pb2.MemoryForgetResponse(
        chunks=value.chunks,
        keyword_entries=value.keyword_entries,
        vectors=value.vectors,
        cached_embeddings=value.cached_embeddings,
        qmd_documents=value.qmd_documents,
        source_files=value.source_files,
        index_revision=value.revision,
        purge_pending=value.purge_pending,
    )


def _file(value: ContextFile) -> memory_service_pb2.SessionContextFile:
    return build_message(
        memory_service_pb2.SessionContextFile,
        path=value.path,
        text=value.text,
        truncated=value.truncated,
        exists=value.exists,
        start_line=value.start_line,
        end_line=value.end_line,
        problem=value.problem,
    )


def _tool(value: ToolSchema) -> memory_service_pb2.ToolSchema:
    return memory_service_pb2.ToolSchema(
        name=value.name, description=value.description, parameters_json=value.parameters_json
    )


def sync_response(run: SyncRun, event: SyncEvent, *, attached: bool) -> memory_service_pb2.SyncResponse:
    """An event of a run, as told to a follower who started it or joined."""
    response = memory_service_pb2.SyncResponse(
        sync_id=run.sync_id,
        sequence=event.sequence,
        cursor=make_cursor(run.sync_id, event.sequence),
        time=timestamp(event.time_ns),
    )
    match event.body:
        case RunStarted() as body:
            response.started.CopyFrom(_started(run, body, attached=attached))
        case RunProgress() as body:
            response.progress.CopyFrom(progress(body))
        case FileFailure() as body:
            response.file_failed.CopyFrom(file_failed(body))
        case Heartbeat() as body:
            response.heartbeat.elapsed.CopyFrom(duration(body.elapsed_seconds))
        case RunCompleted() as body:
            response.completed.CopyFrom(_completed(body))
    return response


def _started(run: SyncRun, body: RunStarted, *, attached: bool) -> sync_event_pb2.SyncStarted:
    return sync_event_pb2.SyncStarted(
        mode=wire.sync_mode(run.mode),
        trigger=wire.sync_trigger(run.trigger),
        attached=attached,
        start_time=timestamp(run.start_time_ns),
        index_revision=body.revision,
        dry_run=body.dry_run,
    )


def progress(body: RunProgress) -> sync_event_pb2.SyncProgress:
    """A snapshot of a run."""
    value = body.progress
    return build_message(
        sync_event_pb2.SyncProgress,
        phase=wire.sync_phase(value.phase),
        completed_files=value.completed_files,
        total_files=value.total_files,
        completed_chunks=value.completed_chunks,
        total_chunks=value.total_chunks,
        cached_chunks=value.cached_chunks,
        failed_files=value.failed_files,
        current_path=value.current_path,
        batch_jobs=value.batch_jobs,
        elapsed=duration(body.elapsed_seconds),
        eta=None if body.eta_seconds is None else duration(body.eta_seconds),
    )


def file_failed(failure: FileFailure) -> sync_event_pb2.SyncFileFailed:
    """A file that could not be indexed."""
    return build_message(
        sync_event_pb2.SyncFileFailed, path=failure.path, source=wire.source(failure.source), error=failure.error
    )


def _completed(body: RunCompleted) -> sync_event_pb2.SyncCompleted:
    outcome, vectors, estimate = body.outcome, body.vectors, body.estimate
    message = sync_event_pb2.SyncCompleted(
        index_revision=outcome.revision,
        changed=outcome.changed,
        indexed_files=outcome.indexed_files,
        unchanged_files=outcome.unchanged_files,
        removed_files=outcome.removed_files,
        failed_files=outcome.failed_files,
        chunks=outcome.chunks,
        cached_chunks=outcome.cached_chunks,
        elapsed=duration(body.elapsed_seconds),
        pending_embeddings=vectors.pending,
        refused_embeddings=vectors.refused,
        vectors_missing=vectors.missing,
        degradations=[degradation(each) for each in vectors.degradations],
    )
    if estimate is not None:
        message.estimate.files = estimate.files
        message.estimate.removed_files = estimate.removed_files
        message.estimate.chunks = estimate.chunks
        message.estimate.cache_misses = estimate.cache_misses
        message.estimate.estimated_tokens = estimate.estimated_tokens
    return message


def active_sync(run: SyncRun | None) -> memory_service_pb2.ActiveSync | None:
    """The run under way, or None."""
    if run is None:
        return None
    return memory_service_pb2.ActiveSync(
        sync_id=run.sync_id,
        mode=wire.sync_mode(run.mode),
        trigger=wire.sync_trigger(run.trigger),
        progress=progress(run.progress),
    )


def watcher(root: WatchedRoot) -> memory_pb2.WatcherStatus:
    """How a root is watched."""
    return build_message(
        memory_pb2.WatcherStatus, root=root.root, mode=wire.watcher_mode(root.mode), reason=root.reason
    )


def watch_response(
    agent_id: str,
    now: Timestamp,
    state: IndexSnapshot,
    run: SyncRun | None,
    watchers: tuple[WatchedRoot, ...],
    *,
    heartbeat: bool,
) -> memory_service_pb2.WatchIndexResponse:
    """The whole state of an index at one moment."""
    return memory_service_pb2.WatchIndexResponse(
        agent_id=agent_id,
        time=now,
        state=wire.index_state(state.state),
        index_revision=state.revision,
        dirty=state.dirty,
        pending_files=state.pending_files,
        active_sync=active_sync(run),
        watchers=[watcher(root) for root in watchers],
        heartbeat=heartbeat,
    )
