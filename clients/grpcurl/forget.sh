#!/bin/sh
# forget.sh id ENTRY_ID | query TEXT: deletes an entry, or the one that a text clearly means
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 2 $#
case ${1-} in
    id) what=entry_id ;;
    query) what=query ;;
    *) test -n "$request" || refuse "$1 is neither id nor query" ;;
esac
call memoryd.v1.EntryService/Forget 5 "$(fields "${what-}" "$(text "${2-}")")"
