"""What a session loads, and what was forgotten, as messages."""

from collections.abc import Iterable

from memoryd.v1 import memory_service_pb2
from memoryd_server.backend.forget_job import Receipt
from memoryd_server.backend.session_context import ContextFile
from memoryd_server.recall import ToolSchema, recall_prompt, tool_schemas
from memoryd_server.rpc.messages import build_message
from memoryd_server.rpc.session_calls import ContextCall


def context_response(files: Iterable[ContextFile], call: ContextCall) -> memory_service_pb2.SessionContextResponse:
    """A session's files, with the recall section and the tools where they are wanted."""
    section = recall_prompt(call.tools, cites=call.cites, main_session=call.main_session) if call.section else ""
    return memory_service_pb2.SessionContextResponse(
        files=map(_file, files),
        recall_prompt=section,
        tool_schemas=map(_tool, tool_schemas(call.tools)) if call.schemas else (),
        main_session=call.main_session,
    )


def forget_response(value: Receipt) -> memory_service_pb2.MemoryForgetResponse:
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
