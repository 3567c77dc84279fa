#!/bin/sh
# forget.sh id ENTRY_ID | query TEXT: delete an entry, given its ID or a text that clearly matches it
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 2 $#
case ${1-} in
    id) what=entry_id ;;
    query) what=query ;;
    *) test -n "$request" || refuse "the first argument is $1; it must be id or query" ;;
esac
call memoryd.v1.EntryService/Forget 5 "$(fields "${what-}" "$(text "${2-}")")"
