#!/bin/sh
# explain-miss.sh PATH QUESTION [LINE]: show why a search does not find a file, or a line of it
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 2 $#
call memoryd.v1.MemoryService/ExplainMiss 10 "$(fields path "$(text "${1-}")" \
    search "{\"query\": $(text "${2-}")}" line "${3-}")"
