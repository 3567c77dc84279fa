#!/bin/sh
# memory-history.sh [PATH [PAGE_SIZE [PAGE_TOKEN]]]: list the writes of a memory file, or of all, with their differences
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
call memoryd.v1.MemoryService/MemoryHistory 5 "$(fields path "$(optional "${1-}")" include_diffs true \
    page_size "${2-}" page_token "$(optional "${3-}")")"
