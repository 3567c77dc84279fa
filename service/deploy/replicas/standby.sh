#!/bin/sh
# Starts the standby. The first time, it copies the primary.
set -eu
password=$(cat "${SECRETS:-/run/secrets}/replication_password")
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    export PGPASSWORD="$password"
    until rm -rf "$PGDATA" && pg_basebackup --pgdata "$PGDATA" --write-recovery-conf --checkpoint fast --slot standby \
        --dbname "host=$PRIMARY user=replication application_name=standby"; do
        sleep 2
    done
fi
exec postgres -D "$PGDATA" "$@"
