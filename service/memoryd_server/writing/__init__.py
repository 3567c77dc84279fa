"""What changes a user's files."""
