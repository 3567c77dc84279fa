#!/bin/sh
# memory-get.sh PATH [START_LINE [LINE_COUNT]]: read lines of a memory file
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.MemoryService/MemoryGet 2 "$(fields path "$(text "${1-}")" start_line "${2-}" line_count "${3-}")"
