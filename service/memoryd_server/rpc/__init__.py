"""The gRPC edge; only importer of grpc."""
