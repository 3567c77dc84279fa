"""A question into hits: legs, fusion, snippets, citations."""
