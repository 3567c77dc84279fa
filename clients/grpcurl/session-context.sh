#!/bin/sh
# session-context.sh [SESSION_KEY]: show the memory files that a session loads at its start
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
call memoryd.v1.MemoryService/SessionContext 2 "$(fields session_key "$(optional "${1-}")")"
