#!/bin/sh
# memory-write.sh PATH SHA256 TEXT | PATH SHA256 OLD_TEXT NEW_TEXT: replace a memory file, or a text in it
# SHA256 is content_sha256 of memory-get.sh; "" creates the file. Use --json for the other operations.
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
needs 3 $#
if [ $# -gt 3 ]; then
    operation=replace
    value="{\"old_text\": $(text "$3"), \"new_text\": $(text "$4")}"
else
    operation=content
    value=$(text "${3-}")
fi
call memoryd.v1.MemoryService/MemoryWrite 5 "$(fields path "$(text "${1-}")" expected_sha256 "$(optional "${2-}")" \
    "$operation" "$value")"
