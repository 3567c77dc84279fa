"""Text into vectors: one module a format."""
