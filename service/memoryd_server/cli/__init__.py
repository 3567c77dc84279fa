"""The `memoryd` command: a gRPC client of a running daemon where there is one, else of one in this process."""
