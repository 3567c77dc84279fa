#!/bin/sh
# session-archive.sh TRANSCRIPT [SLUG]: write the last messages of a transcript to a new memory file
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 1 $#
call memoryd.v1.MemoryService/SessionArchive 10 "$(fields transcript "$(text "${1-}")" slug "$(optional "${2-}")")"
