"""Text into chunks; pure."""
