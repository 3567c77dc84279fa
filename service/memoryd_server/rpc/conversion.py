"""Answers of searches, reads and lists as messages."""

from collections.abc import Iterable
from dataclasses import replace

from memoryd.v1 import memory_pb2, memory_service_pb2
from memoryd_server.backend import AgentMemory, FileRange, IndexState, ListedFile
from memoryd_server.flush import FlushDecision
from memoryd_server.model import Degradation, DegradationKind
from memoryd_server.rpc import enums
from memoryd_server.rpc.messages import build_message
from memoryd_server.rpc.times import duration, timestamp
from memoryd_server.search.citation import citation
from memoryd_server.search.query import BUILTIN, Hit, LegReport, SearchAnswer


def search_response(
    answer: SearchAnswer, memory: AgentMemory, *, elapsed_seconds: float, explain: bool
) -> memory_service_pb2.MemorySearchResponse:
    """An answer with how it came about. The details of scores and legs are there when `explain` asks for them."""
    board, builtin = memory.board.current, answer.backend == BUILTIN
    degradations = _of_search(memory.degradations(), answer) if builtin else memory.config.impairments
    info = build_message(
        memory_pb2.SearchInfo,
        backend=enums.backend(answer.backend),
        served_mode=enums.search_mode(answer.served_mode),
        degradations=[degradation(d) for d in (*_beyond(degradations, answer.degradations), *degradations)],
        index_revision=answer.revision,
        index_state=enums.index_state(board.state if builtin else _state_of(answer)),
        stale=answer.stale or (builtin and (board.dirty or board.pending_files > 0)),
        keyword_candidates=answer.keyword_candidates,
        vector_candidates=answer.vector_candidates,
        coverage=answer.coverage,
        embedding=_embedding(memory, answer) if answer.vector_candidates else None,
        dropped_by_min_score=answer.dropped_by_min_score,
        elapsed=duration(elapsed_seconds),
        empty_reason=enums.empty_reason(answer.empty_reason),
        empty_explanation=answer.empty_explanation,
        legs=[_leg(leg) for leg in answer.legs] if explain else [],
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


def _embedding(memory: AgentMemory, answer: SearchAnswer) -> memory_pb2.EmbeddingInfo | None:
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
        source=enums.source(hit.source),
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


def _leg(leg: LegReport) -> memory_pb2.LegReport:
    return build_message(
        memory_pb2.LegReport,
        leg=enums.search_mode(leg.leg),
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
        kind=enums.degradation_kind(value.kind),
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
        source=enums.source(value.source),
        size_bytes=value.size_bytes,
        modified_time=timestamp(value.mtime_ns),
        state=enums.file_state(value.state),
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
        workspace_access=enums.workspace_access(inputs.workspace_access),
        turn_kind=enums.turn_kind(inputs.turn_kind),
        time_zone=inputs.time_zone,
    )
    if inputs.total_tokens_fresh is not None:
        echo.total_tokens_fresh = inputs.total_tokens_fresh
    echo.now.FromDatetime(inputs.now)
    return memory_service_pb2.FlushDecisionResponse(
        flush=value.flush,
        reason=enums.flush_reason(value.reason),
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
