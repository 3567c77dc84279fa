"""What an index store is: its protocol and values. A driver, today SQLite in `index`, implements it."""
