#!/bin/sh
# Runs once in the new primary: creates the roles and the database, and makes the standby synchronous.
set -eu
export PGUSER="${POSTGRES_USER:-postgres}"
psql -v ON_ERROR_STOP=1 -d postgres \
    -v memoryd_password="$(cat "${SECRETS:-/run/secrets}/memoryd_password")" \
    -v replication_password="$(cat "${SECRETS:-/run/secrets}/replication_password")" <<'SQL'
CREATE ROLE memoryd LOGIN PASSWORD :'memoryd_password' NOSUPERUSER NOBYPASSRLS;
CREATE ROLE replication LOGIN REPLICATION PASSWORD :'replication_password';
CREATE DATABASE memoryd OWNER memoryd;
\c memoryd
CREATE EXTENSION vector;
SELECT pg_create_physical_replication_slot('standby');
-- Takes effect when the server restarts after this script. Then a commit waits until the standby has stored it. The
-- standby copies this setting: after a promotion, reset it, or commits wait for a standby that does not exist.
ALTER SYSTEM SET synchronous_standby_names = 'standby';
-- Limits the write-ahead log that is kept for a standby that is down.
ALTER SYSTEM SET max_slot_wal_keep_size = '10GB';
SQL
echo "host replication replication all scram-sha-256" >>"$PGDATA/pg_hba.conf"
