"""Client side of memoryd: the generated stubs (`memoryd.v1`) and a thin client over them (`memoryd.client`)."""
