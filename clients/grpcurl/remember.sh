#!/bin/sh
# remember.sh TEXT [IMPORTANCE]: stores an entry, unless one says the same
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.EntryService/Remember 10 "$(fields text "$(text "${1-}")" importance "${2-}")"
