"""The vectors of an index: cache, provider, price."""
