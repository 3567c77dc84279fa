"""Who may call, how often, at which addresses."""
