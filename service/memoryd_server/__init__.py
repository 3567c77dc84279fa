"""memoryd: a gRPC daemon that gives AI agents long-term memory."""

__version__ = "0.1.0"
