"""Files, variables and flags into frozen settings."""
