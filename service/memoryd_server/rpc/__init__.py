"""The gRPC edge. The only package that imports grpc or generated code."""
