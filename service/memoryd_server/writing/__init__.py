"""What touches a user's files: appending, and nothing but appending."""
