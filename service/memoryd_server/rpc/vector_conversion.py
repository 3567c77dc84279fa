"""The embedding side and the vector leg of a status as messages."""

from memoryd.v1 import memory_pb2
from memoryd_server.backend import AgentMemory
from memoryd_server.backend.vector_side import ProbeOutcome, VectorSide
from memoryd_server.index.embedding_cache import Maker
from memoryd_server.index.usage import Usage
from memoryd_server.index.vector_identity import VectorIdentity
from memoryd_server.rpc.times import duration


def embedding_status(side: VectorSide, probe: ProbeOutcome | None) -> memory_pb2.EmbeddingStatus:
    """Who makes vectors, and how that goes. Holds no key."""
    selection, status = side.selection, side.provider_status()
    message = memory_pb2.EmbeddingStatus(requested_provider=selection.requested, reason=selection.reason)
    if side.embedder is not None and status is not None:
        spec = side.embedder.provider.spec
        message.provider, message.model = spec.provider, spec.model
        message.dimensions = spec.dimensions or 0
        message.reason = status.reason
        totals = side.usage.totals()
        own = totals.get((spec.provider, spec.model), Usage())
        message.calls, message.tokens = own.calls, own.tokens
        message.usage.extend(_usage(maker, used) for maker, used in sorted(totals.items()))
    stands_in = side.stands_in
    if stands_in is not None:
        message.fallback_from, message.reason = stands_in.wanted, stands_in.reason
    if probe is not None:
        message.probe.ok = not probe.error
        message.probe.elapsed.CopyFrom(duration(probe.elapsed_seconds))
        message.probe.error = probe.error
    return message


def _usage(maker: Maker, used: Usage) -> memory_pb2.ProviderUsage:
    return memory_pb2.ProviderUsage(
        provider=maker[0],
        model=maker[1],
        calls=used.calls,
        tokens=used.tokens,
        retries=used.retries,
        cache_hits=used.cache_hits,
    )


def vector_status(memory: AgentMemory) -> memory_pb2.VectorStatus:
    """Who compares vectors."""
    side = memory.vectors
    engine = side.leg.engine
    stored = side.state.stored
    return memory_pb2.VectorStatus(
        enabled=memory.config.vector_enabled,
        engine=engine.engine if side.embedder is not None else "none",
        version=engine.version or "",
        load_error=(engine.load_error or "") if side.embedder is not None else "",
        dimensions=stored.dimensions if stored is not None else 0,
        resident_form=side.leg.form,
        resident_bytes=side.leg.memory_bytes,
    )


def identity(memory: AgentMemory) -> memory_pb2.Identity | None:
    """What the index's vectors were built with; None when there are none."""
    stored: VectorIdentity | None = memory.vectors.state.stored
    build = memory.built_with
    if stored is None:
        return None
    return memory_pb2.Identity(
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
        memory_pb2.IdentityMismatch(field=field, index_value=old, wanted_value=new)
        for field, old, new in memory.mismatches()
    ]
