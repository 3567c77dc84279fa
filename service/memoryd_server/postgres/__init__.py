"""The PostgreSQL driver of `memoryd_server.store`, and the only package that imports psycopg."""
