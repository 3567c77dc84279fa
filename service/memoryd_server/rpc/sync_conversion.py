"""Sync runs and the state of an index as messages."""

from google.protobuf.timestamp_pb2 import Timestamp

from memoryd.v1 import memory_pb2, memory_service_pb2, sync_event_pb2
from memoryd_server.backend import SyncEvent, SyncRun
from memoryd_server.backend.board import BoardState
from memoryd_server.backend.sync_run import Completed, Heartbeat, Progressed, Started
from memoryd_server.model import FileFailure
from memoryd_server.rpc import enums
from memoryd_server.rpc.conversion import degradation
from memoryd_server.rpc.messages import build_message
from memoryd_server.rpc.opaque import make_cursor
from memoryd_server.rpc.times import duration, timestamp
from memoryd_server.sources import WatchedRoot


def sync_response(run: SyncRun, event: SyncEvent, *, attached: bool) -> memory_service_pb2.SyncResponse:
    """An event of a run, as told to a follower who started it or joined."""
    response = memory_service_pb2.SyncResponse(
        sync_id=run.sync_id,
        sequence=event.sequence,
        cursor=make_cursor(run.sync_id, event.sequence),
        time=timestamp(event.time_ns),
    )
    match event.body:
        case Started() as body:
            response.started.CopyFrom(_started(run, body, attached=attached))
        case Progressed() as body:
            response.progress.CopyFrom(progress(body))
        case FileFailure() as body:
            response.file_failed.CopyFrom(file_failed(body))
        case Heartbeat() as body:
            response.heartbeat.elapsed.CopyFrom(duration(body.elapsed_seconds))
        case Completed() as body:
            response.completed.CopyFrom(_completed(body))
    return response


def _started(run: SyncRun, body: Started, *, attached: bool) -> sync_event_pb2.SyncStarted:
    return sync_event_pb2.SyncStarted(
        mode=enums.sync_mode(run.mode),
        trigger=enums.sync_trigger(run.trigger),
        attached=attached,
        start_time=timestamp(run.start_time_ns),
        index_revision=body.revision,
        dry_run=body.dry_run,
    )


def progress(body: Progressed) -> sync_event_pb2.SyncProgress:
    """A snapshot of a run."""
    value = body.progress
    return build_message(
        sync_event_pb2.SyncProgress,
        phase=enums.sync_phase(value.phase),
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
        sync_event_pb2.SyncFileFailed, path=failure.path, source=enums.source(failure.source), error=failure.error
    )


def _completed(body: Completed) -> sync_event_pb2.SyncCompleted:
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
        mode=enums.sync_mode(run.mode),
        trigger=enums.sync_trigger(run.trigger),
        progress=progress(run.progress),
    )


def watcher(root: WatchedRoot) -> memory_pb2.WatcherStatus:
    """How a root is watched."""
    return build_message(
        memory_pb2.WatcherStatus, root=root.root, mode=enums.watcher_mode(root.mode), reason=root.reason
    )


def watch_response(
    agent_id: str,
    now: Timestamp,
    state: BoardState,
    run: SyncRun | None,
    watchers: tuple[WatchedRoot, ...],
    *,
    heartbeat: bool,
) -> memory_service_pb2.WatchIndexResponse:
    """The whole state of an index at one moment."""
    return memory_service_pb2.WatchIndexResponse(
        agent_id=agent_id,
        time=now,
        state=enums.index_state(state.state),
        index_revision=state.revision,
        dirty=state.dirty,
        pending_files=state.pending_files,
        active_sync=active_sync(run),
        watchers=[watcher(root) for root in watchers],
        heartbeat=heartbeat,
    )
