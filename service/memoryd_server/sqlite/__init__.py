"""The SQLite driver of `store`; only importer of apsw."""
