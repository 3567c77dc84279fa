"""Python client of memoryd: the generated stubs (`memoryd.v1`) and a thin client (`memoryd.client`)."""
