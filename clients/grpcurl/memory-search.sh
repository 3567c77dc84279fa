#!/bin/sh
# memory-search.sh QUESTION [MAX_RESULTS]: search an agent's memory
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.MemoryService/MemorySearch 5 "$(fields query "$(text "${1-}")" max_results "${2-}")"
