#!/bin/sh
# memory-move.sh PATH NEW_PATH SHA256: rename a memory file; SHA256 is content_sha256 of memory-get.sh
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 3 $#
call memoryd.v1.MemoryService/MemoryMove 5 "$(fields path "$(text "${1-}")" new_path "$(text "${2-}")" \
    expected_sha256 "$(text "${3-}")")"
