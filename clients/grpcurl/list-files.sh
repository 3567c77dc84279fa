#!/bin/sh
# list-files.sh [PAGE_SIZE [PAGE_TOKEN]]: list an agent's memory files with their index state
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
call memoryd.v1.MemoryService/ListFiles 2 "$(fields page_size "${1-}" page_token "$(optional "${2-}")")"
