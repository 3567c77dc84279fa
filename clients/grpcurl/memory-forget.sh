#!/bin/sh
# memory-forget.sh path PATH | session ID | text TEXT: removes it from every derived store; the source stays
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 2 $#
case ${1-} in
    path | text) what=$1 ;;
    session) what=session_id ;;
    *) test -n "$request" || refuse "$1 is neither path nor session nor text" ;;
esac
call memoryd.v1.MemoryService/MemoryForget 10 "$(fields "${what-}" "$(text "${2-}")")"
