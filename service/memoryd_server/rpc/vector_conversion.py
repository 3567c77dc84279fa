"""The embedding side and the vector leg of a status as messages."""

from memoryd.v1 import memory_pb2
from memoryd_server.backend import AgentMemory
from memoryd_server.backend.vector_side import ProbeOutcome, VectorSide, VectorUse
from memoryd_server.index.usage import Usage
from memoryd_server.rpc.messages import build_message
from memoryd_server.rpc.times import duration
from memoryd_server.store.identity import VectorIdentity
from memoryd_server.store.rows import Maker


def embedding_status(side: VectorSide, use: VectorUse, probe: ProbeOutcome | None) -> memory_pb2.EmbeddingStatus:
    """Who makes vectors, and how that goes. Holds no key."""
    selection, status, stands_in = side.selection, side.provider_status(), side.stands_in
    spec = None if side.embedder is None else side.embedder.provider.spec
    totals = {} if spec is None else use.usage
    own = Usage() if spec is None else totals.get((spec.provider, spec.model), Usage())
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


def _probe(probe: ProbeOutcome) -> memory_pb2.ProbeResult:
    return build_message(
        memory_pb2.ProbeResult, ok=not probe.error, elapsed=duration(probe.elapsed_seconds), error=probe.error
    )


def _usage(maker: Maker, used: Usage) -> memory_pb2.ProviderUsage:
    return build_message(
        memory_pb2.ProviderUsage,
        provider=maker[0],
        model=maker[1],
        calls=used.calls,
        tokens=used.tokens,
        retries=used.retries,
        cache_hits=used.cache_hits,
    )


def vector_status(memory: AgentMemory, use: VectorUse) -> memory_pb2.VectorStatus:
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


def identity(memory: AgentMemory) -> memory_pb2.Identity | None:
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


def identity_mismatches(memory: AgentMemory) -> list[memory_pb2.IdentityMismatch]:
    """How that differs from the settings."""
    return [
        build_message(memory_pb2.IdentityMismatch, field=field, index_value=old, wanted_value=new)
        for field, old, new in memory.mismatches()
    ]
