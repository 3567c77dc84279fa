"""The qmd command as a SearchBackend."""
