#!/bin/sh
# remember.sh TEXT [IMPORTANCE]: store an entry, unless an equivalent one exists
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.EntryService/Remember 10 "$(fields text "$(text "${1-}")" importance "${2-}")"
