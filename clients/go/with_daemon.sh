#!/bin/sh
# Runs a command while a separate daemon serves a copy of the sample workspace at MEMORYD_TEST_ADDRESS.
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d /tmp/memoryd-XXXXXX)
daemon=
trap 'test -z "$daemon" || { kill "$daemon" && wait "$daemon"; } || true; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

cp -r "$repository/docs/sample-workspace" "$folder/workspace"
mkdir "$folder/state"
# Do not use the settings and keys of the user who runs this script.
env -i PATH="$PATH" HOME="$folder" ${PYTHONPATH:+PYTHONPATH="$PYTHONPATH"} "$repository/.venv/bin/python" -m memoryd_server \
    serve --workspace "$folder/workspace" --state-dir "$folder/state" --listen "unix:$folder/m.sock" \
    >"$folder/out" 2>"$folder/log" &
daemon=$!

waited=0
until grep -q '^listening on ' "$folder/out"; do
    waited=$((waited + 1))
    if [ "$waited" -gt 600 ] || ! kill -0 "$daemon" 2>/dev/null; then
        echo "The daemon did not start:" >&2
        tail -n 20 "$folder/log" >&2
        exit 1
    fi
    sleep 0.1
done
MEMORYD_TEST_ADDRESS="unix:$folder/m.sock" "$@"
