#!/bin/sh
# Creates the passwords, a token, and a certificate with its own authority in secrets/, and the file .env. Existing files
# are kept. Needs openssl.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets/memoryd

random() {
    [ -e "$1" ] || openssl rand -hex 32 >"$1"
}

random secrets/replication.password
random secrets/postgres.password
random secrets/memoryd.password
random secrets/memoryd/token
# memoryd reads a password only from a file that no other user can read.
[ -e secrets/memoryd/database.password ] || cp secrets/memoryd.password secrets/memoryd/database.password

if [ ! -e secrets/memoryd/tls.pem ]; then
    key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    # shellcheck disable=SC2086
    openssl req -x509 $key -keyout secrets/ca.key -out secrets/ca.pem -subj "/CN=memoryd replicas" -days 3650
    # shellcheck disable=SC2086
    openssl req $key -keyout secrets/memoryd/tls.key -out secrets/tls.csr -subj "/CN=memoryd"
    echo "subjectAltName=DNS:memoryd,DNS:memoryd-1,DNS:memoryd-2,DNS:localhost,IP:127.0.0.1" >secrets/names
    openssl x509 -req -in secrets/tls.csr -CA secrets/ca.pem -CAkey secrets/ca.key -CAcreateserial \
        -out secrets/memoryd/tls.pem -days 825 -extfile secrets/names
    rm secrets/tls.csr secrets/names
fi
# The containers of PostgreSQL run as another user, and only these files are mounted in them. On the host, the mode of
# the folder keeps other users out.
chmod 644 secrets/*.password
printf 'MEMORYD_UID=%s\nMEMORYD_GID=%s\n' "$(id -u)" "$(id -g)" >.env
