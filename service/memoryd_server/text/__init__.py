"""Words: one analyzer for index and query; pure."""
