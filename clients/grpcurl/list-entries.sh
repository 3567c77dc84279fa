#!/bin/sh
# list-entries.sh [PAGE_SIZE [PAGE_TOKEN]]: list an agent's entries, newest first
. "$(dirname "$(readlink -f "$0")")/prelude.sh"
call memoryd.v1.EntryService/ListEntries 5 "$(fields page_size "${1-}" page_token "$(optional "${2-}")")"
