"""memoryd: a gRPC daemon that gives AI agents a memory that lasts."""

__version__ = "0.1.0"
