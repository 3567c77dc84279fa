#!/bin/sh
# recall.sh QUERY [LIMIT]: find the entries that are most similar to a text
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.EntryService/Recall 5 "$(fields query "$(text "${1-}")" limit "${2-}")"
