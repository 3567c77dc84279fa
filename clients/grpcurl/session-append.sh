#!/bin/sh
# session-append.sh SESSION_ID EXPECTED_RECORDS RECORD...: append records to the transcript of a session
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 3 $#
session=${1-}
expected=${2-}
test $# -lt 2 || shift 2
call memoryd.v1.MemoryService/SessionAppend 5 \
    "$(fields session_id "$(text "$session")" expected_records "$expected" records "$(texts "$@")")"
