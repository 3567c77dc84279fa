"""The messages of FlushDecision and of the calls about sessions, from and to the values of `agent`."""

from collections.abc import Mapping

from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.agent import (
    ArchiveReceipt,
    ContextFile,
    FlushDecision,
    FlushRequest,
    PromptMode,
    SessionAppendRequest,
    SessionArchiveRequest,
    SessionContext,
    SessionContextRequest,
    ToolSchema,
    TranscriptReceipt,
    TurnKind,
    WorkspaceAccess,
)
from memoryd_server.rpc import wire
from memoryd_server.rpc.requests import FieldReader
from memoryd_server.rpc.wire import build_message

_ACCESS: Mapping[int, WorkspaceAccess] = {
    pb.WORKSPACE_ACCESS_UNSPECIFIED: WorkspaceAccess.READ_WRITE,
    pb.WORKSPACE_ACCESS_READ_WRITE: WorkspaceAccess.READ_WRITE,
    pb.WORKSPACE_ACCESS_READ_ONLY: WorkspaceAccess.READ_ONLY,
    pb.WORKSPACE_ACCESS_NONE: WorkspaceAccess.NONE,
}
_TURNS: Mapping[int, TurnKind] = {
    pb.TURN_KIND_UNSPECIFIED: TurnKind.USER,
    pb.TURN_KIND_USER: TurnKind.USER,
    pb.TURN_KIND_HEARTBEAT: TurnKind.HEARTBEAT,
    pb.TURN_KIND_CLI: TurnKind.CLI,
}
_PROMPT_MODES: Mapping[int, PromptMode] = {
    pb.PROMPT_MODE_UNSPECIFIED: PromptMode.FULL,
    pb.PROMPT_MODE_FULL: PromptMode.FULL,
    pb.PROMPT_MODE_MINIMAL: PromptMode.MINIMAL,
    pb.PROMPT_MODE_NONE: PromptMode.NONE,
}


def flush_request(message: pb.FlushDecisionRequest) -> FlushRequest:
    """Return the request of a FlushDecision."""
    fields = FieldReader(message)
    return FlushRequest(
        total_tokens=fields.value("total_tokens"),
        total_tokens_fresh=fields.value("total_tokens_fresh"),
        incoming_prompt_tokens=message.incoming_prompt_tokens,
        last_output_tokens=message.last_output_tokens,
        context_window_tokens=message.context_window_tokens,
        reserve_tokens_floor=fields.value("reserve_tokens_floor"),
        effective_reserve_tokens=fields.value("effective_reserve_tokens"),
        soft_threshold_tokens=fields.value("soft_threshold_tokens"),
        transcript_bytes=fields.value("transcript_bytes"),
        compaction_count=message.compaction_count,
        last_flush_compaction_count=fields.value("last_flush_compaction_count"),
        workspace_access=fields.choice("workspace_access", _ACCESS),
        turn_kind=fields.choice("turn_kind", _TURNS),
        now=fields.now(),
        time_zone=message.time_zone,
        unreadable=tuple(fields.violations),
    )


def flush_response(value: FlushDecision, agent_id: str) -> pb.FlushDecisionResponse:
    """Return a decision, with every input echoed."""
    inputs = value.inputs
    echo = pb.FlushDecisionRequest(
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
    return pb.FlushDecisionResponse(
        flush=value.flush,
        reason=wire.flush_reason(value.reason),
        threshold_tokens=value.threshold_tokens,
        projected_tokens=value.projected_tokens,
        remaining_tokens=value.remaining_tokens,
        prompts=pb.FlushPrompts(
            system=value.prompts.system, user=value.prompts.user, silent_reply=value.prompts.silent_reply
        ),
        target_path=value.target_path,
        flush_compaction_count=value.flush_compaction_count,
        inputs=echo,
    )


def context_request(message: pb.SessionContextRequest) -> SessionContextRequest:
    """Return the request of a SessionContext."""
    fields = FieldReader(message)
    return SessionContextRequest(
        session_key=message.session_key,
        max_total_chars=fields.value("max_total_chars"),
        include_recall_prompt=message.include_recall_prompt,
        prompt_mode=fields.choice("prompt_mode", _PROMPT_MODES),
        tools=tuple(message.tools),
        citations=fields.citations(),
        now=fields.now(),
        time_zone=message.time_zone,
        unreadable=tuple(fields.violations),
    )


def context_response(value: SessionContext) -> pb.SessionContextResponse:
    """Return a session's files, with its recall prompt and tools."""
    return pb.SessionContextResponse(
        files=map(context_file, value.files),
        recall_prompt=value.recall_prompt,
        tool_schemas=map(_tool, value.tool_schemas),
        main_session=value.main_session,
    )


def context_file(value: ContextFile) -> pb.SessionContextFile:
    """Return a file of a session's context."""
    return build_message(
        pb.SessionContextFile,
        path=value.path,
        text=value.text,
        truncated=value.truncated,
        exists=value.exists,
        start_line=value.start_line,
        end_line=value.end_line,
        problem=value.problem,
    )


def _tool(value: ToolSchema) -> pb.ToolSchema:
    return pb.ToolSchema(name=value.name, description=value.description, parameters_json=value.parameters_json)


def archive_request(message: pb.SessionArchiveRequest) -> SessionArchiveRequest:
    """Return the request of a SessionArchive."""
    fields = FieldReader(message)
    return SessionArchiveRequest(
        transcript=message.transcript,
        message_count=fields.value("message_count"),
        slug=message.slug,
        session_key=message.session_key,
        now=fields.now(),
        time_zone=message.time_zone,
        unreadable=tuple(fields.violations),
    )


def archive_response(value: ArchiveReceipt) -> pb.SessionArchiveResponse:
    """Return the archive's file."""
    return pb.SessionArchiveResponse(
        path=value.path, messages=value.messages, index_revision=value.revision, already_archived=value.already
    )


def append_request(message: pb.SessionAppendRequest) -> SessionAppendRequest:
    """Return the request of a SessionAppend."""
    return SessionAppendRequest(
        session_id=message.session_id,
        records=tuple(message.records),
        expected_records=FieldReader(message).value("expected_records"),
        session_key=message.session_key,
    )


def append_response(value: TranscriptReceipt) -> pb.SessionAppendResponse:
    """Return the transcript after an append."""
    return pb.SessionAppendResponse(
        path=value.path,
        records=value.records,
        size_bytes=value.size_bytes,
        already_appended=value.already_appended,
    )
