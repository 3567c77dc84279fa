"""A session's start, flush and recall."""
