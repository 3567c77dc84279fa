"""Results of `agent` as protobuf messages."""

from collections.abc import Iterable
from typing import Any

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2
from memoryd_server.access import DEFAULT_AGENT, Grant, Scope
from memoryd_server.agent import (
    ActiveSync,
    AgentSummary,
    AppendReceipt,
    DroppedCandidate,
    FileRange,
    ForgetReceipt,
    Heartbeat,
    Hit,
    IndexUpdate,
    ListedFile,
    MissExplanation,
    Passage,
    RecallAnswer,
    RerankReport,
    RetrieverReport,
    RunCompleted,
    RunProgress,
    RunStarted,
    SearchResult,
    SyncEvent,
    WatchedRoot,
    citation,
)
from memoryd_server.model import NO_ANNOTATIONS, Degradation, FileFailure
from memoryd_server.rpc import wire
from memoryd_server.rpc.wire import (
    MOST_REPORT_BYTES,
    build_message,
    cut_text,
    duration,
    fitting,
    make_cursor,
    timestamp,
    timestamp_fields,
)

Fields = dict[str, Any]
"""The fields of a message by name; a nested message may be given by its fields."""


def search_response(value: SearchResult, *, explain: bool) -> memory_service_pb2.MemorySearchResponse:
    """Return the answer to a search, with what was dropped; `explain` adds the details of scores and legs."""
    # Nested fields cost half of nested messages, which protobuf copies into the reply.
    fields: Fields = {
        "results": [_result_fields(hit, explain=explain) for hit in value.answer.hits],
        "info": _info_fields(value, explain=explain),
        "dropped": [_dropped_fields(candidate) for candidate in value.answer.dropped],
    }
    return build_message(memory_service_pb2.MemorySearchResponse, **fields)


def _dropped_fields(candidate: DroppedCandidate) -> Fields:
    return {
        "path": candidate.path,
        "start_line": candidate.start_line,
        "end_line": candidate.end_line,
        "source": wire.source(candidate.source),
        "score": candidate.score,
        "reason": f"MISS_REASON_{candidate.miss.reason}",
        "explanation": cut_text(candidate.miss.explanation),
    }


def miss_response(value: MissExplanation) -> memory_service_pb2.ExplainMissResponse:
    """Return why a search does not find a file or a line."""
    miss = value.miss
    return build_message(
        memory_service_pb2.ExplainMissResponse,
        path=value.path,
        reason=f"MISS_REASON_{miss.reason}",
        explanation=cut_text(miss.explanation),
        rank=miss.rank,
        max_rank=miss.max_rank,
        value=miss.value,
        limit=miss.limit,
        rule=cut_text(miss.rule),
        chunk=None if value.hit is None else search_result(value.hit, explain=True),
        info=None if value.result is None else _search_info(value.result, explain=True),
    )


def recall_response(value: RecallAnswer, *, explain: bool) -> memory_service_pb2.MemoryRecallResponse:
    """Return the block for a turn; `explain` adds the legs of its search."""
    info = _search_info(value.search, explain=explain)
    return build_message(
        memory_service_pb2.MemoryRecallResponse,
        block=value.block.text,
        items=[_recalled_item(passage) for passage in value.block.passages],
        silent_reason=f"RECALL_SILENT_REASON_{value.silent_reason or 'UNSPECIFIED'}",
        silent_explanation=value.explanation,
        info=info,
        tokens_used=value.block.tokens,
    )


def _recalled_item(passage: Passage) -> memory_service_pb2.RecalledItem:
    return build_message(
        memory_service_pb2.RecalledItem,
        path=passage.path,
        start_line=passage.start_line,
        end_line=passage.end_line,
        citation=passage.citation,
        date=passage.day,
        score=passage.score,
        why=passage.why,
        text=passage.text,
        source=wire.source(passage.source),
        origin=wire.origin(passage.origin),
    )


def _search_info(value: SearchResult, *, explain: bool) -> memory_pb2.SearchInfo:
    return build_message(memory_pb2.SearchInfo, **_info_fields(value, explain=explain))


def _info_fields(value: SearchResult, *, explain: bool) -> Fields:
    answer = value.answer
    fields: Fields = {
        "backend": wire.backend(answer.backend),
        "served_mode": wire.search_mode(answer.served_mode),
        "index_revision": answer.revision,
        "index_state": wire.index_state(value.index_state),
        "stale": value.stale,
        "keyword_candidates": answer.keyword_candidates,
        "vector_candidates": answer.vector_candidates,
        "coverage": answer.coverage,
        "confidence": answer.confidence,
        "dropped_by_min_score": answer.dropped_by_min_score,
        "elapsed": duration(value.elapsed_seconds),
        "empty_reason": wire.empty_reason(answer.empty_reason),
        "empty_explanation": answer.empty_explanation,
        "matched_any_word": answer.matched_any_word,
    }
    if value.degradations:
        fields["degradations"] = degradations(value.degradations)
    if value.provider:
        fields["embedding"] = {"provider": value.provider, "model": value.model}
    if explain:
        fields["legs"] = [leg_report(report) for report in answer.retrievers]
    if answer.reranking is not None:
        fields["reranking"] = _reranking(answer.reranking)
    return fields


