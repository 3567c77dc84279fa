#!/bin/sh
# memory-forget.sh path PATH | session ID | text TEXT: remove it from all derived data; the source is kept
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 2 $#
case ${1-} in
    path | text) what=$1 ;;
    session) what=session_id ;;
    *) test -n "$request" || refuse "the first argument is $1; it must be path, session or text" ;;
esac
call memoryd.v1.MemoryService/MemoryForget 10 "$(fields "${what-}" "$(text "${2-}")")"
