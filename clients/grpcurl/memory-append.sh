#!/bin/sh
# memory-append.sh TEXT [PATH]: append to today's log, or to a memory file
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.MemoryService/MemoryAppend 5 "$(fields text "$(text "${1-}")" path "$(optional "${2-}")")"