def _reranking(report: RerankReport) -> memory_pb2.RerankInfo:
    return build_message(
        memory_pb2.RerankInfo,
        provider=report.provider,
        model=cut_text(report.model),
        candidates=report.candidates,
        cached=report.cached,
        elapsed=duration(report.elapsed_seconds),
    )


def search_result(hit: Hit, explain: bool) -> memory_pb2.SearchResult:
    """Return a hit, with the parts of its score if `explain` is set."""
    return build_message(memory_pb2.SearchResult, **_result_fields(hit, explain=explain))


def _result_fields(hit: Hit, *, explain: bool) -> Fields:
    fields: Fields = {
        "path": hit.path,
        "start_line": hit.start_line,
        "end_line": hit.end_line,
        "score": hit.score,
        "snippet": hit.snippet,
        "snippet_start_line": hit.snippet_start_line,
        "snippet_end_line": hit.snippet_end_line,
        "source": wire.source(hit.source),
        "citation": hit.path if hit.source is None else citation(hit.path, hit.start_line, hit.end_line),
        "modified_time": timestamp_fields(hit.mtime_ns),
        "origin": wire.origin(hit.origin),
    }
    if explain:
        fields["score_detail"] = _score_detail(hit)
    if hit.annotations is not NO_ANNOTATIONS:
        fields["importance"] = hit.annotations.importance
        fields["triggers"] = hit.annotations.triggers
        fields["projects"] = hit.annotations.projects
    return fields


def _score_detail(hit: Hit) -> memory_pb2.ScoreDetail:
    return memory_pb2.ScoreDetail(
        vector=hit.vector_score,
        text=hit.text_score,
        coverage=hit.coverage,
        decay=hit.decay,
        vector_rank=hit.vector_rank,
        keyword_rank=hit.keyword_rank,
        annotations=hit.annotation_factor,
        window=hit.window,
        date=hit.date,
        adjacent=hit.adjacent,
        rerank=hit.rerank,
        parts=[memory_pb2.ScorePart(kind=f"SCORE_PART_KIND_{part.kind}", amount=part.amount) for part in hit.parts],
    )


def leg_report(leg: RetrieverReport) -> memory_pb2.LegReport:
    """Return the report of one retriever."""
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
    """Return a degradation."""
    return build_message(
        memory_pb2.Degradation,
        kind=wire.degradation_kind(value.kind),
        wanted=cut_text(value.wanted),
        used=cut_text(value.used),
        reason=cut_text(value.reason),
    )


def degradations(values: Iterable[Degradation]) -> list[memory_pb2.Degradation]:
    """Return the degradations of a reply; only the first ones if there are extremely many."""
    return fitting(values, degradation, MOST_REPORT_BYTES)


def agent(value: AgentSummary, grant: Grant) -> memory_service_pb2.Agent:
    """Return a configured agent for a caller. If it is limited to some agents, `main` is always the default agent."""
    config = value.config
    return build_message(
        memory_service_pb2.Agent,
        agent_id=config.agent_id,
        workspace=config.memory_location,
        default=config.agent_id == DEFAULT_AGENT if grant.limited else config.default,
        enabled=config.enabled,
        may_edit=config.memory_enabled and config.edits_enabled and grant.may(Scope.EDIT),
        index_state=memory_pb2.INDEX_STATE_UNSPECIFIED if value.state is None else wire.index_state(value.state),
    )


def get_response(value: FileRange) -> memory_service_pb2.MemoryGetResponse:
    """Return lines of a file."""
    return build_message(
        memory_service_pb2.MemoryGetResponse,
        path=value.path,
        text=value.text,
        start_line=value.start_line,
        end_line=value.end_line,
        total_lines=value.total_lines,
        next_start_line=value.next_start_line,
        truncated=value.truncated,
        content_sha256="" if value.content is None else value.content.hex(),
        chunks=[memory_pb2.LineRange(start_line=lines.start_line, end_line=lines.end_line) for lines in value.chunks],
    )


def file(value: ListedFile) -> memory_service_pb2.File:
    """Return a listed file."""
    return build_message(
        memory_service_pb2.File,
        path=value.path,
        source=wire.source(value.source),
        size_bytes=value.size_bytes,
        modified_time=timestamp(value.mtime_ns) if value.mtime_ns else None,
        state=wire.file_state(value.state),
        error=cut_text(value.error),
        chunks=value.chunks,
        date=value.date,
        rule=cut_text(value.rule),
    )


