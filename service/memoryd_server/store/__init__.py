"""What an index store is: protocol and values; no driver."""
