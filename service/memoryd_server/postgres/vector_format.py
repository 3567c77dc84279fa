"""Vectors in pgvector's binary format: two 16-bit numbers, of which the first is the dimensions, and float32 numbers.

The numbers are big-endian; memoryd's blobs are little-endian.
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import psycopg
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo

from memoryd_server.vectors import FLOAT_BYTES

_HEADER = struct.Struct(">HH")


@dataclass(frozen=True, slots=True)
class VectorBlob:
    """A vector as a parameter of a statement: little-endian float32 numbers."""

    data: bytes

    @property
    def dimensions(self) -> int:
        """The length of the vector."""
        return len(self.data) // FLOAT_BYTES


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: VectorBlob) -> bytes:
        return _HEADER.pack(obj.dimensions, 0) + np.frombuffer(obj.data, "<f4").astype(">f4").tobytes()


class _VectorLoader(Loader):
    """Load a vector as a blob of little-endian float32 numbers."""

    format: ClassVar[Format] = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return np.frombuffer(data, ">f4", offset=_HEADER.size).astype("<f4").tobytes()


def register_vector(connection: psycopg.Connection[Any], oid: int, array_oid: int) -> None:
    """Let statements of a connection use vectors and lists of them; the ids are those of the types.

    Results must be requested in binary.
    """
    TypeInfo("vector", oid, array_oid).register(connection)
    dumper = type("_RegisteredVectorDumper", (_VectorDumper,), {"oid": oid})
    connection.adapters.register_dumper(VectorBlob, dumper)
    connection.adapters.register_loader(oid, _VectorLoader)
