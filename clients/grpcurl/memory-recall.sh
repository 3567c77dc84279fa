#!/bin/sh
# memory-recall.sh TEXT [MAX_TOKENS]: show what an agent's memory contains about a turn of a session
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.MemoryService/MemoryRecall 2 "$(fields text "$(text "${1-}")" max_tokens "${2-}")"
