#!/bin/sh
# memory-search.sh QUESTION [MAX_RESULTS]: finds the parts of an agent's memory that answer a question
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.MemoryService/MemorySearch 5 "$(fields query "$(text "${1-}")" max_results "${2-}")"
