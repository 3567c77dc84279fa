"""The derived store: one disposable SQLite file an agent. The only package that imports the SQLite binding."""
