#!/bin/sh
# list-files.sh [PAGE_SIZE [PAGE_TOKEN]]: lists an agent's memory files, and why one is not indexed
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
call memoryd.v1.MemoryService/ListFiles 2 "$(fields page_size "${1-}" page_token "$(optional "${2-}")")"
