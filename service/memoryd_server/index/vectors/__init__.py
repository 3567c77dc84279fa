"""The vector leg: nearest neighbours by cosine, exact in the end whatever found the candidates.

The blobs of the `vectors` table are the truth. What is held in memory beside them only proposes candidates; their
cosines always come from the blobs of the caller's own snapshot.
"""

from memoryd_server.index.vectors.extension import VectorEngine
from memoryd_server.index.vectors.floats import to_blob
from memoryd_server.index.vectors.leg import COARSE_ABOVE, VectorLeg
from memoryd_server.index.vectors.ranking import VectorHit
from memoryd_server.index.vectors.rows import MissingVector, NewVector, count, delete_vectors, missing, write_vectors

__all__ = [
    "COARSE_ABOVE",
    "MissingVector",
    "NewVector",
    "VectorEngine",
    "VectorHit",
    "VectorLeg",
    "count",
    "delete_vectors",
    "missing",
    "to_blob",
    "write_vectors",
]
