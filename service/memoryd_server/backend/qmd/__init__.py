"""The `qmd` command as a backend: its home, its collections, its processes, and what it answers."""