def append_response(value: AppendReceipt) -> memory_service_pb2.MemoryAppendResponse:
    """Return where the text is."""
    return memory_service_pb2.MemoryAppendResponse(
        path=value.path,
        start_line=value.start_line,
        end_line=value.end_line,
        index_revision=value.revision,
        already_appended=value.already_appended,
    )


def forget_response(value: ForgetReceipt) -> memory_service_pb2.MemoryForgetResponse:
    """Return how much was removed."""
    return memory_service_pb2.MemoryForgetResponse(
        chunks=value.chunks,
        keyword_entries=value.keyword_entries,
        vectors=value.vectors,
        cached_embeddings=value.cached_embeddings,
        qmd_documents=value.qmd_documents,
        source_files=value.source_files,
        index_revision=value.revision,
        purge_pending=value.purge_pending,
        history_contents=value.history_contents,
    )


def sync_response(event: SyncEvent) -> memory_service_pb2.SyncResponse:
    """Return an event of a sync run."""
    response = memory_service_pb2.SyncResponse(
        sync_id=event.sync_id,
        sequence=event.sequence,
        cursor=make_cursor(event.sync_id, event.sequence),
        time=timestamp(event.time_ns),
    )
    match event.body:
        case RunStarted() as body:
            response.started.CopyFrom(_started(body))
        case RunProgress() as body:
            response.progress.CopyFrom(progress(body))
        case FileFailure() as body:
            response.file_failed.CopyFrom(file_failed(body))
        case Heartbeat() as body:
            response.heartbeat.elapsed.CopyFrom(duration(body.elapsed_seconds))
        case RunCompleted() as body:
            response.completed.CopyFrom(_completed(body))
    return response


def _started(body: RunStarted) -> sync_event_pb2.SyncStarted:
    return sync_event_pb2.SyncStarted(
        mode=wire.sync_mode(body.mode),
        trigger=wire.sync_trigger(body.trigger),
        attached=body.attached,
        start_time=timestamp(body.start_time_ns),
        index_revision=body.revision,
        dry_run=body.dry_run,
    )


def progress(body: RunProgress) -> sync_event_pb2.SyncProgress:
    """Return a snapshot of a run."""
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
        completed_tokens=value.completed_tokens,
        total_tokens=value.total_tokens,
        elapsed=duration(body.elapsed_seconds),
        eta=None if body.eta_seconds is None else duration(body.eta_seconds),
    )


def file_failed(failure: FileFailure) -> sync_event_pb2.SyncFileFailed:
    """Return a file that could not be indexed."""
    return build_message(
        sync_event_pb2.SyncFileFailed,
        path=failure.path,
        source=wire.source(failure.source),
        error=cut_text(failure.error),
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
        degradations=degradations(vectors.degradations),
    )
    if estimate is not None:
        message.estimate.files = estimate.files
        message.estimate.removed_files = estimate.removed_files
        message.estimate.chunks = estimate.chunks
        message.estimate.cache_misses = estimate.cache_misses
        message.estimate.estimated_tokens = estimate.estimated_tokens
    return message


def active_sync(run: ActiveSync | None) -> memory_service_pb2.ActiveSync | None:
    """Return the run under way, or None."""
    if run is None:
        return None
    return memory_service_pb2.ActiveSync(
        sync_id=run.sync_id,
        mode=wire.sync_mode(run.mode),
        trigger=wire.sync_trigger(run.trigger),
        progress=progress(run.progress),
    )


def watcher(root: WatchedRoot) -> memory_pb2.WatcherStatus:
    """Return how a root is watched."""
    return build_message(
        memory_pb2.WatcherStatus, root=root.root, mode=wire.watcher_mode(root.mode), reason=cut_text(root.reason)
    )


def watchers(roots: Iterable[WatchedRoot]) -> list[memory_pb2.WatcherStatus]:
    """Return how the roots are watched; only the first ones if there are extremely many."""
    return fitting(roots, watcher, MOST_REPORT_BYTES)


def watch_response(agent_id: str, update: IndexUpdate) -> memory_service_pb2.WatchIndexResponse:
    """Return the whole state of an index at one moment."""
    snapshot = update.snapshot
    return memory_service_pb2.WatchIndexResponse(
        agent_id=agent_id,
        time=timestamp(update.time_ns),
        state=wire.index_state(snapshot.state),
        index_revision=snapshot.revision,
        dirty=snapshot.dirty,
        pending_files=snapshot.pending_files,
        active_sync=active_sync(update.active_sync),
        watchers=watchers(update.watched_roots),
        heartbeat=update.heartbeat,
    )
