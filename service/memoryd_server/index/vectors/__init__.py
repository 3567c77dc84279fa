"""The vector leg: nearest neighbours by cosine, exact in the end whatever found the candidates.

The blobs of the `vectors` table are the truth. What is held in memory beside them only proposes candidates; their
cosines always come from the blobs of the caller's own snapshot.
"""

from memoryd_server.index.vectors.blas import use_calling_thread_only
from memoryd_server.index.vectors.extension import VectorEngine
from memoryd_server.index.vectors.leg import COARSE_ABOVE, VectorLeg

__all__ = ["COARSE_ABOVE", "VectorEngine", "VectorLeg", "use_calling_thread_only"]
